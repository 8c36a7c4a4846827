"""Captured steps: on the CPU with a stand-in for the graph, which calls the function; on a GPU the graph itself."""

import dataclasses
import json
import logging
import os
from functools import partial

import pytest
import torch
from torch import nn

from asrnorm import graph
from asrnorm.config import OptimConfig
from asrnorm.data.pool import Pool
from asrnorm.methods import Method
from asrnorm.training import capture as capture_module
from asrnorm.training.assembly import build_method, build_model
from asrnorm.training.capture import CapturedSteps
from asrnorm.training.checkpoint import CheckpointStore
from asrnorm.training.log import RunLog
from asrnorm.training.optim import _keep_on_device
from asrnorm.training.trainer import Trainer
from asrnorm.world import ALONE
from helpers.tiny_run import Choice, ToyNet, ToySuite, pretrained_config, small_method, tiny_config, write_weights

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read when CUDA is first used
CPU, CUDA = torch.device("cpu"), torch.device("cuda", 0)
STEPS = 40


def make(config, device=CPU, stop=None):
    suite = ToySuite(**config.suite.args)
    model, method = build_model(config, suite, 3, device), build_method(config, device, ALONE)
    return Trainer(config, model, method, Pool(suite.train, device), world=ALONE, stop=stop or config.steps)


def fit(trainer, folder):
    store = CheckpointStore(folder / "checkpoints", folder / "pool", trainer.config)
    trainer.fit(store, partial(RunLog, folder / "log.jsonl", None), "toy")
    return trainer


def outcome(trainer, folder):
    """All that a run leaves behind, but the time it took."""
    rows = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    for row in rows:
        row.pop("seconds", None)
    tensors = {f"model.{name}": value for name, value in trainer.model.state_dict().items()}
    for index, (images, labels) in enumerate(trainer.pool.parts):
        tensors |= {f"pool.{index}.images": images, f"pool.{index}.labels": labels}
    for index, state in trainer.optimizer.state_dict()["state"].items():
        tensors |= {f"optimizer.{index}.{name}": value for name, value in state.items()}
    return rows, tensors


def assert_equal(one, other):
    assert one[0] == other[0]
    assert set(one[1]) == set(other[1])
    differing = [name for name, value in one[1].items() if not torch.equal(value, other[1][name])]
    assert not differing


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

    run = capture_module.CapturedStep.run

    def noted(self, step, count):
        done = run(self, step, count)
        windows.append((step, done[1]))
        return done

    monkeypatch.setattr(capture_module, "capture", stay)
    monkeypatch.setattr(capture_module.CapturedStep, "run", noted)
    monkeypatch.setattr(torch.cuda, "Event", Instant)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: None)
    monkeypatch.setattr(torch.cuda, "default_generators", {None: Offset()})
    return windows


def captured(trainer):
    _keep_on_device(trainer.optimizer)
    parts = (trainer.config, trainer.model, trainer.method, trainer.optimizer, trainer.batches)
    trainer._captured = CapturedSteps(*parts, trainer.update, trainer._loss_sum, trainer._seed_layers)
    trainer._careful_until = 0
    return trainer


# Rates that float32 holds exactly: a window keeps them in it.
def plain_config(method, **changes):
    optim = OptimConfig(lr=0.0625, weight_decay=2**-13, schedule="step", step_at=0.5, step_factor=0.5)
    base = {"method": small_method(method), "optim": optim, "steps": STEPS, "log_every": 5, "checkpoint_every": 8}
    return tiny_config(**{**base, **changes})


# On the CPU rsc and pgd draw by the step itself, which a window does not know.
@pytest.mark.parametrize(
    ("method", "augment"), [("erm", "pacs"), ("ada", "cifar"), ("rsda", "none"), ("rda", "cifar"), ("esda", "none")]
)
def test_steps_of_a_window_are_the_steps_themselves(method, augment, stand_in, tmp_path):
    config = plain_config(method, augment=augment, model=Choice(name="toy_net", args={"dropout": 0.5}))
    plain = outcome(fit(make(config), tmp_path / "plain"), tmp_path / "plain")
    assert_equal(outcome(fit(captured(make(config)), tmp_path / "window"), tmp_path / "window"), plain)
    assert max(count for _, count in stand_in) > 1


def test_after_a_bad_loss_that_does_not_come_again_steps_are_captured_again(stand_in, tmp_path, monkeypatch):
    config = plain_config("erm")
    plain = outcome(fit(make(config), tmp_path / "plain"), tmp_path / "plain")
    trainer, bad = captured(make(config)), []
    went_wrong = trainer._went_wrong

    def once():
        if trainer.step < 10 or bad:
            return went_wrong()
        bad.append(trainer.step)
        return True

    monkeypatch.setattr(trainer, "_went_wrong", once)
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


def test_a_loss_of_its_own_is_captured_only_where_the_class_says_so():
    class Silent(Method):
        def loss(self, model, batch):
            return model(batch.images).sum()

    class Saying(Silent):
        capturable = True

        def loss(self, model, batch):
            return 2 * super().loss(model, batch)

    class Inheriting(Saying):
        def draw(self, step, size):  # noqa: ARG002
            return {}

    assert (Method.capturable, Silent.capturable, Saying.capturable, Inheriting.capturable) == (True, False, True, True)


def test_nothing_is_captured_without_a_gpu():
    trainer = make(tiny_config())
    assert trainer._captured is None
    assert not trainer.method.capture


@pytest.fixture
def deterministic():
    torch.use_deterministic_algorithms(True, warn_only=True)
    yield
    torch.use_deterministic_algorithms(False)


METHODS = ["erm", "ada", "me_ada", "rsda", "rda", "esda", "rsc", "pgd", "m_ada"]
adam = OptimConfig(name="adam", lr=1e-2, schedule="cosine")


def gpu_config(name, **changes):
    values = {"device": "cuda", "method": small_method(name), "steps": STEPS, "log_every": 9, "checkpoint_every": 20}
    return tiny_config(**{**values, **changes})


def compare(config, tmp_path, expect_capture=True):
    """Train with and without capture, and with a stop in between; all to the bit the same."""
    outcomes = []
    for name in ("plain", "captured", "stopped"):
        chosen = dataclasses.replace(config, capture=name != "plain")
        if name == "stopped":
            fit(make(chosen, CUDA, stop=13), tmp_path / name)
        trainer = fit(make(chosen, CUDA), tmp_path / name)
        assert (trainer._captured is not None and trainer._captured._step is not None) == (
            name != "plain" and expect_capture
        )
        outcomes.append(outcome(trainer, tmp_path / name))
    assert_equal(outcomes[1], outcomes[0])
    assert_equal((None, outcomes[2][1]), (None, outcomes[0][1]))


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore")
@pytest.mark.usefixtures("deterministic")
class TestOnTheDevice:
    @pytest.mark.parametrize("method", METHODS)
    @pytest.mark.parametrize("norm", ["bn", "asr"])
    def test_captured_steps_are_the_steps_themselves(self, method, norm, tmp_path):
        config = gpu_config(method, norm=Choice(name=norm), augment="cifar")
        compare(config, tmp_path, expect_capture=method != "m_ada")

    @pytest.mark.parametrize("augment", ["none", "pacs"])
    @pytest.mark.parametrize("precision", ["float32", "bfloat16", "float64"])
    def test_every_precision_and_augmentation(self, augment, precision, tmp_path):
        compare(gpu_config("ada", augment=augment, precision=precision, optim=adam), tmp_path)

    @pytest.mark.parametrize("method", ["erm", "rsc", "pgd"])
    def test_layers_that_draw(self, method, tmp_path):
        compare(gpu_config(method, model=Choice(name="toy_net", args={"dropout": 0.5})), tmp_path)

    @pytest.mark.parametrize(
        ("method", "options"),
        [
            ("rsc", {"version": "v3", "interval": 8}),
            ("rsc", {"spatial_chance": 1.0, "batch_share": 1.0}),
            ("ada", {"ascent_optimizer": "adam", "ascent_lr": 0.1, "quantize": True}),
            ("ada", {"ascent_batch": 7, "growth": "me_ada", "clip": True}),
            ("pgd", {"random_start": False}),
        ],
    )
    def test_options(self, method, options, tmp_path):
        choice = small_method(method)
        compare(gpu_config(method, method=Choice(name=method, args={**choice.args, **options})), tmp_path)

    def test_groups_with_rates_of_their_own(self, tmp_path):
        compare(gpu_config("erm", norm=Choice(name="bin"), optim=OptimConfig(lr=0.05, nesterov=True)), tmp_path)

    @pytest.mark.parametrize("name", ["sgd", "adam"])
    def test_groups_that_wait_and_warm_up(self, name, tmp_path):
        config = pretrained_config(write_weights(tmp_path / "w.pt"), device="cuda", steps=STEPS, log_every=9)
        compare(dataclasses.replace(config, optim=dataclasses.replace(config.optim, name=name)), tmp_path)

    def test_a_pool_smaller_than_a_batch(self, tmp_path):
        compare(gpu_config("ada", batch_size=100), tmp_path)

    @pytest.mark.parametrize("method", ["erm", "ada", "rsda", "rda", "rsc", "pgd"])
    def test_a_window_waits_for_nothing(self, method):
        trainer = make(gpu_config(method, log_every=1000, checkpoint_every=1000, lambda_every=0, augment="pacs"), CUDA)
        trainer.model.train()
        for _ in range(2):
            trainer._advance()
        torch.cuda.set_sync_debug_mode("error")
        try:
            before = trainer.step
            trainer._captured.run(trainer.step, 40)
        finally:
            torch.cuda.set_sync_debug_mode("default")
        assert before > 1

    @pytest.mark.parametrize("fault", ["reads", "draws"])
    def test_a_network_that_cannot_be_captured_trains_without(self, fault, tmp_path, caplog, monkeypatch):
        features = ToyNet.features

        def faulty(self, x):
            return features(self, x) * (1 + 0 * (x.mean().item() if fault == "reads" else torch.rand(()).item()))

        monkeypatch.setattr(ToyNet, "features", faulty)
        with caplog.at_level(logging.WARNING, "asrnorm"):
            layers_draw = Choice(name="toy_net", args={"dropout": 0.5})
            compare(gpu_config("erm", model=layers_draw), tmp_path, expect_capture=False)
        lines = [record.getMessage() for record in caplog.records]
        assert len(lines) == 3  # one a trainer that captures
        assert all("the training step is not captured as a CUDA graph" in line for line in lines)

    def test_a_run_begun_on_the_cpu_goes_on_on_the_device_and_back(self, tmp_path):
        for optim in (adam, OptimConfig(lr=0.05)):
            folder = tmp_path / optim.name
            fit(make(gpu_config("ada", optim=optim), CPU, stop=5), folder)
            fit(make(gpu_config("ada", optim=optim), CUDA, stop=20), folder)
            trainer = fit(make(gpu_config("ada", optim=optim), CPU), folder)
            assert trainer.step == STEPS
            assert all(value.isfinite().all() for value in trainer.model.state_dict().values())

    def test_what_a_capture_changes_is_put_back(self):
        layer = nn.BatchNorm1d(3).to(CUDA)
        x = torch.rand(4, 3, device=CUDA)
        before = {name: value.clone() for name, value in layer.state_dict().items()}
        captured = graph.capture(lambda: layer(x), CUDA, changed=[*layer.buffers()])
        assert all(torch.equal(value, before[name]) for name, value in layer.state_dict().items())
        captured.replay()
        assert int(layer.num_batches_tracked) == 1
        assert torch.equal(captured.output, nn.BatchNorm1d(3).to(CUDA)(x))
