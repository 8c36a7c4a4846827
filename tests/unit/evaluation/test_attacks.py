"""Accuracy under attack: the settings of each attack, its graphs, and that stronger attacks leave less."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from asrnorm import create_model
from asrnorm.core.distributed import World
from asrnorm.core.errors import InputError
from asrnorm.evaluation import ATTACKS, SignedSteps, score, score_attacks
from asrnorm.evaluation.attacks import Attacker, SemanticAscent
from asrnorm.evaluation.inference import Inference
from asrnorm.methods import ascent as ascent_graph
from asrnorm.methods import attacks as attack_graph
from asrnorm.methods import keyed_generator
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
    with pytest.raises(InputError, match=r"'mnist' .* 3\b"):
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
    with pytest.raises(InputError, match=r"'ada25-1' .* Sequential lacks: features"):
        score_attacks(network, data, attacks=[SemanticAscent()])
    with pytest.raises(InputError):
        score_attacks(nn.Sequential(nn.Flatten(), nn.Linear(192, 1)), data)


CHOSEN = (SignedSteps(8, 1), SignedSteps(2, 10), SignedSteps(8, 10), SemanticAscent(lr=20, steps=4))


class StandIn:
    """A graph that calls its function when it is replayed."""

    made: list["StandIn"]

    def __init__(self, function, changed):
        kept = [value.detach().clone() for value in changed]
        function()
        with torch.no_grad():
            for value, before in zip(changed, kept, strict=True):
                value.copy_(before)
        self.function, self.replays = function, 0
        StandIn.made.append(self)

    def replay(self):
        self.replays += 1
        with torch.enable_grad():
            self.function()


@pytest.fixture
def graphs(monkeypatch):
    StandIn.made = []
    for module in (attack_graph, ascent_graph):
        monkeypatch.setattr(
            module, "capture", lambda function, device, *, changed=(), what: StandIn(function, list(changed))
        )
    return StandIn.made


def attack_all(model, attacker, batches, device="cpu"):
    for number, (images, labels) in enumerate(batches):
        for attack in CHOSEN:
            draws = [keyed_generator(0, number, attack.name, device=torch.device(device)) for _ in range(2)]
            found = attacker.apply(attack, images, labels, draws[0])
            yield found, attack.apply(model, images, labels, draws[1]), images


def make(norm="asr", sizes=(6, 6, 4), device="cpu"):
    torch.manual_seed(0)
    model = create_model("digits_convnet", norm=norm, channels=(4, 8), hidden=16).to(device).eval()
    batches = [(torch.rand(n, 3, 32, 32, device=device), torch.randint(10, (n,), device=device)) for n in sizes]
    return model, batches


def test_replayed_steps_give_the_images_of_the_attacks(graphs):
    model, batches = make()
    attacker = Attacker(model, replace(Inference.of(model), device=torch.device("cuda")))
    for found, wanted, images in attack_all(model, attacker, batches):
        assert torch.equal(found, wanted)
        assert not torch.equal(found, images)
    # One pair for all signed steps, one for the ascent; the last batch has another size.
    assert [graph.replays for graph in graphs] == [2 * 3 * 2, 2 * (1 + 10 + 10), 2, 2 * 4]
    assert all(parameter.grad is None for parameter in model.parameters())


def test_on_a_cpu_and_with_hooks_nothing_is_captured(graphs):
    model, batches = make()
    attackers = [Attacker(model, Inference.of(model))]
    model.conv1.register_forward_hook(lambda *_: None)
    attackers.append(Attacker(model, replace(Inference.of(model), device=torch.device("cuda"))))
    for attacker in attackers:
        assert all(torch.equal(found, wanted) for found, wanted, _ in attack_all(model, attacker, batches[:1]))
    assert graphs == []


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore")  # of operations without a deterministic form
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("norm", ["bn", "asr", "bn_test"])
def test_a_gpu_gives_the_images_of_eager_attacks(norm, precision):
    model, batches = make(norm, device="cuda")
    inference = Inference.of(model, precision=precision)
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        with inference.autocast():
            attacker = Attacker(model, inference)
            for found, wanted, _ in attack_all(model, attacker, batches, "cuda"):
                # A sign may turn where a gradient is almost nothing; casts that autocast keeps round otherwise.
                assert (found != wanted).float().mean() < (0.001 if precision == "float32" else 0.2)
    finally:
        torch.use_deterministic_algorithms(False)
    assert attacker._signed is not None
    assert attacker._signed._step is not None
