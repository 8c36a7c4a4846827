"""A job: one run with all that is to be made of it, and which of that is there already.

What runs jobs: the contract, and how a job ends.

The work on one job: its commands one after the other, each a process of its own, their words in `launch.log`.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from asrnorm.core.config import RunConfig, content_hash, dump_config, override
from asrnorm.core.errors import AsrnormError
from asrnorm.core.files import replacing, take_lock
from asrnorm.core.settings import BACKEND_VARIABLE, DEVICE_VARIABLE
from asrnorm.studies.spec import ANALYSIS_FILES, DIVERGENCE_FILE, Evaluation
from asrnorm.studies.store import holds_result

if TYPE_CHECKING:
    from asrnorm.studies.plan import Plan

# How `asrnorm evaluate` is asked for each analysis.
_ANALYSIS_WORDS = {"statistics": "--statistics"}


@dataclass(frozen=True)
class Piece:
    """A command that leaves one file.

    Attributes:
        label: what it is called on the screen.
        words: after `asrnorm`.
        product: what is there when it is done.
    """

    label: str
    words: tuple[str, ...]
    product: Path


@dataclass(frozen=True, kw_only=True)
class Job:
    """One run, how it is scored again afterwards, and what else is made of it.

    Attributes:
        folder: of the run.
        evaluations: each leaves `evaluations/<name>.json`.
        analyses: keys of `ANALYSIS_FILES`.
        kept: labels of the pieces that kept results stand for.
        may_diverge: a loss that is not finite is an outcome, kept in `DIVERGENCE_FILE`; nothing more is made of it.
        module: what `python -m` runs; another than `asrnorm` may register things of its own first.
        imports: modules that each command imports first (`--import`).
    """

    config: RunConfig
    folder: Path
    evaluations: tuple[Evaluation, ...] = ()
    analyses: tuple[str, ...] = ()
    kept: frozenset[str] = frozenset()
    may_diverge: bool = False
    module: str = "asrnorm"
    imports: tuple[str, ...] = ()

    def __hash__(self) -> int:
        return hash(self.folder)  # configs hold dicts

    @property
    def name(self) -> str:
        """The name of its folder, which is unique."""
        return self.folder.name

    def pieces(self) -> tuple[Piece, ...]:
        """Return the commands of the job in their order; all but the first need the first."""
        device = () if self.config.device == "auto" else ("--set", f"device={self.config.device}")
        own = tuple(word for name in self.imports for word in ("--import", name))
        place = str(self.folder)
        words = ("train", "--config", str(self.folder / "launch.yaml"), "--out", place, *own)
        pieces = [Piece("train", words, self.folder / "result.json")]
        for evaluation in self.evaluations:
            changes = tuple(word for item in evaluation.overrides.items() for word in ("--set", _assignment(*item)))
            product = self.folder / "evaluations" / f"{evaluation.name}.json"
            words = ("evaluate", place, "--as", evaluation.name, "--renew", *device, *changes, *own)
            pieces.append(Piece(evaluation.name, words, product))
        for analysis in self.analyses:
            words = ("evaluate", place, _ANALYSIS_WORDS[analysis], *device, *own)
            pieces.append(Piece(analysis, words, self.folder / ANALYSIS_FILES[analysis]))
        return tuple(pieces)

    def missing(self) -> tuple[Piece, ...]:
        """Return the pieces whose products are not there; none where the run is one that diverged, and may."""
        if self.has_diverged():
            return ()
        hashes = {evaluation.name: self._hash_of(evaluation.overrides) for evaluation in self.evaluations}
        hashes["train"] = content_hash(self.config)
        pieces = [piece for piece in self.pieces() if piece.label not in self.kept]
        return tuple(piece for piece in pieces if not _is_there(piece, hashes.get(piece.label)))

    @property
    def is_kept(self) -> bool:
        """Whether the kept results stand for the run, whose folder is gone."""
        return "train" in self.kept

    def has_diverged(self) -> bool:
        """Tell whether the run has ended with a loss that is not finite, where that is an outcome."""
        if (self.folder / "result.json").is_file():  # tried again, it has come to an end
            return False
        return self.may_diverge and (self.folder / DIVERGENCE_FILE).is_file()

    def is_busy(self) -> bool:
        """Tell whether another process, here or on a machine that shares the folder, is at work on the run."""
        try:
            with (self.folder / ".lock").open("rb") as lock:
                take_lock(lock, shared=True)
        except BlockingIOError:
            return True
        except OSError:  # no such folder yet
            return False
        return False

    def _hash_of(self, overrides: Mapping[str, Any]) -> str:
        return content_hash(override(self.config, overrides))


def gather_jobs(*plans: "Plan", imports: tuple[str, ...] = ()) -> tuple[Job, ...]:
    """Return a job for every run folder of the plans, with the evaluations and analyses that their tasks ask for.

    Args:
        plans: what studies need; a run that several of them need is one job.
        imports: see `Job`.
    """
    jobs: dict[Path, Job] = {}
    for plan in plans:
        for folder, job in _jobs_of(plan, imports).items():
            jobs[folder] = _join(jobs[folder], job) if folder in jobs else job
    return tuple(jobs.values())


def _jobs_of(plan: "Plan", imports: tuple[str, ...]) -> dict[Path, Job]:
    jobs: dict[Path, Job] = {}
    for task in plan.tasks:  # a run comes before what is made of it
        if task.kind == "run":
            may_diverge = task.spec.may_diverge
            new = Job(config=task.config, folder=task.folder, may_diverge=may_diverge, imports=imports)
            jobs.setdefault(task.folder, replace(new, kept=frozenset({"train"})) if task.state == "kept" else new)
            continue
        job, evaluation = jobs[task.folder], task.spec.evaluation
        label = task.analysis or ""
        if task.kind == "evaluation" and evaluation is not None:
            job, label = replace(job, evaluations=(*job.evaluations, evaluation)), evaluation.name
        elif task.analysis is not None:
            job = replace(job, analyses=(*job.analyses, task.analysis))
        jobs[task.folder] = replace(job, kept=job.kept | {label}) if task.state == "kept" else job
    return jobs


def _join(one: Job, other: Job) -> Job:
    """Return the job of a run that two studies need, each in its way."""
    return replace(
        one,
        evaluations=(*one.evaluations, *(extra for extra in other.evaluations if extra not in one.evaluations)),
        analyses=tuple(dict.fromkeys((*one.analyses, *other.analyses))),
        # Where one has to train it, since what it needs of it is not kept, everything is made of that training.
        kept=one.kept | other.kept if one.is_kept == other.is_kept else frozenset(),
        may_diverge=one.may_diverge or other.may_diverge,
    )


def _assignment(name: str, value: Any) -> str:
    return f"{name}={value if isinstance(value, str) else json.dumps(value)}"


def _is_there(piece: Piece, config_hash: str | None) -> bool:
    # An evaluation of that name may be of an earlier study, under another config.
    return piece.product.is_file() if config_hash is None else holds_result(piece.product, config_hash)


Status = Literal["done", "failed", "stopped", "busy", "lost"]


@dataclass(frozen=True)
class Ended:
    """How a job ended.

    Attributes:
        status: `busy` where another process is at work on it; `lost` where the machine it was on is gone.
        error: one line, where it failed or was lost.
    """

    job: Job
    status: Status
    error: str = ""


class Executor(Protocol):
    """A place where jobs run, several at once."""

    def slots(self) -> int:
        """Return how many jobs it can run at once; it may grow and shrink."""

    def submit(self, job: Job) -> None:
        """Begin a job."""

    def collect(self) -> list[Ended]:
        """Return the jobs that have ended since the last call, without waiting."""

    def stop(self, *, at_once: bool = False) -> None:
        """Tell all jobs to stop: after a checkpoint, or at once."""

    def close(self) -> None:
        """Leave nothing behind."""


# What a worker is to do: go on, stop after a checkpoint, stop at once.
Wish = Literal["go on", "stop", "stop at once"]

LOG = "launch.log"
_LOCK = ".launch.lock"
_SECONDS = 0.1  # between two looks at a process
_LONGEST = 300  # characters of an error line
_FORWARDED = ("ASRNORM_DATA", "ASRNORM_CACHE", BACKEND_VARIABLE, DEVICE_VARIABLE, "ASRNORM_COMMIT", "PYTHONPATH")
_LEASH = str(Path(__file__).with_name("die_with_parent.py"))


def work(job: Job, environment: Mapping[str, str], wish: Callable[[], Wish], place: Path | None = None) -> Ended:
    """Do what is missing of a job, and say how it ended; nothing is raised.

    Args:
        job: what to do.
        environment: of the processes.
        wish: asked a few times a second.
        place: the working directory of the processes.
    """
    try:
        job.folder.mkdir(parents=True, exist_ok=True)
        with (job.folder / _LOCK).open("ab") as lock:  # against other launches, for evaluations too
            take_lock(lock)
            return _work(job, environment, wish, place)
    except BlockingIOError:
        return Ended(job, "busy")
    except (AsrnormError, OSError) as error:
        return Ended(job, "failed", _shorten(str(error)))


def forwarded(*, on_gpu: bool = False) -> tuple[dict[str, str], str]:
    """Return what `work_there` is to know of this process: where data and code lie, and its working directory.

    Args:
        on_gpu: the job was given a GPU, and must not turn to the CPU where that cannot be used.
    """
    known = {name: os.environ[name] for name in _FORWARDED if name in os.environ}
    return {DEVICE_VARIABLE: "cuda", **known} if on_gpu else known, str(Path.cwd())


def work_there(job: Job, environment: Mapping[str, str], place: str) -> Ended:
    """Do a job on another machine, whose own settings go before those of the one that launched it."""
    folder = Path(place)
    return work(job, {**environment, **os.environ}, lambda: "go on", folder if folder.is_dir() else None)


def _work(job: Job, environment: Mapping[str, str], wish: Callable[[], Wish], place: Path | None) -> Ended:
    failed: str | None = None
    for piece in job.missing():
        if wish() != "go on":
            return Ended(job, "stopped")
        if piece.label == "train":
            if job.is_busy():
                return Ended(job, "busy")
            _write_config(job)
        error = _run(job, piece, environment, wish, place)
        if error is not None and job.has_diverged():
            return Ended(job, "done")
        if error is not None and piece.label == "train" and job.is_busy():  # by a command of its own, meanwhile
            return Ended(job, "busy")
        if error is not None and wish() != "go on":
            return Ended(job, "stopped", error)
        if error is not None and piece.label == "train":
            return Ended(job, "failed", error)
        failed = failed or error  # what else is made of the run does not need this piece
    if failed:
        return Ended(job, "failed", failed)
    left = job.missing()
    if left:
        return Ended(job, "failed", f"{left[0].label} ended well but left no {left[0].product.name} for this config")
    return Ended(job, "done")


def _write_config(job: Job) -> None:
    with replacing(job.folder / "launch.yaml") as temporary:
        temporary.write_text(dump_config(job.config), encoding="utf-8")


def _run(
    job: Job, piece: Piece, environment: Mapping[str, str], wish: Callable[[], Wish], place: Path | None
) -> str | None:
    """Run one command; return its error line, `None` where it ended well."""
    with (job.folder / LOG).open("ab") as log:
        start = log.tell()
        log.write(f"# {time.strftime('%Y-%m-%d %H:%M:%S')} {os.uname().nodename}: {piece.label}\n".encode())
        log.flush()
        # A session of its own: Ctrl-C on the terminal is for the launcher, which tells each process once.
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", _LEASH, str(os.getpid()), sys.executable, "-m", job.module, *piece.words],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=dict(environment),
            cwd=place,
            start_new_session=True,
        )
        try:
            _wait(process, wish)
        finally:  # an exception, such as the KeyboardInterrupt by which Ray cancels
            if process.poll() is None:
                process.terminate()
                process.wait()
    return None if process.returncode == 0 else describe_failure(job.folder / LOG, start, process.returncode)


def _wait(process: "subprocess.Popen[bytes]", wish: Callable[[], Wish]) -> None:
    told = False
    while True:
        try:
            process.wait(_SECONDS)
        except subprocess.TimeoutExpired:
            wanted = wish()
            if wanted == "stop at once":
                process.kill()
            elif wanted == "stop" and not told:
                process.terminate()
                told = True
        else:
            return


def describe_failure(log: Path, start: int, status: int) -> str:
    """Return one line for a process that failed: its own error line, or how it ended.

    Args:
        log: what it wrote, among others.
        start: where its part begins.
        status: its return code, negative where a signal ended it.
    """
    with log.open("rb") as file:
        file.seek(start)
        lines = file.read().decode(errors="replace").splitlines()[1:]
    if status == -9:
        return "killed by signal 9, as the system does when memory runs out"
    if status < 0:
        return f"killed by signal {-status}"
    said = [line.removeprefix("asrnorm: ") for line in lines if line.startswith("asrnorm: ")]
    return _shorten((said or [line for line in lines if line.strip()] or [f"exit status {status}"])[-1])


def last_line(error: BaseException) -> str:
    r"""Return the last line of an error's text, which is where a traceback in text says what went wrong.

    Example:
        >>> last_line(ValueError("Traceback\n  File\nKeyError: 'x'\n"))
        "KeyError: 'x'"
    """
    lines = [line for line in str(error).splitlines() if line.strip()]
    return _shorten(lines[-1] if lines else type(error).__name__)


def _shorten(line: str) -> str:
    text = " ".join(line.split())
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
