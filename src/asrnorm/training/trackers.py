"""The trackers: TensorBoard, CSV files, MLflow, Weights & Biases."""

import csv
import io
import logging
import os
import re
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from asrnorm.core.config import to_mapping
from asrnorm.core.errors import install_command, missing_extra
from asrnorm.core.results import RunResult, read_log_rows
from asrnorm.training.run_folder import write_run_file
from asrnorm.training.track import TRACKERS, Numbers, Track, Tracker, flatten, iterate_leaves

logger = logging.getLogger("asrnorm")

Tracked = str | Tracker | Sequence[str | Tracker] | None
"""Names of trackers, or trackers; `None` is TensorBoard where it is installed."""

_LIBRARIES = {"tensorboard": "torch.utils.tensorboard", "mlflow": "mlflow", "wandb": "wandb"}
_MLFLOW_NAME = re.compile(r"[^\w\-. :/]", re.ASCII)  # what names in MLflow may not have
_MLFLOW_BATCH = 100  # params in a call
# MLflow's own defaults let a run wait for four minutes, or for sixteen, at a server that is down.
_MLFLOW_PATIENCE = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2", "MLFLOW_HTTP_REQUEST_TIMEOUT": "20"}


def create_trackers(track: Tracked) -> list[tuple[str, Tracker]]:
    """Return trackers with their names; raise if one is unknown, or its library is not installed."""
    if track is None and not _has_library("tensorboard"):
        _warn_without_tensorboard()
        return []
    track = "tensorboard" if track is None else track
    wanted = (track,) if isinstance(track, str | Tracker) else track
    return [(type(item).__name__, item) if isinstance(item, Tracker) else (item, _create(item)) for item in wanted]


def _create(name: str) -> Tracker:
    make = TRACKERS[name]
    if not _has_library(name):
        raise missing_extra(f"tracker {name!r}", name, name)
    return make()


def _has_library(tracker: str) -> bool:
    try:
        import_module(_LIBRARIES.get(tracker, "asrnorm"))
    except ImportError:
        return False
    return True


@cache  # once per process
def _warn_without_tensorboard() -> None:
    logger.warning(f"no TensorBoard events are written; {install_command('tensorboard')} for them")


@TRACKERS.register("tensorboard")
class TensorBoard(Tracker):
    """Events for TensorBoard, in `events/` of the run."""

    rewinds = True
    _excepthook: Callable[[threading.ExceptHookArgs], object] | None = None

    def start(self, track: Track) -> None:
        """Open a file of events that hides later ones of a process that was killed."""
        writer = import_module("torch.utils.tensorboard").SummaryWriter
        self._writer = writer(str(track.folder / "events"), purge_step=track.step + 1)
        self._excepthook, threading.excepthook = threading.excepthook, self._ignore_events_thread

    def write(self, numbers: Numbers, step: int) -> None:
        """Add a scalar for each number."""
        try:
            for name, value in numbers.items():
                self._writer.add_scalar(name, value, step)
        except OSError:
            self._restore_hook()  # `close` is not called after an error
            raise

    def flush(self) -> None:
        """Write the events to the disk."""
        self._writer.flush()

    def close(self) -> None:
        """Close the file."""
        self._restore_hook()
        self._writer.close()

    def _restore_hook(self) -> None:
        if self._excepthook is not None:
            threading.excepthook, self._excepthook = self._excepthook, None

    def _ignore_events_thread(self, failure: threading.ExceptHookArgs) -> None:
        """Show no traceback of TensorBoard's writer thread: the next row meets the same error and reports it."""
        is_theirs = type(failure.thread).__module__.startswith("tensorboard.")
        if not (is_theirs and issubclass(failure.exc_type, OSError)) and self._excepthook is not None:
            self._excepthook(failure)


@TRACKERS.register("csv")
class CsvFiles(Tracker):
    """`tracks/log.csv`, a line for each logged step, and `tracks/scores.csv`, a line for each domain."""

    rewinds = True

    def start(self, track: Track) -> None:
        """Write the rows that the log of a resumed run has."""
        self._log, self._scores = track.file("log.csv"), track.file("scores.csv")
        rows = read_log_rows(track.folder / "log.jsonl")
        self._lines: list[dict[str, Any]] = [{**dict(flatten(row)), "step": row["step"]} for row in rows]
        self._names = list(dict.fromkeys(["step", *(name for line in self._lines for name in line)]))
        self._rewrite()

    def write(self, numbers: Numbers, step: int) -> None:
        """Add a line, in place of later ones; the file is rewritten where these or its columns change."""
        line: dict[str, Any] = {"step": step, **numbers}
        kept = [old for old in self._lines if old["step"] < step]
        names = list(dict.fromkeys([*self._names, *line]))
        is_appended = len(kept) == len(self._lines) and names == self._names
        self._lines, self._names = [*kept, line], names
        if is_appended:
            with self._log.open("a", newline="", encoding="utf-8") as file:
                file.write(_format_csv([[line.get(name, "") for name in names]]))
        else:
            self._rewrite()

    def _rewrite(self) -> None:
        rows = [self._names, *([line.get(name, "") for name in self._names] for line in self._lines)]
        write_run_file(self._log, _format_csv(rows).encode())

    def finish(self, result: RunResult, scores: Numbers, files: Sequence[Path]) -> None:  # noqa: ARG002
        """Write the scores by domain."""
        domains = [vars(domain) for domain in (result.source, *result.domains)]
        write_run_file(self._scores, _format_csv([list(domains[0]), *(list(row.values()) for row in domains)]).encode())


def _format_csv(rows: Iterable[Sequence[object]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


@TRACKERS.register("mlflow")
class Mlflow(Tracker):
    """A run of MLflow, at `MLFLOW_TRACKING_URI`, in the experiment `MLFLOW_EXPERIMENT_NAME` or `asrnorm`."""

    def start(self, track: Track) -> None:
        """Create a run with the config as its params, or open the one that the track began with."""
        for variable, value in _MLFLOW_PATIENCE.items():
            os.environ.setdefault(variable, value)
        self._client = import_module("mlflow").MlflowClient()
        self._status = "KILLED"  # unless `finish` is reached
        self._run, is_new = track.identifier("mlflow", lambda: self._create(track))
        if not is_new:
            self._client.update_run(self._run, status="RUNNING")

    def _create(self, track: Track) -> str:
        experiment = os.environ.get("MLFLOW_EXPERIMENT_NAME", "asrnorm")
        known = self._client.get_experiment_by_name(experiment)
        number = self._client.create_experiment(experiment) if known is None else known.experiment_id
        run: str = self._client.create_run(number, run_name=track.name).info.run_id
        param, fields = import_module("mlflow.entities").Param, iterate_leaves(to_mapping(track.config), ".")
        params = [param(_MLFLOW_NAME.sub("_", name), str(value)) for name, value in fields]
        for first in range(0, len(params), _MLFLOW_BATCH):
            self._client.log_batch(run, params=params[first : first + _MLFLOW_BATCH])
        return run

    def write(self, numbers: Numbers, step: int) -> None:
        """Log the numbers as metrics, in one call."""
        metric, now = import_module("mlflow.entities").Metric, int(1000 * time.time())
        metrics = [metric(_MLFLOW_NAME.sub("_", name), value, now, step) for name, value in numbers.items()]
        self._client.log_batch(self._run, metrics=metrics)

    def finish(self, result: RunResult, scores: Numbers, files: Sequence[Path]) -> None:
        """Log the scores as metrics, and the files as artifacts."""
        self.write(scores, result.steps)
        for file in files:
            self._client.log_artifact(self._run, str(file))
        self._status = "FINISHED"

    def close(self) -> None:
        """Set the status of the run."""
        self._client.set_terminated(self._run, self._status)


@TRACKERS.register("wandb")
class Wandb(Tracker):
    """A run of Weights & Biases, in the project `WANDB_PROJECT` or `asrnorm`; `WANDB_MODE=offline` needs no account."""

    def start(self, track: Track) -> None:
        """Begin a run with the config, or continue the one with the id that the track began with."""
        wandb = import_module("wandb")
        identifier, _ = track.identifier("wandb", lambda: secrets.token_hex(4))
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "asrnorm"),
            id=identifier,
            name=track.name,
            resume="allow",
            config=to_mapping(track.config),
            dir=str(track.file("wandb").parent),
            settings=wandb.Settings(silent=True, console="off"),
        )

    def write(self, numbers: Numbers, step: int) -> None:
        """Log the numbers of a step."""
        self._run.log(dict(numbers), step=step)

    def finish(self, result: RunResult, scores: Numbers, files: Sequence[Path]) -> None:  # noqa: ARG002
        """Put the scores into the run's summary, and the files into an artifact."""
        self._run.summary.update(dict(scores))
        artifact = import_module("wandb").Artifact(f"run-{self._run.id}", type="run")
        for file in files:
            artifact.add_file(str(file))
        self._run.log_artifact(artifact)

    def close(self) -> None:
        """Upload what is left."""
        self._run.finish()
