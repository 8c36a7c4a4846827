import copy

import pytest
import torch

from asrnorm.conversion import convert
from asrnorm.core.config import OptimConfig
from asrnorm.core.errors import InputError
from asrnorm.core.schedule import rate_factor
from asrnorm.norms import ASRNorm2d, BatchInstanceNorm, BatchNorm
from asrnorm.training.optim import (
    _keep_on_device,
    copy_rates,
    create_optimizer,
    draw_rates,
    load_optimizer,
    optimizer_state,
    set_rate,
)
from helpers.tiny_run import ToyNet


def groups_of(norm, **changes):
    model = ToyNet(norm_layer=norm)
    optimizer = create_optimizer(model, OptimConfig(weight_decay=0.1, **changes))
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    found = [({names[id(p)] for p in group["params"]}, group) for group in optimizer.param_groups]
    assert set().union(*(own for own, _ in found)) == set(names.values())
    assert sum(len(own) for own, _ in found) == len(names)
    return found, optimizer


def test_lambdas_decay_with_the_rest_unless_told_otherwise():
    assert len(groups_of(ASRNorm2d)[0]) == 1
    (_, rest), (own, spared) = groups_of(lambda c: ASRNorm2d(c, gated_rescale=True), decay_lambdas=False)[0]
    assert own == {f"norm.lambda_{name}" for name in ("mu", "sigma", "beta", "gamma")}
    assert (rest["weight_decay"], spared["weight_decay"]) == (0.1, 0.0)


def test_lambdas_may_have_a_rate_of_their_own():
    found, optimizer = groups_of(lambda c: ASRNorm2d(c, gated_rescale=True), lr=0.2, lambda_lr=100.0)
    set_rate(optimizer, OptimConfig(lr=0.2), 0, 10)
    (_, rest), (own, freed) = found
    assert own == {f"norm.lambda_{name}" for name in ("mu", "sigma", "beta", "gamma")}
    assert (rest["lr"], freed["lr"]) == pytest.approx((0.2, 20.0))


def test_small_networks_and_head_have_rates_of_their_own_and_networks_may_be_spared_the_decay():
    changes = {"norm_lr": 3.0, "head_lr": 10.0, "decay_networks": False, "decay_lambdas": False}
    found, optimizer = groups_of(lambda c: ASRNorm2d(c, gated_rescale=True), lr=0.2, **changes)
    set_rate(optimizer, OptimConfig(lr=0.2), 0, 10)
    treated = {name: (round(group["lr"], 6), group["weight_decay"]) for own, group in found for name in own}
    static = {f"norm.{name}" for name in ("gamma_bias", "beta_bias", "lambda_mu", "lambda_gamma")}
    assert {treated[name] for name in static} == {(0.2, 0.0)}
    assert {treated[name] for name in treated if "coder" in name} == {(0.6, 0.0)}
    assert treated["head.weight"] == treated["head.bias"] == (2.0, 0.1)
    assert treated["conv.weight"] == treated["hidden.bias"] == (0.2, 0.1)
    assert len(found) == 4


def test_a_head_that_cannot_be_told_from_the_rest_is_refused():
    with pytest.raises(InputError, match="head_lr: Conv2d has no linear layer with an output for each class"):
        create_optimizer(torch.nn.Conv2d(2, 3, 3), OptimConfig(head_lr=2.0))


@pytest.mark.parametrize("name", ["sgd", "adam"])
@pytest.mark.parametrize("norm", ["asr", "in", "bin"])
def test_what_waits_does_not_move_and_what_is_new_does(name, norm):
    torch.manual_seed(0)
    model = convert(ToyNet(norm_layer=BatchNorm), norm)
    config = OptimConfig(name=name, lr=0.1, weight_decay=0.1, warmup_steps=1, norm_warmup_steps=3)
    optimizer = create_optimizer(model, config)
    start = copy.deepcopy(dict(model.named_parameters()))
    for step in range(5):
        set_rate(optimizer, config, step, 10)
        model(torch.randn(4, 3, 8, 8)).square().sum().backward()
        assert all(parameter.grad is not None for parameter in model.parameters())  # as a captured step has them
        optimizer.step()
        optimizer.zero_grad()
        moved = {key for key, value in model.named_parameters() if not torch.equal(value, start[key])}
        new = {key for key in start if key.startswith(("norm.", "head."))}
        assert moved == (new if step < 3 else set(start))


def test_a_checkpoint_from_before_a_group_could_wait_is_taken_up():
    optimizer = create_optimizer(ToyNet(), OptimConfig())
    state = copy.deepcopy(optimizer_state(optimizer))
    for group in state["param_groups"]:
        del group["waits"]
    load_optimizer(optimizer, state)
    set_rate(optimizer, OptimConfig(lr=0.5), 0, 10)
    assert [group["lr"] for group in optimizer.param_groups] == [0.5]


@pytest.mark.parametrize("name", ["sgd", "adam"])
def test_gates_of_bin_learn_faster_and_never_decay(name):
    (_, (own, gates)), optimizer = groups_of(BatchInstanceNorm, name=name, gate_lr=10.0, lr=0.2)
    assert own == {"norm.gate"}
    assert gates["weight_decay"] == 0.0
    set_rate(optimizer, OptimConfig(name=name, lr=0.2, schedule="step", step_at=0.5), 5, 10)
    assert [group["lr"] for group in optimizer.param_groups] == pytest.approx([0.02, 0.2])


def test_sgd_takes_momentum_and_nesterov():
    optimizer = create_optimizer(ToyNet(), OptimConfig(momentum=0.8, nesterov=True))
    assert isinstance(optimizer, torch.optim.SGD)
    assert (optimizer.defaults["momentum"], optimizer.defaults["nesterov"]) == (0.8, True)


def test_frozen_parameters_are_left_out():
    model = ToyNet()
    model.conv.weight.requires_grad_(False)
    optimizer = create_optimizer(model, OptimConfig())
    assert all(p is not model.conv.weight for p in optimizer.param_groups[0]["params"])


def test_schedules():
    step = OptimConfig(schedule="step", step_at=0.8, step_factor=0.1)
    assert [rate_factor(step, at, 30) for at in (0, 23, 24, 29)] == [1.0, 1.0, 0.1, 0.1]
    assert rate_factor(OptimConfig(), 29, 30) == 1.0
    cosine = OptimConfig(schedule="cosine")
    assert rate_factor(cosine, 0, 100) == 1.0
    assert rate_factor(cosine, 99, 100) < 1e-3


@pytest.mark.parametrize("name", ["sgd", "adam"])
def test_state_goes_from_one_kind_of_device_to_the_other_and_back(name):
    def make(on_device):
        torch.manual_seed(0)
        layer = torch.nn.Conv2d(2, 3, 3)
        optimizer = create_optimizer(layer, OptimConfig(name=name, lr=0.5, weight_decay=0.25))
        if on_device:
            layer.to(memory_format=torch.channels_last)
            _keep_on_device(optimizer)
        return layer, optimizer

    def step(layer, optimizer):
        optimizer.zero_grad()
        layer(torch.ones(1, 2, 4, 4)).square().sum().backward()
        optimizer.step()

    straight = make(on_device=False)
    parts = [make(on_device=on_device) for on_device in (False, True, False)]
    for number, (layer, optimizer) in enumerate(parts):
        if number:
            before, other = parts[number - 1]
            layer.load_state_dict(before.state_dict())
            load_optimizer(optimizer, copy.deepcopy(optimizer_state(other)))
        rates = [group["lr"] for group in optimizer.param_groups]
        assert all(isinstance(rate, torch.Tensor) == (number == 1) for rate in rates)
        assert all(isinstance(group["lr"], float) for group in optimizer_state(optimizer)["param_groups"])
        for _ in range(2):
            step(layer, optimizer)
            step(*straight)
    torch.testing.assert_close(parts[-1][0].weight, straight[0].weight)
    for parameter, state in parts[1][1].state.items():
        assert all(value.dim() == 0 or value.stride() == parameter.stride() for value in state.values())


def test_rates_from_the_device_are_those_of_the_schedule():
    config = OptimConfig(
        lr=0.5, schedule="cosine", gate_lr=10.0, warmup_steps=1, norm_warmup_steps=2, norm_lr=3.0, head_lr=2.0
    )
    model = ToyNet(norm_layer=lambda c: torch.nn.Sequential(BatchInstanceNorm(c), ASRNorm2d(c)))
    one, other = (create_optimizer(model, config) for _ in range(2))
    _keep_on_device(other)
    for number in range(4):
        set_rate(one, config, number, 4)
        copy_rates(other, draw_rates(other, config, number, 4))
        assert [float(group["lr"]) for group in other.param_groups] == pytest.approx(
            [g["lr"] for g in one.param_groups]
        )
        assert len(set(draw_rates(one, config, number, 4).tolist())) > 3
