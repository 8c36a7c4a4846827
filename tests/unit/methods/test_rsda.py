import numpy as np
import pytest
import torch
import torch.nn.functional as F

from asrnorm.core.errors import InputError
from asrnorm.data.augment import RSDA_OPERATIONS, apply_tuple, draw_tuples
from asrnorm.data.image_set import ImageSet
from asrnorm.data.pool import Pool
from asrnorm.methods import ESDA, RDA, RSDA, Batch, create_method
from asrnorm.methods.rsda import breed
from helpers.tiny_classifier import LightRed

LABELS = torch.tensor([0, 1, 0, 1])


def test_a_step_is_cross_entropy_under_one_random_tuple(monkeypatch):
    pixels = torch.randint(0, 256, (4, 3, 4, 4), dtype=torch.uint8)
    drawn = []

    def spy(count, generator, length):
        from asrnorm.data.augment import draw_tuples

        drawn.append(draw_tuples(count, generator, length))
        return drawn[-1]

    monkeypatch.setattr("asrnorm.methods.rsda.draw_tuples", spy)
    model, method = LightRed(), RDA(tuple_length=2)
    loss = method.loss(model, Batch(pixels / 255, LABELS, step=3))
    (ops, levels) = drawn[0]
    assert ops.shape == (1, 2)
    assert torch.equal(loss, F.cross_entropy(model(apply_tuple(pixels, ops[0], levels[0]) / 255), LABELS))


def test_every_step_draws_anew_and_the_same_again():
    images, model = torch.rand(4, 3, 4, 4), LightRed()
    losses = [create_method("rda", seed=1).loss(model, Batch(images, LABELS, s)).item() for s in (*range(20), 7)]
    assert losses[7] == losses[20]
    assert len(set(losses)) > 10
    assert not RDA().is_growing(1000)
    assert RDA().state_dict() == {}
    assert len(RSDA_OPERATIONS) == 10


def test_refuses_an_empty_tuple():
    with pytest.raises(InputError, match="tuple_length must be at least 1"):
        RDA(tuple_length=0)


RED = 7
LEVELS = RSDA_OPERATIONS[RED].levels  # -120 .. 120 in 30 steps


def gray_pool(values, labels):
    images = np.broadcast_to(np.array(values, np.uint8)[:, None, None, None], (len(values), 4, 4, 3))
    return Pool(ImageSet(np.array(images), np.array(labels)))


def fixed_candidates(monkeypatch, levels):
    ops = torch.full((len(levels), 1), RED)
    drawn = ops, torch.tensor(levels)[:, None]
    monkeypatch.setattr("asrnorm.methods.rsda.draw_tuples", lambda count, generator, length: drawn)


def test_the_search_keeps_the_tuple_with_the_lowest_accuracy(monkeypatch):
    # Ones are 100 and more. A shift of -120, -37, +4 leaves (0, 1, 3) of 105, 140, 180 above, and zeros below.
    pool = gray_pool([105, 140, 180, 20], [1, 1, 1, 0])
    levels = [LEVELS.index(4), LEVELS.index(-37), LEVELS.index(-120), 29]
    fixed_candidates(monkeypatch, levels)
    method = RSDA(interval=1, tuple_length=1, candidates=4, search_batch=3)
    log = method.grow(LightRed(), pool, 1)
    # +4: all right; -37: 105 is wrong, 3 of 4; -120: 1 of 4; +120: the zero turns 140, 3 of 4
    assert log == {"search_accuracy": 0.25, "tuples": 2.0}
    assert method.ops.tolist() == [[-1], [RED]]
    assert method.levels.tolist() == [[0], [LEVELS.index(-120)]]


def test_every_search_tries_tuples_of_its_own_and_a_repeated_one_the_same(monkeypatch):
    tried = []

    def spy(count, generator, length):
        tried.append(draw_tuples(count, generator, length))
        return tried[-1]

    monkeypatch.setattr("asrnorm.methods.rsda.draw_tuples", spy)
    for steps in ((1, 2), (2,)):
        method = RSDA(interval=1, candidates=9)
        for step in steps:
            method.grow(LightRed(), gray_pool([105, 20], [1, 0]), step)
    first, second, again = (torch.stack(drawn) for drawn in tried)
    assert not torch.equal(first, second)
    assert torch.equal(second, again)


def test_of_equally_bad_tuples_the_first_is_kept(monkeypatch):
    pool = gray_pool([105, 20], [1, 0])
    fixed_candidates(monkeypatch, [LEVELS.index(4), LEVELS.index(-37), LEVELS.index(-120)])
    method = RSDA(interval=1, tuple_length=1, candidates=3)
    method.grow(LightRed(), pool, 1)
    assert method.levels[1].item() == LEVELS.index(-37)


def test_a_model_that_misses_nothing_still_gets_a_tuple(monkeypatch):
    fixed_candidates(monkeypatch, [LEVELS.index(4), 29])
    method = RSDA(interval=1, tuple_length=1, candidates=2)
    assert method.grow(LightRed(), gray_pool([200], [1]), 1)["search_accuracy"] == 1.0
    assert method.levels[1].item() == LEVELS.index(4)


def test_the_chosen_tuple_is_the_worst_of_all_that_were_tried(monkeypatch):
    values = torch.randint(0, 256, (40,), generator=torch.Generator().manual_seed(1))
    pool = gray_pool(values.tolist(), (values >= 100).long().tolist())
    method, model = RSDA(candidates=30, search_images=25, search_batch=7), LightRed().eval()
    tried = []
    original = method._count_wrong

    def spy(*args):
        tried.append((args[-2], args[-1], original(*args)))
        return tried[-1][2]

    monkeypatch.setattr(method, "_count_wrong", spy)
    method.grow(model, pool, 10)
    (ops, levels, wrong), pixels = tried[0], (pool.images(torch.arange(25)) * 255).round().to(torch.uint8)
    by_hand = []
    for op, level in zip(ops, levels, strict=True):
        red = apply_tuple(pixels, op, level)[:, 0].double().mean((1, 2))
        by_hand.append(int(((red >= 99.5).long() != pool.labels[:25]).sum()))
    assert wrong.tolist() == by_hand
    assert len(by_hand) == 30
    worst = by_hand.index(max(by_hand))
    assert method.ops[1].tolist() == ops[worst].tolist()
    assert method.levels[1].tolist() == levels[worst].tolist()


def test_only_the_first_source_images_are_looked_at_or_evenly_spaced_ones():
    pool = gray_pool(range(10), range(10))
    pool.append(torch.ones(5, 3, 4, 4), torch.full((5,), 9))
    first, even = (RSDA(search_images=4, search_rows=rows)._search_set(pool) for rows in ("first", "even"))
    assert first[1].tolist() == [0, 1, 2, 3]
    assert even[1].tolist() == [0, 2, 5, 7]
    assert even[0][:, 0, 0, 0].tolist() == [0, 2, 5, 7]
    assert len(RSDA(search_images=1000)._search_set(pool)[1]) == 10


def test_a_step_draws_one_entry_for_the_whole_batch():
    method = RSDA(tuple_length=1)
    method.ops = torch.tensor([[-1], [RED]])
    method.levels = torch.tensor([[0], [LEVELS.index(-120)]])
    images, labels = torch.full((6, 3, 2, 2), 150 / 255), torch.ones(6, dtype=torch.int64)
    model = LightRed()
    losses = [method.loss(model, Batch(images, labels, step=step)).item() for step in range(400)]
    plain, shifted = (F.cross_entropy(model(x), labels).item() for x in (images, images - 120 / 255))
    is_plain = np.isclose(losses, plain)
    assert (is_plain | np.isclose(losses, shifted)).all()
    assert 150 < is_plain.sum() < 250  # uniform over two entries


def test_a_fresh_pool_trains_on_the_images_as_they_are():
    images, labels = torch.rand(4, 3, 2, 2), torch.tensor([0, 1, 0, 1])
    model, method = LightRed(), RSDA()
    for step in range(5):
        loss = method.loss(model, Batch(images, labels, step))
        assert torch.equal(loss, F.cross_entropy(model(images), labels))


def test_a_search_is_due_after_every_interval_and_not_at_the_start():
    method = RSDA(interval=100)
    assert [step for step in range(0, 350, 50) if method.is_growing(step)] == [100, 200, 300]


def test_a_search_leaves_no_trace_on_the_model():
    model = LightRed().train()
    model.norm.eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    torch.manual_seed(3)
    state = torch.get_rng_state()
    RSDA(candidates=5).grow(model, gray_pool([10, 200], [0, 1]), 1)
    assert model.training
    assert not model.norm.training
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())
    assert torch.equal(torch.get_rng_state(), state)


def test_the_pool_of_images_is_not_touched():
    pool = gray_pool([10, 200], [0, 1])
    RSDA(candidates=2).grow(LightRed(), pool, 1)
    assert len(pool) == 2


def test_a_resumed_run_searches_and_draws_as_an_uninterrupted_one(tmp_path):
    pool, model = gray_pool(range(60, 140), [int(v >= 100) for v in range(60, 140)]), LightRed()
    straight = create_method("rsda", seed=5, candidates=8, interval=10)
    for step in (10, 20):
        straight.grow(model, pool, step)
    torch.save(straight.state_dict(), tmp_path / "state.pt")
    resumed = create_method("rsda", seed=5, candidates=8, interval=10)
    resumed.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    for method in (straight, resumed):
        method.grow(model, pool, 30)
    assert torch.equal(straight.ops, resumed.ops)
    assert torch.equal(straight.levels, resumed.levels)
    assert len(resumed.ops) == 4
    images, labels = torch.rand(4, 3, 4, 4), torch.tensor([0, 1, 0, 1])
    for step in range(30, 40):
        assert torch.equal(*(m.loss(model, Batch(images, labels, step)) for m in (straight, resumed)))


def test_another_seed_searches_elsewhere():
    pool, model = gray_pool(range(60, 140), [int(v >= 100) for v in range(60, 140)]), LightRed()
    found = []
    for seed in (0, 1):
        method = create_method("rsda", seed=seed, candidates=8)
        method.grow(model, pool, 10)
        found.append(method.ops[1].tolist() + method.levels[1].tolist())
    assert found[0] != found[1]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_model_gets_images_of_its_own_dtype(dtype):
    seen = set()

    class Notes(LightRed):
        def features(self, x):
            seen.add(x.dtype)
            return x[:, :1]

    RSDA(candidates=2).grow(Notes().to(dtype), gray_pool([10], [0]), 1)
    assert seen == {dtype}


@pytest.mark.parametrize("option", ["interval", "candidates", "tuple_length", "search_images", "search_batch"])
def test_refuses_counts_below_one(option):
    with pytest.raises(InputError, match=f"{option} must be at least 1, not 0"):
        RSDA(**{option: 0})


def test_refuses_unknown_rows():
    with pytest.raises(InputError, match="search_rows must be 'first' or 'even'"):
        RSDA(search_rows="last")


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
