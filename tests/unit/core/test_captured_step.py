"""`asrnorm.capture` on the CPU: the plain function there, and with fake graphs all that a replay must get right."""

import logging
import random

import numpy as np
import pytest
import torch
from torch import nn
from torch.optim import SGD, Adam, AdamW
from torch.optim.lr_scheduler import CosineAnnealingLR, ExponentialLR, OneCycleLR

import asrnorm
from asrnorm import ops
from asrnorm.core import captured_step
from helpers.fake_graph import use_fake_graphs
from helpers.own_loop import Loop, assert_same, make_batches, make_model


@pytest.fixture
def graphs(monkeypatch):
    with ops.use_backend("reference"):  # the recording of a fake graph traces, which leads to it
        yield use_fake_graphs(monkeypatch)


def rate(device="cpu"):
    return torch.tensor(0.05, device=device)


def sgd(parameters):
    return SGD(parameters, lr=rate(), momentum=0.9, weight_decay=1e-3, nesterov=True, fused=True)


def adamw(parameters):
    return AdamW(parameters, lr=rate(), fused=True)


def test_without_a_gpu_it_is_the_plain_function(caplog):
    plain, other = Loop(lambda p: SGD(p, lr=0.1)), Loop(lambda p: SGD(p, lr=0.1))
    with caplog.at_level(logging.WARNING, "asrnorm"):
        step = other.capture()
    assert_same(other.train(step), plain.train(plain.step))
    assert step.reason == "it runs on cpu"
    assert len(caplog.records) == 1
    assert other.optimizer.param_groups[0]["fused"] is None


def test_a_network_is_called_without_gradients():
    model = make_model("cpu").eval()
    images = torch.rand(2, 3, 8, 8)
    assert torch.equal(asrnorm.capture(model, images)(images), model(images))
    assert not asrnorm.capture(model, images)(images).requires_grad


@pytest.mark.parametrize("make_optimizer", [sgd, adamw])
@pytest.mark.parametrize(
    "options", [{}, {"clip": 0.5, "scale": 2.0**127}, {"scale": 2.0**127}, {"autocast": torch.bfloat16}]
)
def test_the_steps_are_those_of_the_plain_loop(graphs, make_optimizer, options):
    plain, other = Loop(make_optimizer, **options), Loop(make_optimizer, **options)
    step = other.capture()
    assert_same(other.train(step), plain.train(plain.step))
    assert step.reason is None
    assert len(graphs) == 1


@pytest.mark.parametrize("make_optimizer", [lambda p: SGD(p, lr=0.05, momentum=0.9), lambda p: Adam(p, lr=1e-3)])
def test_an_optimizer_of_plain_numbers_takes_the_same_steps(graphs, make_optimizer):
    plain, other = Loop(make_optimizer), Loop(make_optimizer)
    step = other.capture()
    for one, two in zip(plain.train(plain.step)[1].values(), other.train(step)[1].values(), strict=True):
        torch.testing.assert_close(one, two)
    assert step.reason is None
    assert isinstance(other.optimizer.param_groups[0]["lr"], float)


@pytest.mark.parametrize(
    "schedule",
    [
        lambda optimizer: ExponentialLR(optimizer, 0.9),
        lambda optimizer: CosineAnnealingLR(optimizer, 20),
        lambda optimizer: OneCycleLR(optimizer, 0.1, 20, cycle_momentum=False),
    ],
)
@pytest.mark.parametrize("make_optimizer", [lambda p: SGD(p, lr=0.05, fused=True), lambda p: Adam(p, fused=True)])
def test_learning_rates_may_change_between_steps(graphs, schedule, make_optimizer):
    plain, other = Loop(make_optimizer), Loop(make_optimizer)
    step = other.capture()
    expected = plain.train(plain.step, scheduler=schedule(plain.optimizer))
    found = other.train(step, scheduler=schedule(other.optimizer))
    for one, two in zip(expected[1].values(), found[1].values(), strict=True):
        torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-5)
    assert len(graphs) == 1
    assert [group["lr"] for group in other.optimizer.param_groups] == [g["lr"] for g in plain.optimizer.param_groups]


def test_settings_that_change_every_step_are_no_settings_of_one_graph(graphs):
    plain, other = (Loop(lambda p: Adam(p, lr=rate(), fused=True)) for _ in range(2))
    step = other.capture()
    expected = plain.train(plain.step, scheduler=OneCycleLR(plain.optimizer, 0.1, 20))
    assert_same(other.train(step, scheduler=OneCycleLR(other.optimizer, 0.1, 20)), expected)
    assert not graphs


def test_a_rate_that_is_ignored_would_show(graphs):
    loop = Loop(lambda p: SGD(p, lr=0.05))
    step = loop.capture()
    for number, batch in enumerate(make_batches("cpu")):
        if number == 10:
            loop.optimizer.param_groups[0]["lr"] = 0.0
            weight = loop.model[0].weight.detach().clone()
        step(batch)
    assert graphs
    assert torch.equal(loop.model[0].weight, weight)


def test_other_shapes_and_modes_are_recorded_on_their_own(graphs):
    plain, other = Loop(sgd), Loop(sgd)
    step = other.capture()
    assert_same(other.train(step, sizes=(8, 8, 4)), plain.train(plain.step, sizes=(8, 8, 4)))
    assert len(graphs) == 2
    for loop, take in ((plain, plain.step), (other, step)):
        loop.model.eval()
        loop.train(take)
    assert_same(plain.model.state_dict(), other.model.state_dict())
    assert len(graphs) == 3


def test_more_kinds_than_it_keeps_run_plainly(graphs, caplog, monkeypatch):
    monkeypatch.setattr(captured_step, "_MOST_KINDS", 3)
    plain, other = Loop(sgd), Loop(sgd)
    step = other.capture()
    with caplog.at_level(logging.WARNING, "asrnorm"):
        assert_same(other.train(step, sizes=(8, 4, 2, 6)), plain.train(plain.step, sizes=(8, 4, 2, 6)))
    assert step.reason is None
    assert len(graphs) == 2
    assert len(caplog.records) == 1


def test_results_may_be_kept(graphs):
    loop = Loop(sgd)
    kept, copies = [], []
    step = loop.capture()
    for batch in make_batches("cpu"):
        kept.append(step(batch))
        copies.append({name: value.clone() for name, value in kept[-1].items()})
    assert_same(kept, copies)
    assert not any(value.requires_grad for result in kept for value in result.values())


class Accumulating(Loop):
    """Adds up the gradients of several batches; the loop outside clips and updates."""

    def micro_step(self, batch):
        loss = nn.functional.cross_entropy(self.model(batch["images"]), batch["target"][0])
        loss.backward()
        return loss.detach()

    def train_with(self, micro_step, set_to_none):
        for number, batch in enumerate(make_batches("cpu")):
            micro_step(batch)
            if number % 4 == 3:
                nn.utils.clip_grad_norm_(self.model.parameters(), 0.1)
                self.optimizer.step()
                self.optimizer.zero_grad(set_to_none=set_to_none)
        return [self.model.state_dict(), [parameter.grad for parameter in self.model.parameters()]]


@pytest.mark.parametrize("set_to_none", [True, False])
def test_gradients_add_up_over_calls(graphs, set_to_none):
    plain, other = Accumulating(sgd), Accumulating(sgd)
    micro_step = asrnorm.capture(other.micro_step, next(make_batches("cpu")), model=other.model)
    assert_same(other.train_with(micro_step, set_to_none), plain.train_with(plain.micro_step, set_to_none))
    assert micro_step.reason is None
    assert len(graphs) == 1 + set_to_none


def test_gradients_from_outside_are_kept(graphs):
    outcomes = []
    for is_captured in (True, False):
        loop = Accumulating(sgd)
        batches = list(make_batches("cpu"))
        take = asrnorm.capture(loop.micro_step, batches[0], model=loop.model) if is_captured else loop.micro_step
        for batch in batches:
            loop.optimizer.zero_grad(set_to_none=False)
            for parameter in loop.model.parameters():
                parameter.grad = torch.ones_like(parameter)
            take(batch)
        outcomes.append([parameter.grad for parameter in loop.model.parameters()])
    assert graphs
    assert_same(*outcomes)


def test_a_frozen_layer_stays_and_a_thawed_one_trains(graphs):
    outcomes = []
    for is_captured in (True, False):
        loop = Loop(lambda p: SGD(p, lr=0.01, momentum=0.9))
        step = loop.capture() if is_captured else loop.step
        loop.model[0].requires_grad_(False)
        loop.train(step)
        loop.model[0].requires_grad_(True)
        loop.train(step)
        outcomes.append(loop.model.state_dict().values())
    assert len(graphs) == 2
    for one, two in zip(*outcomes, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-5)


def test_a_loaded_state_is_used(graphs):
    plain, other = Loop(adamw), Loop(adamw)
    saved = plain.optimizer.state_dict()
    step = other.capture()
    for loop, take in ((plain, plain.step), (other, step)):
        loop.train(take)
        saved = loop.optimizer.state_dict()
        loop.train(take)
        loop.optimizer.load_state_dict(saved)
    assert_same(other.train(step), plain.train(plain.step))
    assert len(graphs) == 2


def test_an_evaluation_is_replayed_with_the_weights_of_the_moment(graphs):
    loop = Loop(sgd)
    evaluate = asrnorm.capture(loop.model.eval(), torch.rand(8, 3, 8, 8))
    for batch in make_batches("cpu"):
        loop.step(batch)
        with torch.no_grad():
            assert torch.equal(evaluate(batch["images"]), loop.model(batch["images"]))
    assert len(graphs) == 1


def faulty(fault):
    loop = Loop(sgd)
    scheduler = ExponentialLR(loop.optimizer, 0.9)
    lottery = {"torch": torch.rand, "python": lambda _: random.random(), "numpy": lambda _: np.random.rand()}

    def step(batch):
        result = loop.step(batch)
        if fault == "scheduler":
            scheduler.step()
        if fault in lottery:
            lottery[fault](1)
        return result

    return loop, step


@pytest.mark.parametrize("fault", ["scheduler", "torch", "python", "numpy"])
def test_what_a_replay_cannot_repeat_runs_plainly(graphs, caplog, fault):
    loop, step = faulty(fault)
    other, other_step = faulty(fault)
    batch = next(make_batches("cpu"))
    captured = asrnorm.capture(other_step, batch, model=other.model, optimizer=other.optimizer)
    with caplog.at_level(logging.WARNING, "asrnorm"):
        other.train(captured)
    loop.train(step)
    for one, two in zip(loop.model.parameters(), other.model.parameters(), strict=True):
        torch.testing.assert_close(one, two)
    assert captured.reason is not None
    assert not graphs
    assert len(caplog.records) == 1


@pytest.mark.parametrize(
    ("inputs", "reason"),
    [
        ((np.zeros(2),), "ndarray"),
        ((torch.zeros(2, device="meta"),), "an input is on meta"),
        ((torch.zeros(2, requires_grad=True),), "requires gradients"),
    ],
)
def test_inputs_that_a_graph_cannot_take(graphs, inputs, reason):
    model = nn.Linear(2, 2)
    step = asrnorm.capture(lambda value: 1, *inputs, model=model)
    assert reason in step.reason
    assert step(*inputs) == 1


def test_optimizers_that_a_graph_cannot_take(graphs):
    model = nn.Linear(2, 2)
    for optimizer in (torch.optim.LBFGS(model.parameters()), SGD(model.parameters(), momentum=0.9, dampening=0.1)):
        assert "no capturable form" in asrnorm.capture(model.zero_grad, optimizer=optimizer).reason


def test_an_error_of_the_function_is_the_users(graphs):
    loop = Loop(sgd)
    step = loop.capture()
    with pytest.raises(KeyError):
        step({})
    loop.train(step)
    assert len(graphs) == 1


def test_a_result_with_a_graph_is_handed_out_as_it_is(graphs):
    loop = Loop(sgd)
    step = asrnorm.capture(lambda images: loop.model(images).sum(), torch.rand(2, 3, 8, 8), model=loop.model)
    for _ in range(4):
        step(torch.rand(2, 3, 8, 8)).backward()
    assert "requires gradients" in step.reason


def test_a_call_that_waits_or_draws_once_does_not_decide(graphs):
    plain, other = Loop(sgd), Loop(sgd)
    calls = []

    def step(batch):
        calls.append(random.random() if len(calls) < 2 else None)
        return other.step(batch)

    captured = asrnorm.capture(step, next(make_batches("cpu")), model=other.model, optimizer=other.optimizer)
    assert_same(other.train(captured), plain.train(plain.step))
    assert captured.reason is None
    assert len(graphs) == 1


def test_a_failed_recording_leaves_the_step_to_the_plain_function(monkeypatch, caplog):
    use_fake_graphs(monkeypatch)

    def record(function, stream):
        for parameter in other.model.parameters():
            parameter.grad = None
        raise RuntimeError("not permitted when stream is capturing")

    monkeypatch.setattr(captured_step, "record", record)
    plain, other = Loop(sgd), Loop(sgd)
    step = other.capture()
    with caplog.at_level(logging.WARNING, "asrnorm"):
        assert_same(other.train(step), plain.train(plain.step))
    assert "capturing" in step.reason
    assert len(caplog.records) == 1
