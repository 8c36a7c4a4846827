"""A pretrained network is prepared on source images at the start of a run, once, by the seed alone."""

import dataclasses
import json
from importlib import import_module

import pytest
import torch

from asrnorm.core.config import OptimConfig
from asrnorm.core.errors import ConversionError, InputError
from asrnorm.data.pool import Pool
from asrnorm.training import run
from asrnorm.training.assembly import build_model, prepare_model
from asrnorm.training.batches import Batches
from helpers.tiny_run import Choice, ToySuite, pretrained_config, tiny_config, write_weights

CPU = torch.device("cpu")
STATIC = ("gamma_bias", "beta_bias")


@pytest.fixture
def weights(tmp_path):
    return write_weights(tmp_path / "weights.pt")


def prepared(config):
    suite = ToySuite()
    model = build_model(config, suite, 3, CPU)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    prepare_model(model, config, Pool(suite.train))
    return model, before


@pytest.mark.parametrize("options", [{}, {"calibrate": 2}, {"reestimate": 2}, {"calibrate": 2, "reestimate": 2}])
def test_only_what_is_asked_for_is_changed(options, weights):
    config = pretrained_config(weights, **{"calibrate": 0, "reestimate": 0, **options})
    model, before = prepared(config)
    changed = {name for name, value in model.state_dict().items() if not torch.equal(value, before[name])}
    expected = {f"backbone.norm.{name}" for name in STATIC if "calibrate" in options}
    running = ("running_mean", "running_var", "num_batches_tracked")
    expected |= {f"backbone.norm.{name}" for name in running if "reestimate" in options}
    assert changed == expected
    assert model.training


def test_the_images_are_those_of_the_first_steps_as_training_augments_them(weights):
    config = pretrained_config(weights, calibrate=0, reestimate=2, augment="cifar", seed=4)
    model, _ = prepared(config)
    batches = Batches(Pool(ToySuite().train), batch_size=16, seed=4, augment="cifar")
    with torch.no_grad():
        maps = [model.backbone.conv((batches.fetch(step).images - model.mean) / model.std) for step in range(2)]
    mean = torch.stack([x.mean((0, 2, 3)) for x in maps]).mean(0)
    torch.testing.assert_close(model.get_buffer("backbone.norm.running_mean"), mean)


def test_a_fresh_run_is_prepared_and_a_resumed_one_is_not(weights, tmp_path, monkeypatch):
    config = pretrained_config(weights, steps=6, checkpoint_every=3)
    calls = []
    module = import_module("asrnorm.training.run")  # the package has a function of that name
    prepare = module.prepare_model
    monkeypatch.setattr(module, "prepare_model", lambda *arguments: (calls.append(1), prepare(*arguments)))
    result = run(config, tmp_path / "a")
    (tmp_path / "a" / "result.json").unlink()
    (tmp_path / "a" / "checkpoints" / "last.pt").unlink()  # the previous one is of step 3
    assert run(config, tmp_path / "a").average_accuracy == result.average_accuracy
    assert len(calls) == 1


def test_the_first_steps_leave_the_pretrained_part_alone(weights, tmp_path):
    config = pretrained_config(weights, steps=5, checkpoint_every=4, log_every=1)
    run(config, tmp_path / "a")
    store = torch.load(tmp_path / "a" / "checkpoints" / "previous.pt", weights_only=True)["model"]
    pretrained = torch.load(weights, weights_only=True)
    assert torch.equal(store["backbone.conv.weight"], pretrained["conv.weight"])
    assert not torch.equal(store["backbone.head.weight"], pretrained["head.weight"])
    rows = [json.loads(line) for line in (tmp_path / "a" / "log.jsonl").read_text().splitlines()]
    assert [row["lr"] for row in rows] == pytest.approx([0.05 / 3, 0.1 / 3, 0.05, 0.05, 0.05])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"weights": None}, "calibrate needs a pretrained network"),
        ({"norm": Choice(name="bn")}, "calibrate needs a pretrained network"),
        ({"weights": None, "calibrate": 0}, "norm_warmup_steps lets a pretrained network wait"),
    ],
)
def test_what_has_nothing_to_act_on_is_refused_before_a_folder_is_made(changes, message, weights, tmp_path):
    with pytest.raises(InputError, match=message):
        run(dataclasses.replace(pretrained_config(weights), **changes), tmp_path / "a")
    assert not (tmp_path / "a").exists()


def test_no_running_statistics_to_estimate_is_an_error(tmp_path):
    with pytest.raises(ConversionError, match="no norm that keeps running statistics"):
        run(tiny_config(norm=Choice(name="asr"), optim=OptimConfig(), reestimate=1), tmp_path / "a")
