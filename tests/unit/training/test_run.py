import dataclasses
import json
from importlib import import_module

import numpy as np
import pytest
import torch

from asrnorm.core.config import run_name
from asrnorm.core.errors import (
    InputError,
    InputTypeError,
    StorageError,
    UnknownNameError,
)
from asrnorm.core.results import read_result
from asrnorm.norms import NORMS
from asrnorm.training import load_run, run
from helpers.tiny_run import Choice, ToySuite, logged_steps, model_bytes, tiny_config

run_module = import_module("asrnorm.training.run")  # the package has a function of that name


def test_a_run_leaves_what_the_contract_says(tmp_path):
    result = run(tiny_config(norm=Choice(name="asr")), tmp_path / "a")
    names = {path.name for path in (tmp_path / "a").iterdir() if not path.name.startswith(".")}
    assert {"config.yaml", "env.json", "log.jsonl", "checkpoints", "model.safetensors", "result.json"} <= names
    assert read_result(tmp_path / "a" / "result.json") == result
    assert [domain.name for domain in result.domains] == ["dark", "noisy"]
    assert result.steps == 30
    assert result.num_parameters == sum(p.numel() for p in load_run(tmp_path / "a").model.parameters())
    environment = json.loads((tmp_path / "a" / "env.json").read_text())
    assert environment["commit"] == result.commit
    assert environment["torch"] == torch.__version__
    assert logged_steps(tmp_path / "a") == list(range(2, 31, 2))
    rows = [json.loads(line) for line in (tmp_path / "a" / "log.jsonl").read_text().splitlines()]
    assert rows[4]["lambdas"]["backbone.norm"].keys() == {"lambda_mu", "lambda_sigma"}
    assert rows[0]["lr"] > rows[-1]["lr"]


def test_the_default_folder_is_named_by_recipe_seed_and_hash(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = tiny_config(steps=2, seed=3)
    run(config)
    (folder,) = (tmp_path / "runs").iterdir()
    assert folder.name == run_name(config)
    assert folder.name.startswith("toy.erm_bn--s3--")


def test_the_same_config_gives_the_same_bytes_and_another_seed_does_not(tmp_path):
    config = tiny_config(
        method=Choice(name="toy_noise"), augment="cifar", model=Choice(name="toy_net", args={"dropout": 0.3})
    )
    torch.manual_seed(1)
    run(config, tmp_path / "a")
    torch.manual_seed(2)
    run(config, tmp_path / "b")
    run(dataclasses.replace(config, seed=1), tmp_path / "c")
    assert model_bytes(tmp_path / "a") == model_bytes(tmp_path / "b")
    assert model_bytes(tmp_path / "a") != model_bytes(tmp_path / "c")


def test_the_callers_generator_is_left_alone(tmp_path):
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    run(tiny_config(steps=2), tmp_path / "a")
    assert torch.equal(torch.rand(1), expected)


def test_a_finished_run_is_returned_without_touching_the_data(tmp_path, monkeypatch):
    config = tiny_config(steps=2)
    result = run(config, tmp_path / "a")
    monkeypatch.setattr(ToySuite, "load_train", lambda suite: pytest.fail("the data was loaded"))
    assert run(config, tmp_path / "a") == result


def test_fresh_starts_over_and_leaves_other_files(tmp_path):
    config = tiny_config(steps=2)
    run(config, tmp_path / "a")
    (tmp_path / "a" / "notes.txt").write_text("mine")
    before = (tmp_path / "a" / "result.json").stat().st_mtime_ns
    run(dataclasses.replace(config, seed=1), tmp_path / "a", fresh=True)
    assert (tmp_path / "a" / "notes.txt").read_text() == "mine"
    assert (tmp_path / "a" / "result.json").stat().st_mtime_ns > before
    assert read_result(tmp_path / "a" / "result.json").seed == 1


def test_the_folder_of_another_run_is_refused_by_the_field_that_differs(tmp_path):
    run(tiny_config(steps=2), tmp_path / "a")
    with pytest.raises(InputError, match="batch_size: 8 here, 16 there"):
        run(tiny_config(steps=2, batch_size=8), tmp_path / "a")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"suite": Choice(name="toi")}, "unknown suite 'toi'"),
        ({"norm": Choice(name="asrr")}, "did you mean 'asr'"),
        ({"norm": Choice(name="asr", args={"stan_ration": 2})}, "stan_ratio"),
        ({"model": Choice(name="toy_net", args={"widht": 2})}, "width"),
        ({"method": Choice(name="erm", args={"rounds": 2})}, "rounds"),
    ],
)
def test_every_choice_is_checked_before_a_folder_is_made(tmp_path, changes, message):
    with pytest.raises(UnknownNameError, match=message):
        run(tiny_config(**changes), tmp_path / "a")
    assert not (tmp_path / "a").exists()


def test_a_loaded_run_classifies_as_the_run_did(tmp_path):
    result = run(tiny_config(norm=Choice(name="asr", args={"gated_rescale": True})), tmp_path / "a")
    loaded = load_run(tmp_path / "a", device="cpu")
    assert not loaded.model.training
    assert loaded.classes == ToySuite.classes
    data = loaded.suite.source_test
    with torch.no_grad():
        guess = loaded.model(torch.from_numpy(data.images).permute(0, 3, 1, 2).float() / 255).argmax(1)
    assert float((guess.numpy() == data.labels).mean()) == pytest.approx(result.source.accuracy)


def test_a_run_that_is_not_done_cannot_be_loaded(tmp_path):
    with pytest.raises(InputError, match="no such config"):
        load_run(tmp_path)


@pytest.mark.parametrize(
    ("norm", "layers", "count"),
    [("asr", "first", 1), ("asr", "auto", 10), ("bn_test", "auto", 20)],
)
def test_a_converted_network_loads_without_the_file_it_started_from(tmp_path, norm, layers, count):
    from asrnorm.models import create_model

    network = create_model("resnet18", num_classes=3)
    for module in network.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            torch.nn.init.uniform_(module.weight)
    weights = tmp_path / "weights.pt"
    torch.save(network.state_dict(), weights)
    config = tiny_config(
        model=Choice(name="resnet18"),
        norm=Choice(name=norm),
        weights=str(weights),
        layers=layers,
        steps=1,
        batch_size=4,
        suite=Choice(name="toy", args={"count": 8}),
    )
    result = run(config, tmp_path / "a")
    weights.unlink()
    model = load_run(tmp_path / "a", device="cpu").model
    assert sum(p.numel() for p in model.parameters()) == result.num_parameters
    assert sum(type(module) is NORMS[norm] for module in model.modules()) == count
    assert norm != "asr" or model.get_submodule("backbone.bn1").gated_rescale


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="choose another --out"):
        run(tiny_config(steps=2), tmp_path / "file" / "a")


def test_a_result_says_how_the_model_does_on_validation_images(tmp_path):
    result = run(tiny_config(steps=2), tmp_path / "a")
    assert set(result.validation) == {"source-val", "shifted-val"}
    loaded = load_run(tmp_path / "a", device="cpu")
    images = torch.from_numpy(loaded.suite.validation.images.copy()).permute(0, 3, 1, 2).float() / 255
    right = loaded.model(images).argmax(1).numpy() == loaded.suite.validation.labels
    assert result.validation["source-val"] == pytest.approx(right.mean())
    none = Choice(name="toy", args={"validation": False})
    assert not run(tiny_config(steps=2, suite=none), tmp_path / "b").validation


def test_a_run_with_a_fold_scores_no_target_and_leaves_out_the_other_half(tmp_path, monkeypatch):
    def refuse(self, name):
        raise AssertionError("a target was loaded")

    monkeypatch.setattr(ToySuite, "load_target", refuse)
    noisy = ["photometric", {"name": "noise", "share": 1.0}]
    results = {
        (fold, str(augment)): run(tiny_config(steps=2, fold=fold, augment=augment), tmp_path / f"{fold}-{len(augment)}")
        for fold in ("values", "structure")
        for augment in (noisy, "none")
    }
    for result in results.values():
        assert (result.domains, result.missing) == ((), ())
        assert set(result.validation) == {"source-val", "shifted-val"}
    weights = {(fold, name): result.weights_sha256 for (fold, name), result in results.items()}
    assert weights["values", str(noisy)] != weights["values", "none"]
    none = Choice(name="toy", args={"validation": False})
    with pytest.raises(InputError):
        run(tiny_config(steps=2, suite=none, fold="values"), tmp_path / "none")


@pytest.mark.parametrize(
    "changes",
    [
        {"selection": "oracle", "evaluate_every": 1},
        {"selection": "source-val", "evaluate_every": 1},
        {"fold": "structure", "method": Choice(name="rsda")},
        {"fold": "structure", "method": Choice(name="consistency", args={"over": {"name": "rsda"}})},
    ],
)
def test_a_fold_and_what_it_contradicts_are_refused(tmp_path, changes):
    with pytest.raises(InputError):
        run(tiny_config(**{"fold": "values", **changes}), tmp_path / "run")


@pytest.mark.parametrize("rule", ["source-val", "shifted-val", "oracle"])
def test_the_best_weights_by_the_rule_are_reported(tmp_path, rule, monkeypatch):
    scores = iter([0.1, 0.8, 0.8, 0.3])
    monkeypatch.setattr(run_module, "create_measure", lambda *arguments: lambda model: next(scores))
    result = run(tiny_config(selection=rule, evaluate_every=8), tmp_path / "a")
    assert (result.selection, result.steps) == (rule, 16)
    run(dataclasses.replace(tiny_config(), steps=30), tmp_path / "plain")
    kept = torch.load(tmp_path / "a" / "checkpoints" / "last.pt", weights_only=True)
    reported = load_run(tmp_path / "a", device="cpu").model.state_dict()
    assert all(torch.equal(reported[name], value) for name, value in kept["selection"]["weights"].items())
    assert any(not torch.equal(reported[name], value) for name, value in kept["model"].items())


def test_without_a_validation_split_images_are_held_out_to_choose_and_given_back(tmp_path, monkeypatch):
    scores = iter([0.1, 0.8, 0.3, 0.2])
    monkeypatch.setattr(run_module, "create_measure", lambda *arguments: lambda model: next(scores))
    suite = Choice(name="toy", args={"validation": False})
    result = run(tiny_config(suite=suite, selection="source-val", evaluate_every=8), tmp_path / "a")
    assert result.steps == 16
    choice = json.loads((tmp_path / "a" / "choice" / "choice.json").read_text())
    assert (choice["step"], choice["held_out"]) == (16, 10)
    first, second = ((tmp_path / "a" / place / "log.jsonl").read_text().splitlines() for place in ("choice", "."))
    assert {json.loads(line)["pool"] for line in first if "pool" in line} == {86}
    assert {json.loads(line)["pool"] for line in second} == {96}
    assert logged_steps(tmp_path / "a")[-1] == 16


def test_a_selection_without_evaluations_is_refused(tmp_path):
    config = tiny_config(steps=4, selection="oracle", evaluate_every=0)
    with pytest.raises(InputError, match=r"selection=oracle chooses among evaluations, and evaluate_every=0 makes no"):
        run(config, tmp_path / "a")
    assert not (tmp_path / "a").exists()


def test_float64_and_bfloat16_run(tmp_path):
    run(tiny_config(steps=3, precision="float64", norm=Choice(name="asr")), tmp_path / "a")
    assert load_run(tmp_path / "a", device="cpu").model.get_submodule("backbone.conv").weight.dtype == torch.float64
    result = run(tiny_config(steps=3, precision="bfloat16"), tmp_path / "b")
    assert np.isfinite(result.average_accuracy)


def test_what_is_no_config_is_one_line():
    with pytest.raises(InputTypeError, match=r"train takes a config, such as asrnorm\.recipe\('digits\.rsda_asr'\)"):
        run("digits_mini.erm_bn")


def test_a_batch_larger_than_the_source_is_told_of(tmp_path, caplog):
    run(tiny_config(steps=1, batch_size=10_000), tmp_path / "a")
    assert "batch_size is 10000" in caplog.text
