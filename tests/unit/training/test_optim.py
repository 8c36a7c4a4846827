import copy

import pytest
import torch

from asrnorm.config import OptimConfig
from asrnorm.norms import ASRNorm2d, BatchInstanceNorm
from asrnorm.training.optim import (
    _keep_on_device,
    copy_rates,
    create_optimizer,
    draw_rates,
    load_optimizer,
    optimizer_state,
    rate_factor,
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
    config = OptimConfig(lr=0.5, schedule="cosine", gate_lr=10.0)
    model = ToyNet(norm_layer=BatchInstanceNorm)
    one, other = (create_optimizer(model, config) for _ in range(2))
    _keep_on_device(other)
    for number in range(4):
        set_rate(one, config, number, 4)
        copy_rates(other, draw_rates(other, config, number, 4))
        assert [float(group["lr"]) for group in other.param_groups] == pytest.approx(
            [g["lr"] for g in one.param_groups]
        )
