"""Captured steps on a GPU, to the bit those that are not."""

import dataclasses
import logging
import os

import pytest
import torch
from torch import nn

from asrnorm.core import cuda_graph as graph
from asrnorm.core.config import OptimConfig
from helpers.captured_run import CPU, CUDA, STEPS, assert_equal, fit, make, outcome
from helpers.tiny_run import Choice, ToyNet, pretrained_config, small_method, small_run, tiny_config, write_weights

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read when CUDA is first used

STRONG = [
    "pacs",
    "photometric",
    "affine",
    "edges",
    "randconv",
    "pro_randconv",
    "augmix",
    "fourier",
    "noise",
    "blur",
    "pixelate",
]


@pytest.fixture
def deterministic():
    torch.use_deterministic_algorithms(True, warn_only=True)
    yield
    torch.use_deterministic_algorithms(False)


METHODS = ["erm", "ada", "me_ada", "rsda", "rda", "esda", "rsc", "pgd", "m_ada", "jigen", "st", "cutout", "dropblock"]
METHODS += ["adversarial_dropout", "ccsa", "dsne", "ttt", "consistency", "metareg"]
adam = OptimConfig(name="adam", lr=1e-2, schedule="cosine")


def gpu_config(name, **changes):
    values = {"device": "cuda", **small_run(name), "steps": STEPS, "log_every": 9, "checkpoint_every": 20}
    return tiny_config(**{**values, **changes})


def compare(config, tmp_path, expect_capture=True):
    """Train with and without capture, and with a stop in between; all to the bit the same."""
    outcomes = []
    for name in ("plain", "captured", "stopped"):
        chosen = dataclasses.replace(config, capture=name != "plain")
        if name == "stopped":
            fit(make(chosen, CUDA, stop=13), tmp_path / name)
        trainer = fit(make(chosen, CUDA), tmp_path / name)
        assert (trainer._captured is not None and trainer._captured._graph is not None) == (
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

    @pytest.mark.parametrize("augment", ["none", "pacs", STRONG])
    @pytest.mark.parametrize("precision", ["float32", "bfloat16", "float64"])
    def test_every_precision_and_augmentation(self, augment, precision, tmp_path):
        compare(gpu_config("ada", augment=augment, precision=precision, optim=adam), tmp_path)

    @pytest.mark.parametrize("average", ["ema", "swa", "swad"])
    def test_averages(self, average, tmp_path):
        compare(gpu_config("ada", average=Choice(name=average), evaluate_every=10), tmp_path)

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
            trainer._captured.run(trainer.step, 40, trainer.update, trainer._seed_layers)
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

    def test_a_run_moves_from_the_cpu_to_the_device_and_back(self, tmp_path):
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
