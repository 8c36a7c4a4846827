import pytest
import torch

from asrnorm.core.errors import InputError
from asrnorm.methods import ESDA
from asrnorm.methods.rsda import breed

OPS = torch.tensor([[0, 0, 0], [1, 1, 1], [2, 2, 2], [3, 3, 3]])


class Scripted:
    """Stands for torch's draws in one generation, in the order in which it makes them."""

    def __init__(self, monkeypatch, parents, cuts, mutates, fresh):
        monkeypatch.setattr(torch, "multinomial", self.multinomial)
        monkeypatch.setattr(torch, "randint", lambda high, size, generator: torch.tensor(cuts)[:, None])
        monkeypatch.setattr(torch, "rand", lambda size, generator: 1 - torch.tensor(mutates, dtype=torch.float32))
        monkeypatch.setattr("asrnorm.methods.rsda.draw_tuples", lambda count, generator, length: fresh)
        self.parents, self.fitness = parents, None

    def multinomial(self, fitness, count, replacement, generator):
        assert replacement
        assert isinstance(generator, torch.Generator)
        assert count == len(self.parents)
        self.fitness = (fitness / fitness.sum()).tolist()
        return torch.tensor(self.parents)


def test_one_generation_by_hand(monkeypatch):
    # Pairs (3, 1) cut before gene 1 and (2, 2) cut before gene 0; then gene 2 of the last child mutates.
    fresh = torch.full((4, 3), 9), torch.full((4, 3), 5)
    mutates = [[0, 0, 0], [0, 0, 0], [0, 0, 0], [0, 0, 1]]
    script = Scripted(monkeypatch, parents=[3, 2, 1, 2], cuts=[1, 0], mutates=mutates, fresh=fresh)
    wrong = torch.tensor([0, 1, 3, 4])
    ops, levels = breed(OPS, OPS + 10, wrong, 0.1, torch.Generator())
    assert script.fitness == [0.0, 0.125, 0.375, 0.5]
    # First children fill the first half, their siblings the second.
    assert ops.tolist() == [[3, 1, 1], [2, 2, 2], [1, 3, 3], [2, 2, 9]]
    assert levels.tolist() == [[13, 11, 11], [12, 12, 12], [11, 13, 13], [12, 12, 5]]


def test_where_nothing_is_missed_all_are_equally_fit(monkeypatch):
    script = Scripted(monkeypatch, [0, 1, 2, 3], [0, 0], torch.zeros(4, 3).tolist(), (OPS, OPS))
    breed(OPS, OPS, torch.zeros(4, dtype=torch.int64), 0.1, torch.Generator())
    assert script.fitness == [0.25] * 4


def test_genes_keep_their_places_and_travel_with_their_levels():
    generator = torch.Generator().manual_seed(0)
    ops = torch.arange(30).view(10, 3) % 10
    for _ in range(20):
        children, levels = breed(ops, ops * 2, torch.arange(10), 0.0, generator)
        assert torch.equal(levels, children * 2)
        for place in range(3):
            assert set(children[:, place].tolist()) <= set(ops[:, place].tolist())


def test_genes_mutate_at_the_stated_rate():
    generator = torch.Generator().manual_seed(0)
    ops = torch.full((1000, 3), 99)
    children, _ = breed(ops, ops, torch.ones(1000), 0.1, generator)
    assert 0.08 < (children != 99).double().mean() < 0.12


def test_the_search_returns_the_worst_of_all_generations():
    seen = []

    def count_wrong(ops, levels):
        seen.append((ops, levels, ((7 * ops + levels).sum(1) % 23)))
        return seen[-1][2]

    found = ESDA().search(count_wrong, step=4)
    assert [len(ops) for ops, _, _ in seen] == [10] * 11  # 110 evaluations
    wrong = torch.cat([w for _, _, w in seen]).tolist()
    place = wrong.index(max(wrong))
    assert found.wrong == max(wrong)
    assert found.ops.tolist() == torch.cat([o for o, _, _ in seen])[place].tolist()
    assert found.levels.tolist() == torch.cat([v for _, v, _ in seen])[place].tolist()


def test_a_search_is_the_same_in_the_same_step_and_another_in_the_next():
    first, again, other = (ESDA().search(lambda ops, levels: ops.sum(1), step) for step in (1, 1, 2))
    assert first.ops.tolist() == again.ops.tolist()
    assert first.levels.tolist() == again.levels.tolist()
    assert (first.ops.tolist(), first.levels.tolist()) != (other.ops.tolist(), other.levels.tolist())


@pytest.mark.parametrize("options", [{"population": 5}, {"generations": -1}, {"mutation": 1.5}, {"population": 0}])
def test_refuses_what_cannot_be_bred(options):
    with pytest.raises(InputError, match=next(iter(options))):
        ESDA(**options)
