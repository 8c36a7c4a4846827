"""The log of a run: `log.jsonl`, one row a step that has something to say, and the same numbers for TensorBoard.

How far a run is: a bar on a terminal, plain lines elsewhere.

Where and when a run was made: commit, day, versions, machine. Kept in `env.json`, which no number depends on.
"""

import json
import logging
import os
import platform
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, Self

import numpy
import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn

import asrnorm
from asrnorm.core.commit import find_commit
from asrnorm.core.distributed import World
from asrnorm.core.files import describe_failure
from asrnorm.core.progress import Progress
from asrnorm.core.results import read_log_rows
from asrnorm.training.run_folder import advising, write_run_file

logger = logging.getLogger("asrnorm")


class RunLog:
    """Rows of numbers by step; a step has one row at most, however often the run was killed.

    Args:
        path: of `log.jsonl`; `None` writes nothing, as all processes but one do.
        events: folder for TensorBoard; `None` writes none.
        step: where the run goes on; later rows, of a process that was killed before its next checkpoint, are cut.

    Raises:
        StorageError: the file cannot be written.
    """

    def __init__(self, path: Path | None, events: Path | None, step: int) -> None:
        self._path, self._events, self._step = path, events, step
        self._file: Any = None
        self._writer: Any = None
        self._before: Callable[[threading.ExceptHookArgs], object] | None = None

    def __enter__(self) -> "RunLog":
        self.cut(self._step)
        if self._path is not None and self._events is not None:
            self._before = threading.excepthook
            threading.excepthook = self._hear_of_thread
            with self._doing_without():
                self._writer = _open_writer(self._events, self._step)
        return self

    def __exit__(self, *exception: object) -> None:
        if self._before is not None:
            threading.excepthook = self._before
        for thing in (self._file, self._writer):
            try:
                if thing is not None:
                    thing.close()
            except OSError:  # a full disk, which has been spoken of; the rows come again on resume
                logger.debug("%s: not closed", self._path)

    def cut(self, step: int) -> None:
        """Leave out the rows after a step, and the rest of a line that a kill cut short."""
        if self._path is None:
            return
        if self._file is not None:
            self._file.close()
        with advising(self._path):
            kept = "".join(f"{json.dumps(row)}\n" for row in read_log_rows(self._path) if row["step"] <= step)
        write_run_file(self._path, kept.encode())
        with advising(self._path):
            self._file = self._path.open("a", encoding="utf-8")

    def write(self, row: Mapping[str, Any]) -> None:
        """Append the row of a step."""
        if self._path is None:
            return
        with advising(self._path):
            self._file.write(f"{json.dumps(row)}\n")
            self._file.flush()
        with self._doing_without():
            for name, value in flatten(row) if self._writer is not None else ():
                if name != "step":
                    self._writer.add_scalar(name, value, row["step"])

    def sync(self) -> None:
        """Bring the rows to the disk; a checkpoint of their step may then be written."""
        if self._path is None:
            return
        with advising(self._path):
            os.fsync(self._file.fileno())

    @contextmanager
    def _doing_without(self) -> Iterator[None]:
        """Go on without TensorBoard's events where they cannot be written: all they hold is in the log."""
        try:
            yield
        except OSError as error:
            self._writer = None
            where = describe_failure(error, self._events or Path("events"))
            logger.warning("%s; no more TensorBoard events are written", where)

    def _hear_of_thread(self, failure: threading.ExceptHookArgs) -> None:
        """Leave out what the events' own thread fails with: the next row meets it again, and says so in a line."""
        is_theirs = type(failure.thread).__module__.startswith("tensorboard.")
        if not (is_theirs and issubclass(failure.exc_type, OSError)) and self._before is not None:
            self._before(failure)


def flatten(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    """Yield the numbers of nested dicts and lists, each under a path.

    Example:
        >>> list(flatten({"loss": 1.5, "lambdas": {"norm1": {"mu": [0.1, 0.2]}}}))
        [('loss', 1.5), ('lambdas/norm1/mu/0', 0.1), ('lambdas/norm1/mu/1', 0.2)]
    """
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from flatten(value, f"{prefix}{name}/")
        elif isinstance(value, list | tuple):
            yield from flatten({str(index): item for index, item in enumerate(value)}, f"{prefix}{name}/")
        elif isinstance(value, int | float):
            yield f"{prefix}{name}", float(value)


def _open_writer(folder: Path, step: int) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        _say_absent()
        return None
    # Later events, of a process that was killed, are hidden.
    return SummaryWriter(str(folder), purge_step=step + 1)


@cache
def _say_absent() -> None:
    logger.warning("no TensorBoard events are written; pip install tensorboard for them")  # once a process


class RunProgress(Progress):
    """Counts steps on standard error, with loss, accuracy, rate and time left; a context manager.

    Args:
        label: what is running.
        steps: how many there are.
        step: how many are done already.
        shown: false says nothing at all, as all processes but one do.
        console: where to write; standard error by default.
    """

    def __init__(
        self, label: str, steps: int, step: int, *, shown: bool = True, console: Console | None = None
    ) -> None:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
        super().__init__(steps, "steps", *columns, done=step, digits=1, shown=shown, console=console)
        self._label = self._described = label
        self.show(description=label)

    def __enter__(self) -> Self:
        super().__enter__()
        if self.done:
            self.say(f"{self._label}: going on from step {self.done:,} of {self.total:,}")
        return self

    def advance(self, step: int, row: dict[str, Any] | None = None) -> None:
        """Note that a step is done; `row` is what its row of the log says."""
        self.done = step
        numbers = f"loss {row['loss']:.4f}, accuracy {row['accuracy']:.3f}" if row and "loss" in row else ""
        if numbers:
            self._described = f"{self._label}  {numbers}"
        self.show(completed=step, description=self._described)
        if numbers and self.is_due(always=step == self.total):
            self.say(f"{self._label}: step {step:,} of {self.total:,}, {numbers}, {self.pace()}")

    def grow(self, done: float) -> None:
        """Note that a part of a grow phase is done, 0 to 1."""
        self.show(description=f"{self._label}  growing, {100 * done:.0f} %")
        if self.is_due():
            self.say(f"{self._label}: step {self.done:,} of {self.total:,}, growing, {100 * done:.0f} % done")


def describe_environment(device: torch.device, world: World) -> dict[str, Any]:
    """Return commit, day, versions and machine as JSON values.

    Example:
        >>> describe_environment(torch.device("cpu"), World())["device"]
        'cpu'
    """
    gpu = torch.cuda.get_device_name(device) if device.type == "cuda" else None
    return {
        "commit": find_commit(),
        "day": datetime.now(UTC).date().isoformat(),
        "asrnorm": asrnorm.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "device": device.type,
        "gpu": gpu,
        "cuda": torch.version.cuda,
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "processes": world.size,
    }


def record_environment(path: Path, now: dict[str, Any]) -> dict[str, Any]:
    """Write `env.json` at the start of a run; where it is resumed elsewhere, add what it was resumed on.

    Returns:
        What was recorded at the start.
    """
    try:
        first: dict[str, Any] = json.loads(path.read_text())
    except (OSError, ValueError, RecursionError):
        first = {}
    if not isinstance(first, dict) or "commit" not in first:
        first = dict(now)
    if not isinstance(first.get("resumed"), list) or not all(isinstance(part, dict) for part in first["resumed"]):
        first["resumed"] = []
    resumed = first["resumed"]
    latest = first | {key: value for part in resumed for key, value in part.items()}
    difference = {key: value for key, value in now.items() if latest.get(key) != value}
    if difference:
        resumed.append(difference)
    write_run_file(path, json.dumps(first, indent=2).encode())
    return first
