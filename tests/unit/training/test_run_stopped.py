import errno
import json
import os
import signal
import subprocess
import sys
import threading
from importlib import import_module
from pathlib import Path

import pytest
import torch

from asrnorm.core import files as storage
from asrnorm.core.errors import DivergenceError, InterruptedRunError, StorageError
from asrnorm.training import run
from asrnorm.training.checkpoint import CheckpointStore
from helpers import tiny_run
from helpers.tiny_run import Choice, logged_steps, model_bytes, tiny_config

run_module = import_module("asrnorm.training.run")  # the package has a function of that name


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
        with pytest.raises(InterruptedRunError, match="was chosen"):
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
    monkeypatch.setattr(tiny_run.ToyGrow, "checkpoint_after_grow", kept)
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


TESTS = Path(__file__).parents[2]


def test_a_run_that_is_killed_again_and_again_ends_as_one_that_never_was(tmp_path):
    command = [sys.executable, "-m", "helpers.kill_run", str(tmp_path), "40", "75", "0"]
    environment = {
        **os.environ,
        "PYTHONPATH": f"{TESTS.parent / 'src'}:{TESTS}",
        "OMP_NUM_THREADS": "1",
    }
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=170, check=False)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["differing"] == []
    assert sum(report["kills"].values()) >= 20
    assert all(report["kills"].values()), report["kills"]
