"""Script that runs an MPS daemon for as long as its parent process lives.

Usage: `python mps_daemon.py CONTROL FOLDER PROBE GPUS START TRY QUIT`, the last three in seconds, with the daemon's
variables in the environment. It starts the daemon and a first process under it, prints `ready` or one line with the
error, and waits for the end of its standard input, which comes when the parent closes it or dies, even by SIGKILL.
Then it ends the daemon and removes the folder. Everything but that wait has a time limit.
"""

import os
import select
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

_LOOK = 0.05  # seconds between two polls
_GONE_SECONDS = 3.0  # for a daemon to end after it was told to
_QUIT = ("quit -t 5", "quit")  # clients that are left lose their GPU after five seconds; old drivers know no -t
_COMMAND = "nvidia-cuda-mps"  # of daemon and server, as the kernel cuts names
_LONGEST = 200  # characters of the line


class FailedError(Exception):
    """The daemon could not be started; one line."""


def main(words: list[str]) -> int:
    """Run a daemon; return 0 once it has ended."""
    # Runs that write their last checkpoint still need the daemon. SIG_IGN would be inherited by the daemon's server.
    for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(name, lambda number, frame: None)  # noqa: ARG005
    control, folder, probe, gpus = words[0], Path(words[1]), words[2], words[3]
    start, try_out, quit_ = map(float, words[4:7])
    try:
        line = "ready"
        try:
            run([control, "-d"], folder / "said", start, dict(os.environ))
            environment = {**os.environ, "CUDA_VISIBLE_DEVICES": gpus}
            run([sys.executable, "-P", probe, control], folder / "said", try_out, environment)
        except (FailedError, OSError) as failure:
            line = " ".join(str(failure).split())[:_LONGEST]
        with suppress(OSError):  # the parent is gone
            os.write(1, f"{line}\n".encode())
        if line == "ready":
            wait_for_the_end(None)
    finally:
        end_daemon(control, folder / "pipe", quit_)
        shutil.rmtree(folder, ignore_errors=True)
    return 0


def run(words: list[str], log: Path, seconds: float, environment: dict[str, str]) -> None:
    """Run a command; raise `FailedError` if it failed or took too long, or the parent is gone."""
    name = Path(words[0] if words[-1] == "-d" else words[2]).name
    # A file, not a pipe: a daemon may keep it open, and the end of a pipe would never come.
    with log.open("wb") as file:
        process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=file, stderr=file, env=environment, start_new_session=True
        )
        problem = wait_for_the_end(process, seconds)
        if problem:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise FailedError(f"{name} {problem}")
    if process.returncode != 0:
        said = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
        raise FailedError(said[-1] if said else f"{name} ended with status {process.returncode}")


def wait_for_the_end(process: "subprocess.Popen[bytes] | None", seconds: float = 0.0) -> str:
    """Wait for a process, or for the end of standard input if `None`; return what interrupted the wait, if anything."""
    deadline = time.monotonic() + seconds
    while process is None or process.poll() is None:
        if select.select([0], [], [], None if process is None else _LOOK)[0] and not os.read(0, 1024):
            return "is no longer needed"
        if process is not None and time.monotonic() > deadline:
            return f"took more than {seconds:g} s"
    return ""


def end_daemon(control: str, pipe: Path, seconds: float) -> None:
    """Tell the daemon to quit, then kill the processes that remain."""
    for word in _QUIT:
        try:
            told = subprocess.run(
                [control],
                input=f"{word}\n".encode(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=seconds,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            break
        if told.returncode == 0:
            break
    deadline = time.monotonic() + _GONE_SECONDS
    while find_processes(pipe) and time.monotonic() < deadline:
        time.sleep(_LOOK)
    for process in find_processes(pipe):
        with suppress(OSError):
            os.kill(process, signal.SIGKILL)


def find_processes(pipe: Path) -> list[int]:
    """Return the process ids of the daemon and the servers of a pipe directory."""
    wanted = f"CUDA_MPS_PIPE_DIRECTORY={pipe}".encode()
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # the process has ended, or belongs to another user
            if (folder / "comm").read_text().startswith(_COMMAND):
                state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
                if state != "Z" and wanted in (folder / "environ").read_bytes().split(b"\0"):
                    found.append(int(folder.name))
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
