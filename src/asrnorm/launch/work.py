"""The work on one job: its commands one after the other, each a process of its own, their words in `launch.log`."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal

from asrnorm.config import dump_config
from asrnorm.diagnosis import BACKEND_VARIABLE, DEVICE_VARIABLE
from asrnorm.errors import AsrnormError
from asrnorm.launch.executor import Ended
from asrnorm.launch.job import Job, Piece
from asrnorm.lock import take_lock
from asrnorm.storage import replacing

# What a worker is to do: go on, stop after a checkpoint, stop at once.
Wish = Literal["go on", "stop", "stop at once"]

LOG = "launch.log"
_LOCK = ".launch.lock"
_SECONDS = 0.1  # between two looks at a process
_LONGEST = 300  # characters of an error line
_FORWARDED = ("ASRNORM_DATA", "ASRNORM_CACHE", BACKEND_VARIABLE, DEVICE_VARIABLE, "ASRNORM_COMMIT", "PYTHONPATH")
_LEASH = str(Path(__file__).with_name("leash.py"))


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
