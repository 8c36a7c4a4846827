"""The queue of a launch: runs what is missing, retries failed jobs, stops cleanly on a signal.

The progress of a job is read from the files in its run folder.
"""

import os
import signal
import threading
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from asrnorm.core.reading import parse_json
from asrnorm.launch.jobs import Ended, Executor, Job

if TYPE_CHECKING:
    from asrnorm.launch.view import LaunchView

_TAIL = 65_536  # bytes; a row with the lambdas of a deep network has some thousands


def read_position(job: Job) -> tuple[str, int]:
    """Return the phase of a job and the last step in its log."""
    folder, steps = job.folder, job.config.steps
    if (folder / "result.json").exists():
        rest = job.missing()
        return (rest[0].label if rest else "done"), steps
    if (folder / "model.safetensors").exists():
        return "evaluate", steps
    if (folder / "log.jsonl").exists():
        step = last_step(folder / "log.jsonl")
        return ("train" if step < steps else "evaluate"), step
    if (folder / "choice" / "log.jsonl").exists():
        return "choose", last_step(folder / "choice" / "log.jsonl")
    return "train", 0


def last_step(log: Path) -> int:
    """Return the step of the last complete row of a log, 0 if there is none."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL))
            lines = file.read().splitlines()
    except OSError:
        return 0
    for line in reversed(lines):
        try:
            return int(parse_json(line)["step"])
        except (ValueError, KeyError, TypeError, OverflowError):  # being written, cut, or damaged
            continue
    return 0


_TICK = 0.2  # seconds between two polls
_BUSY_SECONDS = 3.0  # until a job that another process works on is checked again
_MOST_LOSSES = 10  # without progress: a job that takes down every machine must not go on for ever
_SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP")


@dataclass(frozen=True)
class Failure:
    """A job that failed at every attempt, and the last error line."""

    job: Job
    error: str


@dataclass(frozen=True)
class Outcome:
    """How a launch ended; `left` are the jobs that were unfinished when it was stopped."""

    done: tuple[Job, ...]
    failed: tuple[Failure, ...]
    left: tuple[Job, ...]


@dataclass
class Board:
    """State of a launch, shown by a view."""

    slots: int = 1
    waiting: deque[Job] = field(default_factory=deque)
    running: dict[Job, float] = field(default_factory=dict)  # with their start times
    busy: dict[Job, float] = field(default_factory=dict)  # in another process, and when to check again
    done: list[Job] = field(default_factory=list)
    failed: list[Failure] = field(default_factory=list)
    stopping: bool = False


class Queue:
    """The jobs of one launch; see `launch` for the arguments."""

    def __init__(self, jobs: Iterable[Job], executor: Executor, retry: int, view: "LaunchView") -> None:
        self._executor, self._retry, self._view = executor, retry, view
        self.board = Board()
        self._failures: Counter[Job] = Counter()
        self._losses: dict[Job, tuple[int, tuple[int, int, int]]] = {}
        todo: list[Job] = []
        for job in jobs:
            job.drop_pool()
            (todo if job.missing() else self.board.done).append(job)
        # Started runs first: a checkpoint is worth more the nearer its run is to the end.
        self.board.waiting.extend(sorted(todo, key=lambda job: not job.folder.exists()))

    def run(self) -> Outcome:
        """Run until nothing is left to do or a signal asks to stop."""
        board = self.board
        with _signals() as signals:
            while board.running or (not board.stopping and (board.waiting or board.busy)):
                if signals and not board.stopping:
                    board.stopping = True
                    self._executor.stop()
                    self._view.say("stopping after checkpoints are written; Ctrl-C again kills at once")
                if len(signals) > 1:
                    self._executor.stop(at_once=True)
                board.slots = self._executor.slots()
                if not board.stopping:
                    self._fill()
                for ended in self._executor.collect():
                    self._record(ended)
                self._view.show(board)
                if board.running or board.busy:
                    time.sleep(_TICK)
        return Outcome(tuple(board.done), tuple(board.failed), (*board.busy, *board.waiting))

    def _fill(self) -> None:
        board, now = self.board, time.monotonic()
        for job in [job for job, due in board.busy.items() if due <= now]:
            del board.busy[job]
            board.waiting.append(job)
        while board.waiting and len(board.running) < board.slots:
            job = board.waiting.popleft()
            if not job.missing():  # another launch has finished it
                self._finish(job)
            elif job.is_busy():
                board.busy[job] = time.monotonic() + _BUSY_SECONDS
            else:
                board.running[job] = time.monotonic()
                self._executor.submit(job)

    def _record(self, ended: Ended) -> None:
        board, job = self.board, ended.job
        began = board.running.pop(job)
        if ended.status == "done":
            self._finish(job, time.monotonic() - began)
        elif board.stopping or ended.status == "stopped":
            board.waiting.append(job)
        elif ended.status == "busy":
            board.busy[job] = time.monotonic() + _BUSY_SECONDS
        elif ended.status == "lost" and self._count_losses(job) <= _MOST_LOSSES:
            self._view.say(f"{job.name}: {ended.error}; another machine continues it")
            board.waiting.appendleft(job)
        elif ended.status == "failed" and self._failures[job] < self._retry:
            self._failures[job] += 1
            self._view.say(f"{job.name}: {ended.error}; trying again")
            board.waiting.append(job)
        else:
            self._view.say(f"{job.name}: failed: {ended.error}")
            board.failed.append(Failure(job, ended.error))

    def _count_losses(self, job: Job) -> int:
        """Count the machines lost by a job since it last made progress."""
        phase, step = read_position(job)
        progress = ({"choose": 0, "train": 1}.get(phase, 2), step, -len(job.missing()))  # these numbers only grow
        times, furthest = self._losses.get(job, (0, progress))
        times = 1 if progress > furthest else times + 1
        self._losses[job] = times, max(progress, furthest)
        return times

    def _finish(self, job: Job, seconds: float | None = None) -> None:
        self.board.done.append(job)
        what = "diverged, a valid outcome" if job.has_diverged() else "done"
        self._view.say(f"{job.name}: {what}" + ("" if seconds is None else f" in {seconds:,.0f} s"))


def launch(jobs: Iterable[Job], executor: Executor, *, view: "LaunchView", retry: int = 1) -> Outcome:
    """Run every unfinished job and return the outcome.

    A job that fails is tried again `retry` times, then reported; the others continue. Ctrl-C, SIGTERM and SIGHUP stop
    all jobs after a checkpoint; the next launch resumes them. A lost machine does not count as a failure. The executor
    is closed at the end.
    """
    try:
        return Queue(jobs, executor, retry, view).run()
    finally:
        executor.close()


@contextmanager
def _signals() -> Iterator[list[int]]:
    """Yield a list that collects the stop signals received; only the main thread can install handlers."""
    received: list[int] = []
    before = {}
    if threading.current_thread() is threading.main_thread():
        for name in _SIGNALS:
            number = getattr(signal, name)
            before[number] = signal.signal(number, lambda number, frame: received.append(number))  # noqa: ARG005
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
