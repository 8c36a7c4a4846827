"""A job: one run with its evaluations and analyses, what is missing of it, and how it is executed.

Each command of a job is a process of its own that writes to `launch.log` in the run folder.
"""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from asrnorm.core.config import RunConfig, content_hash, dump_config, override
from asrnorm.core.errors import AsrnormError
from asrnorm.core.files import open_to_append, take_lock, write_whole
from asrnorm.core.settings import BACKEND_VARIABLE, DEVICE_VARIABLE
from asrnorm.studies.spec import ANALYSIS_FILES, DIVERGENCE_FILE, Evaluation
from asrnorm.studies.store import holds_result

if TYPE_CHECKING:
    from asrnorm.studies.plan import Plan


class Command(NamedTuple):
    """A command of a job: its name on the screen, its arguments after `asrnorm`, and the file it leaves when done."""

    label: str
    words: tuple[str, ...]
    product: Path


@dataclass(frozen=True, kw_only=True)
class Job:
    """One run with its further evaluations and analyses.

    If it `may_diverge`, a non-finite loss is a valid outcome, recorded in `DIVERGENCE_FILE`; nothing runs after it.
    """

    config: RunConfig
    folder: Path
    evaluations: tuple[Evaluation, ...] = ()  # each leaves `evaluations/<name>.json`
    analyses: tuple[str, ...] = ()  # keys of `ANALYSIS_FILES`
    kept: frozenset[str] = frozenset()  # labels of commands whose results are kept in `results/`
    may_diverge: bool = False
    module: str = "asrnorm"  # for `python -m`; another one may register its own entries first
    imports: tuple[str, ...] = ()  # modules that each command imports first (`--import`)

    def __hash__(self) -> int:
        return hash(self.folder)  # configs hold dicts

    @property
    def name(self) -> str:
        """Name of the run folder, unique among jobs."""
        return self.folder.name

    def commands(self) -> tuple[Command, ...]:
        """Return the commands of the job in order; the first trains, the others need its result."""
        device = [] if self.config.device == "auto" else ["--set", f"device={self.config.device}"]
        own = [word for name in self.imports for word in ("--import", name)]
        folder = str(self.folder)
        words = ("train", "--config", str(self.folder / CONFIG), "--out", folder, *own)
        commands = [Command("train", words, self.folder / "result.json")]
        for evaluation in self.evaluations:
            changes = []
            for name, value in evaluation.overrides.items():
                changes += ["--set", f"{name}={value if isinstance(value, str) else json.dumps(value)}"]
            words = ("evaluate", folder, "--as", evaluation.name, "--renew", *device, *changes, *own)
            product = self.folder / "evaluations" / f"{evaluation.name}.json"
            commands.append(Command(evaluation.name, words, product))
        for analysis in self.analyses:
            words = ("evaluate", folder, f"--{analysis}", *device, *own)
            commands.append(Command(analysis, words, self.folder / ANALYSIS_FILES[analysis]))
        return tuple(commands)

    def missing(self) -> tuple[Command, ...]:
        """Return the commands whose files do not exist yet; none after an accepted divergence."""
        if self.has_diverged():
            return ()
        hashes = {one.name: content_hash(override(self.config, one.overrides)) for one in self.evaluations}
        hashes["train"] = content_hash(self.config)

        def is_done(label: str, product: Path) -> bool:
            # An evaluation of that name may come from an earlier study with another config.
            return holds_result(product, hashes[label]) if label in hashes else product.is_file()

        commands = (command for command in self.commands() if command.label not in self.kept)
        return tuple(command for command in commands if not is_done(command.label, command.product))

    @property
    def is_kept(self) -> bool:
        """Whether the result of the run is kept in `results/`."""
        return "train" in self.kept

    def has_diverged(self) -> bool:
        """Tell whether the run ended with a non-finite loss and may do so."""
        if (self.folder / "result.json").is_file():  # a later attempt finished
            return False
        return self.may_diverge and (self.folder / DIVERGENCE_FILE).is_file()

    def drop_pool(self) -> None:
        """Remove the generated images of a finished run, which a process killed after its result has left."""
        if (self.folder / "result.json").is_file():
            for folder in (self.folder, self.folder / "choice"):
                shutil.rmtree(folder / "pool", ignore_errors=True)

    def is_busy(self) -> bool:
        """Tell whether another process, on this machine or one that shares the folder, works on the run."""
        try:
            with (self.folder / ".lock").open("rb") as lock:
                take_lock(lock, shared=True)
        except BlockingIOError:
            return True
        except OSError:  # the folder does not exist yet
            pass
        return False


def gather_jobs(*plans: "Plan", imports: tuple[str, ...] = ()) -> tuple[Job, ...]:
    """Return a job for every run folder of the plans, with all evaluations and analyses that the plans have of it."""
    jobs: dict[Path, Job] = {}
    for plan in plans:
        for folder, job in _jobs_of(plan, imports).items():
            jobs[folder] = _join(jobs[folder], job) if folder in jobs else job
    return tuple(jobs.values())


def _jobs_of(plan: "Plan", imports: tuple[str, ...]) -> dict[Path, Job]:
    jobs: dict[Path, Job] = {}
    for task in plan.tasks:  # a run comes before its evaluations
        new = Job(config=task.config, folder=task.folder, may_diverge=task.spec.may_diverge, imports=imports)
        job, label = jobs.get(task.folder, new), "train"
        if task.analysis is not None:
            job, label = replace(job, analyses=(*job.analyses, task.analysis)), task.analysis
        elif task.spec.evaluation is not None:
            evaluation = task.spec.evaluation
            job, label = replace(job, evaluations=(*job.evaluations, evaluation)), evaluation.name
        jobs[task.folder] = replace(job, kept=job.kept | {label}) if task.state == "kept" else job
    return jobs


def _join(one: Job, other: Job) -> Job:
    """Return the union of two jobs of the same run."""
    return replace(
        one,
        evaluations=(*one.evaluations, *(extra for extra in other.evaluations if extra not in one.evaluations)),
        analyses=tuple(dict.fromkeys((*one.analyses, *other.analyses))),
        # If one of them has to train, everything is computed from that training.
        kept=one.kept | other.kept if one.is_kept == other.is_kept else frozenset(),
        may_diverge=one.may_diverge or other.may_diverge,
    )


Status = Literal["done", "failed", "stopped", "busy", "lost"]


@dataclass(frozen=True)
class Ended:
    """How a job ended."""

    job: Job
    status: Status  # `busy` if another process works on it; `lost` if its machine is gone
    error: str = ""  # one line, for a job that failed or was lost


class Executor(Protocol):
    """Runs jobs, several at once."""

    def slots(self) -> int:
        """Return how many jobs it can run at once; this may change over time."""

    def submit(self, job: Job) -> None:
        """Start a job."""

    def collect(self) -> list[Ended]:
        """Return the jobs that have ended since the last call, without waiting."""

    def stop(self, *, at_once: bool = False) -> None:
        """Stop all jobs: after a checkpoint, or at once."""

    def close(self) -> None:
        """Release all resources."""


# What a worker should do now: continue, stop after a checkpoint, or stop at once.
Request = Literal["continue", "stop", "stop at once"]

CONFIG, LOG = "launch.yaml", "launch.log"
_LOCK = ".launch.lock"
_SECONDS = 0.1  # between two polls of a process
_LONGEST = 300  # characters of an error line
_FORWARDED = ("ASRNORM_DATA", "ASRNORM_CACHE", BACKEND_VARIABLE, DEVICE_VARIABLE, "ASRNORM_COMMIT", "PYTHONPATH")
_DIE_WITH_PARENT = (sys.executable, "-I", "-S", str(Path(__file__).with_name("die_with_parent.py")))


def execute(
    job: Job, environment: Mapping[str, str], request: Callable[[], Request], directory: Path | None = None
) -> Ended:
    """Run the missing commands of a job, in processes with this environment and working directory.

    `request` is called a few times a second and says whether to continue. Errors are returned, never raised.
    """
    try:
        job.folder.mkdir(parents=True, exist_ok=True)
        with open_to_append(job.folder / _LOCK) as lock:  # keeps other launches out, for evaluations too
            take_lock(lock)
            return _execute(job, environment, request, directory)
    except BlockingIOError:
        return Ended(job, "busy")
    except (AsrnormError, OSError) as error:
        return Ended(job, "failed", _shorten(str(error)))


def forwarded(*, on_gpu: bool = False) -> tuple[dict[str, str], str]:
    """Return what `execute_remotely` needs from this process: environment variables and the working directory.

    A job with a GPU (`on_gpu`) must not fall back to the CPU.
    """
    known = {name: os.environ[name] for name in _FORWARDED if name in os.environ}
    return {DEVICE_VARIABLE: "cuda", **known} if on_gpu else known, str(Path.cwd())


def execute_remotely(job: Job, environment: Mapping[str, str], directory: str) -> Ended:
    """Execute a job on another machine, whose own environment variables take precedence over those forwarded."""
    folder = Path(directory)
    return execute(job, {**environment, **os.environ}, lambda: "continue", folder if folder.is_dir() else None)


def _execute(job: Job, environment: Mapping[str, str], request: Callable[[], Request], directory: Path | None) -> Ended:
    failed: str | None = None
    for command in job.missing():
        if request() != "continue":
            return Ended(job, "stopped")
        if command.label == "train":
            if job.is_busy():
                return Ended(job, "busy")
            write_whole(job.folder / CONFIG, dump_config(job.config), follow_links=False)
        error = _run(job, command, environment, request, directory)
        if error is None:
            continue
        if job.has_diverged():
            return Ended(job, "done")
        if command.label == "train" and job.is_busy():  # another process has just taken it
            return Ended(job, "busy")
        if request() != "continue":
            return Ended(job, "stopped", error)
        if command.label == "train":
            return Ended(job, "failed", error)
        failed = failed or error  # the other commands do not need this one
    if failed:
        return Ended(job, "failed", failed)
    left = job.missing()
    if left:
        return Ended(job, "failed", f"{left[0].label} succeeded but wrote no {left[0].product.name} for this config")
    return Ended(job, "done")


def _run(
    job: Job, command: Command, environment: Mapping[str, str], request: Callable[[], Request], directory: Path | None
) -> str | None:
    """Run one command; return its error line, or `None` on success."""
    with open_to_append(job.folder / LOG) as log:
        start = log.tell()
        log.write(f"# {time.strftime('%Y-%m-%d %H:%M:%S')} {os.uname().nodename}: {command.label}\n".encode())
        log.flush()
        # A session of its own: Ctrl-C on the terminal reaches only the launcher, which signals each process once.
        process = subprocess.Popen(
            [*_DIE_WITH_PARENT, str(os.getpid()), sys.executable, "-m", job.module, *command.words],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=dict(environment),
            cwd=directory,
            start_new_session=True,
        )
        try:
            _wait(process, request)
        finally:  # for instance after the KeyboardInterrupt by which Ray cancels a task
            if process.poll() is None:
                process.terminate()
                process.wait()
    return None if process.returncode == 0 else describe_failure(job.folder / LOG, start, process.returncode)


def _wait(process: "subprocess.Popen[bytes]", request: Callable[[], Request]) -> None:
    terminated = False
    while True:
        with suppress(subprocess.TimeoutExpired):
            process.wait(_SECONDS)
            return
        wanted = request()
        if wanted == "stop at once":
            process.kill()
        elif wanted == "stop" and not terminated:
            process.terminate()
            terminated = True


def describe_failure(log: Path, start: int, status: int) -> str:
    """Return one line for a failed process, whose output begins at `start` in the log.

    It is its own error line, or says its return code, which is negative if a signal ended it.
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
    """Return the last line of an error's text, where a traceback names the exception."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    return _shorten(lines[-1] if lines else type(error).__name__)


def _shorten(line: str) -> str:
    text = " ".join(line.split())
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
