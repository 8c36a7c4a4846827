"""How far a run is, from the files in its folder.

The queue of a launch: what is not done runs, a failing job has a second try, a signal stops all in good order.
"""

import json
import signal
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from asrnorm.launch.jobs import Ended, Executor, Job

_TAIL = 65_536  # bytes; a row with the lambdas of a deep network has some thousands


def read_position(job: Job) -> tuple[str, int]:
    """Return the phase of a job and the step that its log has come to, from the files in its folder."""
    if (job.folder / "result.json").exists():
        rest = job.missing()
        return (rest[0].label if rest else "done"), job.config.steps
    if (job.folder / "model.safetensors").exists():
        return "evaluate", job.config.steps
    if (job.folder / "log.jsonl").exists():
        step = last_step(job.folder / "log.jsonl")
        return ("train" if step < job.config.steps else "evaluate"), step
    if (job.folder / "choice" / "log.jsonl").exists():
        return "choose", last_step(job.folder / "choice" / "log.jsonl")
    return "train", 0


def measure_way(job: Job) -> tuple[int, int, int]:
    """Return how far a job is as numbers that only grow: its phase, the step of its log, the pieces that are there."""
    phase, step = read_position(job)
    return {"choose": 0, "train": 1}.get(phase, 2), step, -len(job.missing())


def last_step(log: Path) -> int:
    """Return the step of the last whole row of a log, 0 where there is none.

    Example:
        >>> last_step(Path("nowhere.jsonl"))
        0
    """
    try:
        with log.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - _TAIL))
            lines = file.read().splitlines()
    except OSError:
        return 0
    for line in reversed(lines):
        try:
            return int(json.loads(line)["step"])
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError):  # being written, cut, or damaged
            continue
    return 0


_TICK = 0.2  # seconds between two looks
_BUSY_SECONDS = 3.0  # until a job that another process is at work on is looked at again
_MOST_LOSSES = 10  # without getting any further: a job that takes down every machine must not go round for ever
_SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP")


@dataclass(frozen=True)
class Failure:
    """A job that failed at every try, and the error line of the last."""

    job: Job
    error: str


@dataclass(frozen=True)
class Outcome:
    """How a launch ended.

    Attributes:
        done: jobs of which nothing is missing now.
        failed: jobs that failed at every try.
        left: jobs that were not finished, since the launch was stopped.
    """

    done: tuple[Job, ...]
    failed: tuple[Failure, ...]
    left: tuple[Job, ...]


@dataclass
class Board:
    """Where a launch stands; what a view shows.

    Attributes:
        running: by the time at which each began.
        elsewhere: jobs that another process is at work on.
        stopping: it was told to stop.
    """

    slots: int = 1
    waiting: deque[Job] = field(default_factory=deque)
    running: dict[Job, float] = field(default_factory=dict)
    elsewhere: dict[Job, float] = field(default_factory=dict)
    done: list[Job] = field(default_factory=list)
    failed: list[Failure] = field(default_factory=list)
    stopping: bool = False


class View(Protocol):
    """What shows a launch to its user."""

    def say(self, line: str) -> None:
        """Tell of something that happened."""

    def show(self, board: Board) -> None:
        """Show where the launch stands; called a few times a second."""


class Queue:
    """The jobs of one launch; `run` works through them.

    Args:
        jobs: done ones among them are counted and left alone.
        executor: where they run.
        retry: further tries for a job that fails.
        view: is told of all that happens.
    """

    def __init__(self, jobs: Iterable[Job], executor: Executor, retry: int, view: View) -> None:
        self._executor, self._retry, self._view = executor, retry, view
        self.board = Board()
        self._failures: dict[Job, int] = {}
        self._losses: dict[Job, tuple[int, tuple[int, int, int]]] = {}
        todo: list[Job] = []
        for job in jobs:
            (todo if job.missing() else self.board.done).append(job)
        # What was begun is finished first: a checkpoint is worth more the nearer its run is to the end.
        self.board.waiting.extend(sorted(todo, key=lambda job: not job.folder.exists()))

    def run(self) -> Outcome:
        """Work until nothing is left to do, or a signal says stop."""
        board = self.board
        with _signals() as signals:
            while board.running or (not board.stopping and (board.waiting or board.elsewhere)):
                if signals and not board.stopping:
                    board.stopping = True
                    self._executor.stop()
                    self._view.say(f"stopping: {len(board.running)} runs write a checkpoint; Ctrl-C again kills them")
                if len(signals) > 1:
                    self._executor.stop(at_once=True)
                board.slots = self._executor.slots()
                if not board.stopping:
                    self._look_elsewhere()
                    self._fill()
                for ended in self._executor.collect():
                    self._settle(ended)
                self._view.show(board)
                if board.running or board.elsewhere:
                    time.sleep(_TICK)
        return Outcome(tuple(board.done), tuple(board.failed), (*board.elsewhere, *board.waiting))

    def _fill(self) -> None:
        board = self.board
        while board.waiting and len(board.running) < board.slots:
            job = board.waiting.popleft()
            if not job.missing():  # by another launch, meanwhile
                self._finish(job)
            elif job.is_busy():
                board.elsewhere[job] = time.monotonic() + _BUSY_SECONDS
            else:
                board.running[job] = time.monotonic()
                self._executor.submit(job)

    def _look_elsewhere(self) -> None:
        now = time.monotonic()
        for job in [job for job, due in self.board.elsewhere.items() if due <= now]:
            del self.board.elsewhere[job]
            self.board.waiting.append(job)

    def _settle(self, ended: Ended) -> None:
        board, job = self.board, ended.job
        began = board.running.pop(job)
        if ended.status == "done":
            self._finish(job, time.monotonic() - began)
        elif board.stopping or ended.status == "stopped":
            board.waiting.append(job)
        elif ended.status == "busy":
            board.elsewhere[job] = time.monotonic() + _BUSY_SECONDS
        elif ended.status == "lost" and self._count_losses(job) <= _MOST_LOSSES:
            self._view.say(f"{job.name}: {ended.error}; it goes on elsewhere")
            board.waiting.appendleft(job)
        elif ended.status == "failed" and self._count(self._failures, job) <= self._retry:
            self._view.say(f"{job.name}: {ended.error}; trying again")
            board.waiting.append(job)
        else:
            self._view.say(f"{job.name}: failed: {ended.error}")
            board.failed.append(Failure(job, ended.error))

    def _count_losses(self, job: Job) -> int:
        """Count the machines that a job has lost since it last got further than ever before."""
        place = measure_way(job)
        times, furthest = self._losses.get(job, (0, place))
        times = 1 if place > furthest else times + 1
        self._losses[job] = times, max(place, furthest)
        return times

    def _finish(self, job: Job, seconds: float | None = None) -> None:
        self.board.done.append(job)
        what = "diverged, which is an outcome" if job.has_diverged() else "done"
        self._view.say(f"{job.name}: {what}" + ("" if seconds is None else f" in {seconds:,.0f} s"))

    @staticmethod
    def _count(counts: dict[Job, int], job: Job) -> int:
        counts[job] = counts.get(job, 0) + 1
        return counts[job]


def launch(jobs: Iterable[Job], executor: Executor, *, view: View, retry: int = 1) -> Outcome:
    """Run every job of which something is missing, and say what came of it.

    One that fails is tried again `retry` times, then reported, and the others go on. Ctrl-C, SIGTERM and SIGHUP stop
    all after a checkpoint; started again, they go on.

    Args:
        jobs: done ones among them cost nothing.
        executor: where they run; it is closed at the end.
        view: is told of all that happens.
        retry: further tries for a job that fails. One whose machine was lost is not counted as failing.
    """
    try:
        return Queue(jobs, executor, retry, view).run()
    finally:
        executor.close()


@contextmanager
def _signals() -> Iterator[list[int]]:
    """Give a list to which every signal to stop is added, where this is the main thread: Python asks no other."""
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
