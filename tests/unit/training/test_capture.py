import weakref

import pytest
import torch

from asrnorm.core.config import OptimConfig
from asrnorm.training import capture as capture_module
from asrnorm.training.capture import CapturedSteps, DrawTable
from asrnorm.training.optim import _keep_on_device
from helpers.captured_run import STEPS, assert_equal, fit, make, outcome
from helpers.tiny_run import Choice, pretrained_config, small_method, tiny_config, write_weights


class StandIn:
    """What `capture` returns where there is no GPU: a replay calls the function."""

    def __init__(self, function):
        self._function, self.output = function, None

    def replay(self):
        self.output = self._function()


class Instant:
    def __init__(self, enable_timing=False): ...

    def record(self, stream=None): ...

    def synchronize(self): ...

    def query(self):
        return False  # the device is at work still

    def elapsed_time(self, other):  # noqa: ARG002
        return 50.0  # milliseconds: windows of a few steps


class Offset:
    def get_offset(self):
        return 16  # as if layers drew


@pytest.fixture
def stand_in(monkeypatch):
    """Capture on the CPU; returns the lengths of the windows."""
    windows = []

    def stay(function, device, *, changed=(), what=""):
        kept = [tensor.detach().clone() for tensor in changed]
        function()
        with torch.no_grad():
            for tensor, value in zip(changed, kept, strict=True):
                tensor.copy_(value)
        return StandIn(function)

    run = CapturedSteps.run

    def noted(self, step, *others):
        done = run(self, step, *others)
        windows.append((step, done[1]))
        return done

    monkeypatch.setattr(capture_module, "capture", stay)
    monkeypatch.setattr(CapturedSteps, "run", noted)
    monkeypatch.setattr(torch.cuda, "Event", Instant)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: None)
    monkeypatch.setattr(torch.cuda, "default_generators", {None: Offset()})
    return windows


def captured(trainer):
    _keep_on_device(trainer.optimizer)
    parts = (trainer.config, trainer.model, trainer.method, trainer.optimizer, trainer.batches)
    trainer._captured = CapturedSteps(*parts, trainer._loss_sum, trainer.average)
    trainer._careful_until = 0
    return trainer


# Rates that float32 holds exactly: a window keeps them in it.
def plain_config(method, **changes):
    optim = OptimConfig(lr=0.0625, weight_decay=2**-13, schedule="step", step_at=0.5, step_factor=0.5)
    base = {"method": small_method(method), "optim": optim, "steps": STEPS, "log_every": 5, "checkpoint_every": 8}
    return tiny_config(**{**base, **changes})


# On the CPU rsc and pgd draw by the step itself, which a window does not know.
@pytest.mark.parametrize(
    ("method", "augment"),
    [
        ("erm", "pacs"),
        ("ada", "cifar"),
        ("rsda", "none"),
        ("rda", "cifar"),
        ("esda", "none"),
        ("consistency", ["cifar", {"name": "photometric", "share": 0.5}, "fourier", "noise"]),
    ],
)
def test_steps_of_a_window_are_the_steps_themselves(method, augment, stand_in, tmp_path):
    config = plain_config(method, augment=augment, model=Choice(name="toy_net", args={"dropout": 0.5}))
    plain = outcome(fit(make(config), tmp_path / "plain"), tmp_path / "plain")
    assert_equal(outcome(fit(captured(make(config)), tmp_path / "window"), tmp_path / "window"), plain)
    assert max(count for _, count in stand_in) > 1


@pytest.mark.parametrize("name", ["ema", "swa", "swad"])
def test_averages_of_a_window_are_the_averages_themselves(name, stand_in, tmp_path):
    config = plain_config("rsda", average=Choice(name=name), evaluate_every=10)
    plain = outcome(fit(make(config), tmp_path / "plain"), tmp_path / "plain")
    assert_equal(outcome(fit(captured(make(config)), tmp_path / "window"), tmp_path / "window"), plain)
    assert max(count for _, count in stand_in) > 1


def test_after_a_bad_loss_that_does_not_come_again_steps_are_captured_again(stand_in, tmp_path, monkeypatch):
    config = plain_config("erm")
    plain = outcome(fit(make(config), tmp_path / "plain"), tmp_path / "plain")
    trainer, bad = captured(make(config)), []
    is_diverged = trainer._is_diverged

    def once():
        if trainer.step < 10 or bad:
            return is_diverged()
        bad.append(trainer.step)
        return True

    monkeypatch.setattr(trainer, "_is_diverged", once)
    assert_equal(outcome(fit(trainer, tmp_path / "window"), tmp_path / "window"), plain)
    first, again = [step for step, _ in stand_in if step < bad[0]], [step for step, _ in stand_in if step >= bad[0]]
    assert bad == [10]
    assert len(first) == len(set(first))  # the way back to it goes step by step
    assert again


def test_groups_that_wait_and_warm_up_in_a_window_are_where_they_would_be(stand_in, tmp_path):
    # Three steps of warm-up, so that every rate is a quarter that float32 holds exactly.
    optim = OptimConfig(lr=0.0625, warmup_steps=3, norm_warmup_steps=5, norm_lr=2, head_lr=4, decay_networks=False)
    every = {"log_every": 20, "checkpoint_every": 20}
    config = pretrained_config(write_weights(tmp_path / "w.pt"), optim=optim, steps=20, **every)
    plain = outcome(fit(make(config), tmp_path / "plain"), tmp_path / "plain")
    assert_equal(outcome(fit(captured(make(config)), tmp_path / "window"), tmp_path / "window"), plain)
    assert any(step < 5 < step + count for step, count in stand_in)


def test_windows_end_where_something_else_is_due(stand_in, tmp_path):
    fit(captured(make(plain_config("rsda", lambda_every=0))), tmp_path)
    ends = {step + count for step, count in stand_in}
    assert {5, 7, 8, 10, 14, 15, 16, 20, 21, 22, 40} <= ends  # rows, checkpoints, and before and after each growing
    steps = [number for step, count in stand_in for number in range(step, step + count)]
    assert steps == list(range(STEPS))


@pytest.mark.parametrize(
    ("idle", "lengths"), [(False, [8, 8, 16, 32, 64, 72]), (True, [8] * 25)], ids=["at work", "waiting"]
)
def test_windows_begin_short_where_the_device_waits_and_grow_where_it_does_not(
    idle, lengths, stand_in, monkeypatch, tmp_path
):
    monkeypatch.setattr(Instant, "query", lambda self: idle)
    monkeypatch.setattr(Instant, "elapsed_time", lambda self, other: 0.1)
    config = plain_config("erm", steps=200, log_every=200, checkpoint_every=200, lambda_every=0)
    fit(captured(make(config)), tmp_path)
    assert [count for _, count in stand_in] == lengths


@pytest.mark.parametrize("stop", [3, 7, 8, 13])
def test_stopping_inside_a_window_and_going_on_changes_nothing(stop, stand_in, tmp_path):
    config = plain_config("ada", checkpoint_every=100, log_every=20)
    whole = outcome(fit(captured(make(config)), tmp_path / "whole"), tmp_path / "whole")
    fit(captured(make(config, stop=stop)), tmp_path / "parts")
    again = outcome(fit(captured(make(config)), tmp_path / "parts"), tmp_path / "parts")
    assert_equal((None, again[1]), (None, whole[1]))
    assert stand_in


@pytest.mark.usefixtures("stand_in")
def test_captured_steps_do_not_keep_their_trainer(tmp_path):
    trainer = fit(captured(make(plain_config("ada"))), tmp_path)
    steps, trainer = trainer._captured, weakref.ref(trainer)
    assert steps._graph is not None
    del steps._graph  # the stand-in keeps the function
    assert trainer() is None


def test_nothing_is_captured_without_a_gpu():
    trainer = make(tiny_config())
    assert trainer._captured is None
    assert not trainer.method.capture


CPU = torch.device("cpu")


def row(number):
    return {
        "rows": torch.arange(5) + number,
        "flip": torch.arange(3) == number,
        "factors": torch.full((2, 3), number / 3, dtype=torch.float64),
        "rate": torch.tensor(number / 7, dtype=torch.float32),
        "nothing": torch.zeros(0, 2),
    }


def test_every_row_comes_back_as_it_was_window_after_window():
    table = DrawTable(row(0), 4, CPU)
    for first, count in ((0, 4), (4, 2), (6, 4), (10, 1)):
        rows = [row(first + number) for number in range(count)]
        table.write(rows)
        for number, expected in enumerate(rows):
            found = table.read(torch.tensor([number]))
            assert found.keys() == expected.keys()
            for name, value in expected.items():
                assert found[name].dtype == value.dtype
                assert torch.equal(found[name], value), name
