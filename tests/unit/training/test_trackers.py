"""Trackers: rows, config and scores arrive once, also over a kill, and a tracker that fails stops nothing."""

import csv
import json
import sys
import threading
from pathlib import Path

import pytest

from asrnorm.cli.main import main
from asrnorm.core.config import content_hash, dump_config
from asrnorm.core.errors import InputTypeError, MissingDependencyError, UnknownNameError
from asrnorm.training import TRACKERS, Tracker, run, train
from asrnorm.training import trackers as module
from asrnorm.training.track import Track
from helpers.tiny_run import Choice, logged_steps, model_bytes, tiny_config

STEPS = list(range(2, 31, 2))


class Recorder(Tracker):
    """Remembers what it is told; raises `error` at a step, or in the method of a name."""

    def __init__(self, error=None, at=None):
        self.told, self.error, self.at = [], error, at

    def _hear(self, name, *what):
        self.told.append((name, *what))
        if self.at in (name, *what):
            raise self.error

    def start(self, track):
        self._hear("start", track.step)

    def write(self, numbers, step):
        self._hear("write", step, dict(numbers))

    def finish(self, result, scores, files):
        self._hear("finish", result, scores, [file.name for file in files])

    def close(self):
        self._hear("close")

    def steps(self):
        return [step for name, step, *_ in (event for event in self.told if len(event) > 1) if name == "write"]


class Rewinding(Recorder):
    rewinds = True


def run_killed_at(step, folder, config=None, **options):
    """Start a run that dies in the row of a step, as if it were killed."""
    killer = Recorder(KeyboardInterrupt(), step)
    others = options.pop("track", [])
    with pytest.raises(KeyboardInterrupt):
        run(config or tiny_config(), folder, track=[killer, *others], **options)


def test_a_tracker_is_told_rows_by_path_then_scores_and_files(tmp_path):
    recorder = Recorder()
    result = train(tiny_config(norm=Choice(name="asr")), out=tmp_path / "a", track=recorder)
    names = [event[0] for event in recorder.told]
    assert names == ["start", *["write"] * 15, "finish", "close"]
    assert recorder.steps() == STEPS
    row = recorder.told[5][2]
    logged = json.loads((tmp_path / "a" / "log.jsonl").read_text().splitlines()[4])
    assert row["loss"] == logged["loss"]
    assert row["lambdas/backbone.norm/lambda_mu"] == logged["lambdas"]["backbone.norm"]["lambda_mu"]
    _, told, scores, files = recorder.told[-2]
    assert told == result
    assert scores["scores/dark/accuracy"] == result.domains[0].accuracy
    assert scores["scores/average_accuracy"] == result.average_accuracy
    assert {"config.yaml", "env.json", "log.jsonl"} <= set(files)


def test_tracking_changes_neither_weights_nor_config_nor_hash(tmp_path):
    config = tiny_config(steps=6)
    plain, tracked = run(config, tmp_path / "a"), run(config, tmp_path / "b", track=["csv", Recorder()])
    assert model_bytes(tmp_path / "a") == model_bytes(tmp_path / "b")
    assert (tmp_path / "b" / "config.yaml").read_text() == dump_config(config)
    assert plain.config_hash == tracked.config_hash == content_hash(config)


def test_a_killed_run_repeats_rows_only_to_trackers_that_replace_them(tmp_path):
    run_killed_at(24, tmp_path)  # rows up to 22 are in the log, the last checkpoint is that of step 20
    once, again = Recorder(), Rewinding()
    run(tiny_config(), tmp_path, track=[once, again])
    assert once.told[0] == again.told[0] == ("start", 20)
    assert once.steps() == [24, 26, 28, 30]
    assert again.steps() == [22, 24, 26, 28, 30]


@pytest.mark.parametrize("at", ["start", 6, "finish", "close"])
def test_a_tracker_that_fails_is_dropped_with_one_warning_and_the_run_goes_on(tmp_path, caplog, at):
    dead, other = Recorder(RuntimeError("server gone\nmore"), at), Rewinding()
    run(tiny_config(), tmp_path, track=[dead, other])
    assert at in dead.told[-1]  # and it is told nothing more
    assert other.steps() == logged_steps(tmp_path) == STEPS
    assert other.told[-1] == ("close",)
    assert [record.getMessage() for record in caplog.records] == [
        "the run goes on without the tracker Recorder: server gone"
    ]


def test_an_error_of_the_run_closes_its_trackers(tmp_path):
    recorder = Rewinding()
    run_killed_at(4, tmp_path, track=[recorder])
    assert recorder.told[-1] == ("close",)


def test_a_finished_run_starts_no_tracker(tmp_path):
    run(tiny_config(steps=2), tmp_path)
    recorder = Recorder()
    run(tiny_config(steps=2), tmp_path, track=recorder)
    assert recorder.told == []


def test_a_first_pass_has_a_track_of_its_own(tmp_path):
    config = tiny_config(
        suite=Choice(name="toy", args={"validation": False}), selection="source-val", evaluate_every=10
    )
    run(config, tmp_path, track="csv")
    assert (tmp_path / "choice" / "tracks" / "log.csv").exists()
    assert (tmp_path / "tracks" / "scores.csv").exists()
    assert not (tmp_path / "choice" / "tracks" / "scores.csv").exists()


def read_csv(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_csv_files_have_a_line_per_step_and_per_domain_also_over_a_kill(tmp_path):
    config = tiny_config(norm=Choice(name="asr"))  # lambdas every tenth step: a column that comes later
    run_killed_at(24, tmp_path, config, track=["csv"])
    result = run(config, tmp_path, track=["csv"])
    lines = read_csv(tmp_path / "tracks" / "log.csv")
    assert [int(line["step"]) for line in lines] == STEPS
    last = json.loads((tmp_path / "log.jsonl").read_text().splitlines()[-1])
    assert float(lines[-1]["loss"]) == last["loss"]
    assert lines[0]["lambdas/backbone.norm/lambda_mu"] == "" != lines[4]["lambdas/backbone.norm/lambda_mu"]
    scores = read_csv(tmp_path / "tracks" / "scores.csv")
    assert [line["name"] for line in scores] == ["plain", "dark", "noisy"]
    assert float(scores[1]["accuracy"]) == result.domains[0].accuracy


def test_fresh_removes_the_tracks(tmp_path):
    run(tiny_config(steps=2), tmp_path, track="csv")
    run(tiny_config(steps=2), tmp_path, fresh=True)
    assert not (tmp_path / "tracks").exists()


def test_a_track_has_the_name_of_its_run_folder():
    names = [Track(Path("runs", *parts), tiny_config(), 0).name for parts in (("a",), ("a", "choice"))]
    assert names == ["a", "a (choosing)"]


def test_a_track_keeps_its_identifier(tmp_path):
    track = Track(tmp_path, tiny_config(), 0)
    assert track.identifier("mine", lambda: "first") == ("first", True)
    assert track.identifier("mine", lambda: "second") == ("first", False)


def test_unknown_and_missing_trackers_are_named_before_anything_is_written(tmp_path, monkeypatch):
    assert {"tensorboard", "csv", "mlflow", "wandb"} <= set(TRACKERS)
    with pytest.raises(UnknownNameError, match="mlflow"):
        run(tiny_config(), tmp_path / "a", track="mlfow")
    with pytest.raises(InputTypeError):
        run(tiny_config(), tmp_path / "a", track=[3])
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(MissingDependencyError, match=r"asrnorm\[wandb\]"):
        run(tiny_config(), tmp_path / "a", track=["csv", "wandb"])
    assert not (tmp_path / "a").exists()


def test_the_command_line_takes_several(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.yaml").write_text(dump_config(tiny_config(steps=2)))
    command = ["train", "--config", "config.yaml", "--out", "run", "--track", "csv", "--track", "tensorboard"]
    assert main(command) == 0, capsys.readouterr().err
    assert (tmp_path / "run" / "tracks" / "log.csv").exists()
    assert main([*command[:5], "--track", "cvs"]) == 2
    assert "did you mean 'csv'" in capsys.readouterr().err


# TensorBoard


class Writer:
    """Stands in for TensorBoard's; its disk is full after some numbers."""

    def __init__(self, room=1000):
        self.told, self.room = [], room

    def add_scalar(self, name, value, step):
        self.told.append((name, value, step))
        if len(self.told) > self.room:
            raise OSError(28, "No space left on device")

    def flush(self):
        pass

    def close(self):
        self.told.append("closed")


@pytest.fixture
def writer(monkeypatch):
    board = pytest.importorskip("torch.utils.tensorboard", reason="tensorboard is not installed")
    own = Writer()
    monkeypatch.setattr(board, "SummaryWriter", lambda folder, purge_step: own)
    return own


def test_tensorboard_is_the_default_and_is_told_the_numbers_by_path(tmp_path, writer):
    run(tiny_config(steps=2), tmp_path)
    assert writer.told[0][::2] == ("loss", 2)
    assert writer.told[-1] == "closed"


def test_without_tensorboard_one_line_says_so(tmp_path, monkeypatch, caplog):
    module._warn_without_tensorboard.cache_clear()
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    for name in ("a", "b"):
        run(tiny_config(steps=2), tmp_path / name)
    assert [record.getMessage() for record in caplog.records] == [
        "no TensorBoard events are written; pip install 'asrnorm[tensorboard]' for them"
    ]


def test_events_that_cannot_be_written_are_done_without(tmp_path, writer, caplog):
    writer.room = 1
    before = threading.excepthook
    run(tiny_config(steps=6), tmp_path)
    assert logged_steps(tmp_path) == [2, 4, 6]
    assert len(writer.told) == 2
    (said,) = (record.getMessage() for record in caplog.records)
    assert said.startswith("the run goes on without the tracker tensorboard: ")
    assert threading.excepthook is before


def test_a_file_in_place_of_the_events_is_one_line_and_the_log_goes_on(tmp_path, caplog):
    pytest.importorskip("tensorboard", reason="tensorboard is not installed")
    run_killed_at(2, tmp_path, track=[])
    (tmp_path / "events").write_text("mine")
    run(tiny_config(), tmp_path)
    assert logged_steps(tmp_path) == STEPS
    assert "without the tracker tensorboard" in caplog.text


class EventsThread(threading.Thread):
    __module__ = "tensorboard.summary.writer"


@pytest.mark.parametrize(
    ("kind", "error", "shown"),
    [
        (EventsThread, OSError(28, "full"), False),
        (EventsThread, ValueError("bug"), True),
        (threading.Thread, OSError(5, "x"), True),
    ],
)
def test_a_disk_that_fails_the_thread_of_the_events_shows_no_traceback(
    tmp_path, monkeypatch, writer, kind, error, shown
):
    heard = []
    monkeypatch.setattr(threading, "excepthook", heard.append)
    before = threading.excepthook

    def fail():
        raise error

    tracker = module.TensorBoard()
    tracker.start(Track(tmp_path, tiny_config(), 0))
    thread = kind(target=fail)
    thread.start()
    thread.join()
    tracker.close()
    assert bool(heard) is shown
    assert threading.excepthook is before


# MLflow and Weights & Biases, where they are installed


@pytest.fixture
def mlflow(tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "mlruns").as_uri())
    return pytest.importorskip("mlflow", reason="mlflow is not installed")


@pytest.mark.filterwarnings("ignore")
def test_mlflow_has_one_run_with_config_rows_scores_and_files_also_over_a_kill(tmp_path, mlflow):
    folder = tmp_path / "run"
    run_killed_at(24, folder, track=["mlflow"])
    client = mlflow.MlflowClient()
    experiment = client.get_experiment_by_name("asrnorm").experiment_id
    (killed,) = client.search_runs([experiment])
    assert killed.info.status == "KILLED"
    (folder / "curve.svg").write_text("<svg/>")
    result = run(tiny_config(), folder, track=["mlflow"])
    (found,) = client.search_runs([experiment])
    assert found.info.run_id == killed.info.run_id
    assert found.info.status == "FINISHED"
    assert found.data.params["optim.lr"] == "0.05"
    assert found.data.params["suite.name"] == "toy"
    history = client.get_metric_history(found.info.run_id, "loss")
    logged = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    assert [(point.step, point.value) for point in history] == [(row["step"], row["loss"]) for row in logged]
    assert found.data.metrics["scores/dark/accuracy"] == result.domains[0].accuracy
    names = {file.path for file in client.list_artifacts(found.info.run_id)}
    assert {"config.yaml", "env.json", "log.jsonl", "curve.svg"} <= names


@pytest.mark.filterwarnings("ignore")
def test_weights_and_biases_keeps_one_run_offline_also_over_a_kill(tmp_path, monkeypatch):
    wandb = pytest.importorskip("wandb", reason="wandb is not installed")
    monkeypatch.setenv("WANDB_MODE", "offline")
    run_killed_at(24, tmp_path, track=["wandb"])
    run(tiny_config(), tmp_path, track=["wandb"])
    wandb.teardown()  # waits for its process, which writes the files
    identifier = (tmp_path / "tracks" / "wandb.id").read_text()
    kept = sorted((tmp_path / "tracks" / "wandb").glob("offline-run-*/run-*.wandb"))
    assert {path.stem for path in kept} == {f"run-{identifier}"}
    assert b"scores/dark/accuracy" in kept[-1].read_bytes()
