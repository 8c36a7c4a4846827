"""Attacks replayed from graphs: the same images as without."""

from dataclasses import replace

import pytest
import torch

from asrnorm import create_model
from asrnorm.evaluation import SemanticAscent, SignedSteps
from asrnorm.evaluation.attacks import Attacker
from asrnorm.evaluation.inference import Inference
from asrnorm.methods import ascent as ascent_graph
from asrnorm.methods import attacks as attack_graph
from asrnorm.methods import keyed_generator

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
    assert attacker._signed.is_captured
