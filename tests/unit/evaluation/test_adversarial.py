"""Accuracy under attack: which attacks run with which settings, and that stronger ones leave less."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from asrnorm.core.distributed import World
from asrnorm.core.errors import InputError
from asrnorm.evaluation import ATTACKS, SemanticAscent, SignedSteps, score, score_attacks
from asrnorm.models import Classifier
from helpers.toy_suite import make_images


class Quarters(Classifier):
    """Takes the brightest quarter for the class, which is right for the toy images."""

    def __init__(self):
        super().__init__()
        self.num_classes = 4
        self.scale = nn.Parameter(torch.tensor(20.0))
        self.dropout = nn.Dropout()

    def features(self, images):
        return self.dropout(nn.functional.adaptive_avg_pool2d(images, 2))

    def embed(self, maps):
        return maps.mean(1).flatten(1)

    def classify(self, embedding):
        return self.scale * embedding


@pytest.fixture
def calls(monkeypatch):
    """Attacks that only note how they were called, and blacken every image."""
    noted = []

    def perturb(model, images, labels, *, epsilon, step_size, steps, random_start, generator):
        draw = torch.rand(1, generator=generator).item()
        noted.append(SimpleNamespace(**{name: value for name, value in locals().items() if name != "model"}))
        assert not model.training
        return torch.zeros_like(images)

    class Ascent:
        def __init__(self, **settings):
            self.settings = settings

        def ascend(self, model, images, labels):
            assert not model.training
            noted.append(SimpleNamespace(images=images, labels=labels, **self.settings))
            return torch.zeros_like(images)

    monkeypatch.setattr("asrnorm.evaluation.attacks.perturb", perturb)
    monkeypatch.setattr("asrnorm.evaluation.attacks.Ascent", Ascent)
    return noted


def test_the_grid_of_the_facts(calls):
    found = score_attacks(Quarters(), make_images(8), batch_size=8)
    names = ["fgsm-0.5", "fgsm-1", "fgsm-2", "fgsm-8", "pgd10-0.5", "pgd10-1", "pgd10-2", "pgd10-8"]
    assert list(found) == [*names, "ada25-1", "ada25-20"]
    assert [attack.name for attack in ATTACKS] == list(found)
    signed = [(call.epsilon * 255, call.step_size * 255, call.steps, call.random_start) for call in calls[:8]]
    wanted = [(e, e, 1, False) for e in (0.5, 1, 2, 8)] + [(e, e / 4, 10, True) for e in (0.5, 1, 2, 8)]
    assert signed == [pytest.approx(row) for row in wanted]
    assert [(call.lr, call.steps, call.penalty) for call in calls[8:]] == [(1 / 32, 25, 1.0), (20 / 32, 25, 1.0)]
    assert all(call.reduction == "sample" and call.clip and call.batch == 8 for call in calls[8:])
    assert all(value == 0.25 for value in found.values())  # black images: the first class, for want of a brightest


def test_attacks_see_images_in_the_unit_range_and_their_labels(calls):
    data = make_images(6)
    score_attacks(Quarters(), data, attacks=ATTACKS[:1], batch_size=6)
    (call,) = calls
    assert call.images.dtype == torch.float32
    assert (255 * call.images).round().byte().permute(0, 2, 3, 1).numpy().tolist() == data.images.tolist()
    assert call.labels.tolist() == data.labels.tolist()
    assert not call.images.is_inference()


def test_random_starts_differ_by_batch_and_attack_and_repeat_by_seed(calls):
    def draws(**options):
        calls.clear()
        score_attacks(Quarters(), make_images(6), attacks=(SignedSteps(1, 10), SignedSteps(2, 10)), **options)
        return [call.draw for call in calls]

    first = draws(batch_size=3)
    assert len(set(first)) == 4
    assert draws(batch_size=3) == first
    assert not set(draws(batch_size=3, seed=1)) & set(first)


def test_processes_attack_the_batches_of_one(calls):
    class Half(World):
        def sum(self, tensor):
            return tensor

    data, attack = make_images(9), (SignedSteps(1, 10),)
    alone = score_attacks(Quarters(), data, attacks=attack, batch_size=2)
    draws = [call.draw for call in calls]
    calls.clear()
    parts = [score_attacks(Quarters(), data, attacks=attack, batch_size=2, world=Half(rank, 2)) for rank in range(2)]
    assert [call.draw for call in calls] == draws
    assert sum(part["pgd10-1"] for part in parts) == pytest.approx(alone["pgd10-1"])


def test_the_model_is_left_as_it_was(calls):
    model = Quarters().train()
    score_attacks(model, make_images(4))
    assert model.training
    assert model.dropout.training
    assert all(parameter.grad is None for parameter in model.parameters())


def test_what_cannot_be_attacked_is_refused(calls):
    model = Quarters()
    with pytest.raises(InputError, match="'mnist' has no images"):
        score_attacks(model, make_images(0), name="mnist")
    model.classify = lambda embedding: embedding[:, :3]
    with pytest.raises(InputError, match="'mnist' has the label 3; the model knows 0 to 2"):
        score_attacks(model, make_images(4), name="mnist")


def test_real_attacks_leave_less_the_stronger_they_are():
    """A margin of some levels between quarters: half a level changes nothing, many change all."""
    model, data = Quarters(), make_images(40)
    clean = score(model, data, name="toy").accuracy
    attacks = (*ATTACKS, SignedSteps(64, 1), SignedSteps(64, 10), SemanticAscent(lr=1000, penalty=0))
    found = score_attacks(model, data, attacks=attacks, batch_size=16)
    assert clean == 1.0
    for family in ("fgsm", "pgd10"):
        levels = [found[f"{family}-{level}"] for level in ("0.5", "1", "2", "8", "64")]
        assert clean >= levels[0] >= levels[1] >= levels[2] >= levels[3] >= levels[4]
        assert levels[4] == 0.0
    assert found["ada25-1"] >= found["ada25-20"] >= found["ada25-1000"]
    assert found["ada25-1000"] < 0.5
    assert score_attacks(model, data, attacks=ATTACKS[-2:], batch_size=7) == {
        name: found[name] for name in ("ada25-1", "ada25-20")
    }


def test_a_plain_network_is_attacked_without_the_ascents_which_look_inside():
    torch.manual_seed(0)
    network = nn.Sequential(nn.Flatten(), nn.Linear(192, 4))
    data = make_images(8)
    found = score_attacks(network, data)
    assert list(found) == [attack.name for attack in ATTACKS if isinstance(attack, SignedSteps)]
    with pytest.raises(
        InputError, match="attack 'ada25-1' looks inside the network, and Sequential has no features, em"
    ):
        score_attacks(network, data, attacks=[SemanticAscent()])
    with pytest.raises(InputError, match="the model knows 0 to 0"):
        score_attacks(nn.Sequential(nn.Flatten(), nn.Linear(192, 1)), data)
