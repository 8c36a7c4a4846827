"""The trackers: TensorBoard, CSV files, MLflow, Weights & Biases."""

import csv
import io
import logging
import os
import re
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from asrnorm.core.config import to_mapping
from asrnorm.core.errors import InputTypeError, MissingDependencyError
from asrnorm.core.results import RunResult
from asrnorm.training.run_folder import write_run_file
from asrnorm.training.track import TRACKERS, Numbers, Track, Tracker

logger = logging.getLogger("asrnorm")

DEFAULT = "tensorboard"

_LIBRARIES = {"tensorboard": "torch.utils.tensorboard", "mlflow": "mlflow", "wandb": "wandb"}
_MLFLOW_NAME = re.compile(r"[^\w\-. :/]", re.ASCII)  # what names in MLflow may not have
_MLFLOW_BATCH = 100  # params in a call


Tracked = str | Tracker | Sequence[str | Tracker] | None
"""Names of trackers, or trackers; `None` is TensorBoard where it is installed."""


def create_trackers(track: Tracked) -> dict[str, Tracker]:
    """Return trackers by name, made of names and of trackers; `None` is TensorBoard where it is installed.

    Raises:
        UnknownNameError: no such tracker.
        MissingDependencyError: the library of a tracker that is asked for is not installed.
    """
    if track is None:
        try:
            import_module(_LIBRARIES[DEFAULT])
        except ImportError:
            _warn_without_tensorboard()
            return {}
        return {DEFAULT: TRACKERS[DEFAULT]()}
    trackers: dict[str, Tracker] = {}
    for item in [track] if isinstance(track, str | Tracker) else track:
        if isinstance(item, Tracker):
            trackers[type(item).__name__] = item
        elif isinstance(item, str):
            make = TRACKERS[item]
            try:
                import_module(_LIBRARIES.get(item, "asrnorm"))
            except ImportError:
                raise MissingDependencyError(f"tracker {item!r} needs {item}: pip install 'asrnorm[{item}]'") from None
            trackers[item] = make()
        else:
            raise InputTypeError(f"track takes names ({', '.join(TRACKERS)}) and trackers, not {item!r:.80}")
    return trackers


@cache
def _warn_without_tensorboard() -> None:
    logger.warning("no TensorBoard events are written; pip install tensorboard for them")  # once per process


@TRACKERS.register("tensorboard")
class TensorBoard(Tracker):
    """Events for TensorBoard, in `events/` of the run."""

    rewinds = True

    def __init__(self) -> None:
        self._writer: Any = None
        self._excepthook: Callable[[threading.ExceptHookArgs], object] | None = None

    def start(self, track: Track) -> None:
        """Open a file of events that hides later ones of a process that was killed."""
        writer = import_module("torch.utils.tensorboard").SummaryWriter
        self._writer = writer(str(track.folder / "events"), purge_step=track.step + 1)
        self._excepthook, threading.excepthook = threading.excepthook, self._ignore_events_thread

    def write(self, numbers: Numbers, step: int) -> None:
        """Add a scalar for each number."""
        with self._restoring_hook():
            for name, value in numbers.items():
                self._writer.add_scalar(name, value, step)

    def flush(self) -> None:
        """Write the events to the disk."""
        with self._restoring_hook():
            self._writer.flush()

    def close(self) -> None:
        """Close the file."""
        self._restore_hook()
        self._writer.close()

    @contextmanager
    def _restoring_hook(self) -> Iterator[None]:
        try:
            yield
        except OSError:
            self._restore_hook()
            raise

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
        """Read the lines of a run that resumes, up to its step."""
        self._log, self._scores = track.file("log.csv"), track.file("scores.csv")
        self._lines: list[dict[str, Any]] = []
        if self._log.exists():
            with self._log.open(newline="", encoding="utf-8") as file:
                self._lines = [line for line in csv.DictReader(file) if int(line["step"]) <= track.step]
        self._names = list(dict.fromkeys(name for line in self._lines for name in line)) or ["step"]
        _write_csv(self._log, self._names, self._lines)

    def write(self, numbers: Numbers, step: int) -> None:
        """Append a line; a step that is repeated, or a new column, rewrites the file."""
        line: dict[str, Any] = {"step": step, **numbers}
        kept = [old for old in self._lines if int(old["step"]) < step]
        new = [name for name in line if name not in self._names]
        is_appended = len(kept) == len(self._lines) and not new
        self._lines, self._names = [*kept, line], [*self._names, *new]
        if not is_appended:
            _write_csv(self._log, self._names, self._lines)
            return
        with self._log.open("a", newline="", encoding="utf-8") as file:
            csv.DictWriter(file, self._names, restval="", lineterminator="\n").writerow(line)

    def finish(self, result: RunResult, scores: Numbers, files: Sequence[Path]) -> None:  # noqa: ARG002
        """Write the scores by domain."""
        lines = [vars(domain) for domain in (result.source, *result.domains)]
        _write_csv(self._scores, list(lines[0]), lines)


def _write_csv(path: Path, names: Sequence[str], lines: Iterable[Mapping[str, Any]]) -> None:
    rows = [names, *([line.get(name, "") for name in names] for line in lines)]
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    write_run_file(path, text.getvalue().encode())


@TRACKERS.register("mlflow")
class Mlflow(Tracker):
    """A run of MLflow, at `MLFLOW_TRACKING_URI`, in the experiment `MLFLOW_EXPERIMENT_NAME` or `asrnorm`."""

    def start(self, track: Track) -> None:
        """Create a run with the config as its params, or open the one that the track began with."""
        self._client = import_module("mlflow").MlflowClient()
        self._status = "KILLED"  # unless `finish` is reached
        self._run, is_new = track.identifier("mlflow", lambda: self._create(track))
        if not is_new:
            self._client.update_run(self._run, status="RUNNING")

    def _create(self, track: Track) -> str:
        experiment = os.environ.get("MLFLOW_EXPERIMENT_NAME", "asrnorm")
        known = self._client.get_experiment_by_name(experiment)
        number = self._client.create_experiment(experiment) if known is None else known.experiment_id
        run: str = self._client.create_run(number, run_name=track.folder.name).info.run_id
        param = import_module("mlflow.entities").Param
        params = [
            param(_MLFLOW_NAME.sub("_", name), str(value)) for name, value in _name_fields(to_mapping(track.config))
        ]
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


def _name_fields(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from _name_fields(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


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
            name=track.folder.name,
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
