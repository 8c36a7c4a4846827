import dataclasses
import errno
import json
import os
import signal
import threading
from importlib import import_module

import numpy as np
import pytest
import torch

from asrnorm import storage
from asrnorm.config import run_name
from asrnorm.errors import (
    DivergenceError,
    InputError,
    InputTypeError,
    InterruptedRunError,
    StorageError,
    UnknownNameError,
)
from asrnorm.norms import NORMS
from asrnorm.results import read_result
from asrnorm.training import load_run, run
from asrnorm.training.checkpoint import CheckpointStore
from helpers import tiny_run
from helpers.tiny_run import Choice, ToySuite, logged_steps, tiny_config

run_module = import_module("asrnorm.training.run")  # the package has a function of that name


def model_bytes(folder):
    return (folder / "model.safetensors").read_bytes()


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


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_after_a_checkpoint_and_the_run_goes_on_to_the_same_end(tmp_path, number, monkeypatch):
    config = tiny_config(method=Choice(name="toy_grow"), checkpoint_every=1000)
    run(config, tmp_path / "whole")
    loss = tiny_run.ToyGrow.loss

    def interrupted(method, model, batch):
        if batch.step == 16:
            os.kill(os.getpid(), number)
        return loss(method, model, batch)

    with monkeypatch.context() as patch:
        patch.setattr(tiny_run.ToyGrow, "loss", interrupted)
        with pytest.raises(InterruptedRunError, match="step 17 of 30"):
            run(config, tmp_path / "a")
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    run(config, tmp_path / "a")
    assert model_bytes(tmp_path / "a") == model_bytes(tmp_path / "whole")
    assert logged_steps(tmp_path / "a") == logged_steps(tmp_path / "whole")


def test_a_signal_in_the_last_step_of_the_choice_stops_before_the_second_training(tmp_path, monkeypatch):
    config = tiny_config(
        steps=8, suite=Choice(name="toy", args={"validation": False}), selection="source-val", evaluate_every=4
    )
    run(config, tmp_path / "whole")
    loss = tiny_run.Method.loss

    def interrupted(method, model, batch):
        if batch.step == 7:
            os.kill(os.getpid(), signal.SIGTERM)
        return loss(method, model, batch)

    with monkeypatch.context() as patch:
        patch.setattr(tiny_run.Method, "loss", interrupted)
        with pytest.raises(InterruptedRunError, match="was chosen; started again, the run goes on"):
            run(config, tmp_path / "a")
    assert not (tmp_path / "a" / "log.jsonl").exists()
    run(config, tmp_path / "a")
    assert model_bytes(tmp_path / "a") == model_bytes(tmp_path / "whole")


@pytest.mark.parametrize("method", ["erm", "ada"])
@pytest.mark.parametrize("lost", ["model.safetensors", "result.json"])
def test_what_a_finished_run_has_lost_is_made_again_although_its_grown_images_are_gone(tmp_path, method, lost):
    config = tiny_config(steps=10, method=tiny_run.small_method(method))
    run(config, tmp_path)
    before, result = model_bytes(tmp_path), json.loads((tmp_path / "result.json").read_text())
    assert not list((tmp_path / "pool").glob("*"))
    if lost == "result.json":
        (tmp_path / lost).write_text('{"schema": 1')
    else:
        (tmp_path / lost).unlink()
    again = run(config, tmp_path)
    assert model_bytes(tmp_path) == before
    assert again.average_accuracy == result["average_accuracy"]


@pytest.mark.parametrize(("kept", "steps"), [(True, [0, 8, 15, 22, 30]), (False, [0, 30])])
def test_a_checkpoint_follows_growing_that_takes_long(tmp_path, monkeypatch, kept, steps):
    saved = []
    save = CheckpointStore.save
    monkeypatch.setattr(
        CheckpointStore, "save", lambda store, state, pool: saved.append(state["step"]) or save(store, state, pool)
    )
    monkeypatch.setattr(tiny_run.ToyGrow, "keeps_growth", kept)
    run(tiny_config(method=Choice(name="toy_grow", args={"interval": 7, "rounds": 3}), checkpoint_every=1000), tmp_path)
    assert saved == steps


def test_a_checkpoint_is_written_with_a_row_where_the_last_is_old(tmp_path, monkeypatch):
    saved = []
    save = CheckpointStore.save
    monkeypatch.setattr(CheckpointStore, "save", lambda *words: saved.append(words[1]["step"]) or save(*words))
    monkeypatch.setattr("asrnorm.training.checkpoint._MOST_LOST", 0.0)
    run(tiny_config(checkpoint_every=1000, log_every=7, lambda_every=0, steps=30), tmp_path)
    assert saved == [0, 7, 14, 21, 28, 30]


def test_runs_work_in_a_thread_where_no_signal_can_be_caught(tmp_path):
    results = []
    thread = threading.Thread(target=lambda: results.append(run(tiny_config(steps=2), tmp_path / "a")))
    thread.start()
    thread.join()
    assert results[0].steps == 2


def test_a_loss_that_is_not_finite_names_step_and_layer_and_keeps_the_checkpoint(tmp_path):
    config = tiny_config(method=Choice(name="toy_noise", args={"bad_step": 12}))
    with pytest.raises(DivergenceError, match=r"step 13: the loss is (nan|inf).*layer 'backbone\.h") as caught:
        run(config, tmp_path / "a")
    assert "\n" not in str(caught.value)
    kept = torch.load(tmp_path / "a" / "checkpoints" / "last.pt", weights_only=True)
    assert kept["step"] == 10
    assert all(value.isfinite().all() for value in kept["model"].values())
    assert not (tmp_path / "a" / "result.json").exists()
    assert json.loads((tmp_path / "a" / "divergence.json").read_text()) == {"schema": 1, "message": str(caught.value)}


def test_a_run_that_comes_to_an_end_has_not_diverged(tmp_path):
    run(tiny_config(steps=2), tmp_path / "a")
    (tmp_path / "a" / "result.json").unlink()
    (tmp_path / "a" / "divergence.json").write_text("{}")
    run(tiny_config(steps=2), tmp_path / "a")
    assert not (tmp_path / "a" / "divergence.json").exists()


def test_a_full_disk_is_one_line_and_the_run_goes_on_when_there_is_room(tmp_path, monkeypatch):
    config = tiny_config(method=Choice(name="toy_grow"))
    run(config, tmp_path / "whole")
    real, calls = os.fsync, []

    def full(handle):
        calls.append(handle)
        if len(calls) > 12:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(handle)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(StorageError, match="the disk is full; free some space"):
            run(config, tmp_path / "a")
    assert not list((tmp_path / "a").rglob("*.tmp*"))
    run(config, tmp_path / "a")
    assert model_bytes(tmp_path / "a") == model_bytes(tmp_path / "whole")
    assert logged_steps(tmp_path / "a") == logged_steps(tmp_path / "whole")


def test_a_disk_that_is_full_at_the_result_says_so_once(tmp_path, monkeypatch):
    def full(path):
        if "result.json" in path.name:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(storage, "sync_file", full)
    with pytest.raises(StorageError) as caught:
        run(tiny_config(steps=2), tmp_path / "a")
    assert str(caught.value).startswith(f"{tmp_path / 'a' / 'result.json'}: the disk is full; free some space")
    assert str(caught.value).count("result.json") == 1
    assert not (tmp_path / "a" / "result.json").exists()


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
    assert "a batch is all of them" in caplog.text
