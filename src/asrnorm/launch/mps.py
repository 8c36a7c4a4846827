"""Share a GPU between processes with an MPS daemon; without one the driver time-slices them.

Source: NVIDIA, Multi-Process Service, https://docs.nvidia.com/deploy/mps. Needs no torch.
"""

import logging
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal, NamedTuple

VARIABLE = "ASRNORM_MPS"  # environment variable; `0` turns MPS off
MOST_CLIENTS = 48  # processes of one daemon on a GPU

Way = Literal["MPS", "time slices"]

_CONTROL = "nvidia-cuda-mps-control"
_PIPE, _LOG, _VISIBLE = "CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY", "CUDA_VISIBLE_DEVICES"
_DEFAULT_PIPE = Path("/tmp/nvidia-mps")  # where CUDA looks if the variable is not set
_LONGEST = 40  # characters of the temporary folder: the name of a UNIX socket may have 107
_DAEMON = str(Path(__file__).with_name("mps_daemon.py"))
_PROBE = str(Path(__file__).with_name("mps_probe.py"))
_ANSWER_SECONDS, _START_SECONDS, _PROBE_SECONDS, _QUIT_SECONDS, _SPARE_SECONDS = 5.0, 20.0, 60.0, 15.0, 10.0
_log = logging.getLogger(__name__)


class Sharing(NamedTuple):
    """How processes share a GPU: concurrently (MPS) or in time slices."""

    way: Way
    variables: Mapping[str, Mapping[str, str]]  # of the environment, for the processes on each GPU


TURNS = Sharing("time slices", {})


@contextmanager
def share_gpus(gpus: Sequence[str], clients: int, environment: Mapping[str, str] | None = None) -> Iterator[Sharing]:
    """Let processes use GPUs concurrently during a block; fall back to time slices where MPS is unavailable.

    GPUs are named as in `CUDA_VISIBLE_DEVICES`; `clients` is the most processes on one of them. The daemon ends with
    the block, and with this process however it ends. A daemon of the user is left alone.
    """
    own = dict(os.environ if environment is None else environment)
    if not gpus or clients < 2 or own.get(VARIABLE, "").lower() in ("0", "no", "off", "false"):
        yield TURNS
        return
    control = shutil.which(_CONTROL, path=own.get("PATH"))
    running = _is_running(control, own)
    if running or _PIPE in own:
        _log.info("processes on one GPU use the existing MPS settings")
        yield Sharing("MPS", {}) if running else TURNS
        return
    if control is None or clients > MOST_CLIENTS:
        reason = f"no {_CONTROL} on the PATH" if control is None else f"MPS serves {MOST_CLIENTS}, not {clients}"
        _log.info("processes on one GPU take turns: %s", reason)
        yield TURNS
        return
    with _keep_daemon(control, gpus, own) as variables:
        yield Sharing("MPS", variables) if variables else TURNS


def visible_gpu(index: int = 0) -> str:
    """Return the `CUDA_VISIBLE_DEVICES` name of the GPU with this index in this process."""
    names = os.environ.get(_VISIBLE, "").split(",")
    return names[index].strip() if any(names) and index < len(names) else str(index)


def _is_running(control: str | None, environment: Mapping[str, str]) -> bool:
    """Tell whether CUDA would find a running daemon."""
    if not (Path(environment.get(_PIPE) or _DEFAULT_PIPE) / "control").exists():
        return False
    if control is None:  # a container may have the daemon of its host but not the program
        return True
    with suppress(OSError, subprocess.TimeoutExpired):
        # A socket whose daemon was killed answers with status 1.
        asked = subprocess.run(
            [control],
            input=b"get_server_list\n",
            env=dict(environment),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_ANSWER_SECONDS,
            check=False,
        )
        return asked.returncode == 0
    return True  # do not start a second daemon beside one that hangs


@contextmanager
def _keep_daemon(
    control: str, gpus: Sequence[str], environment: Mapping[str, str]
) -> Iterator[dict[str, dict[str, str]]]:
    """Yield the variables by GPU, or nothing if the daemon or a first process under it failed."""
    # The daemon sees only these GPUs and renumbers them; its clients use its numbers.
    names = {gpu: str(index) if gpu.isdigit() else gpu for index, gpu in enumerate(gpus)}
    try:
        short = tempfile.gettempdir() if len(tempfile.gettempdir()) <= _LONGEST else "/tmp"
        folder = Path(tempfile.mkdtemp(prefix="asrnorm-", dir=short))
        for name in ("pipe", "log"):
            (folder / name).mkdir()
        variables = {_PIPE: str(folder / "pipe"), _LOG: str(folder / "log")}
        seconds = [str(value) for value in (_START_SECONDS, _PROBE_SECONDS, _QUIT_SECONDS)]
        daemon = subprocess.Popen(
            [sys.executable, "-I", "-S", _DAEMON, control, str(folder), _PROBE, ",".join(names.values()), *seconds],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**environment, **variables, _VISIBLE: ",".join(gpus)},
            start_new_session=True,  # Ctrl-C on the terminal is for this process, whose runs still need the daemon
        )
    except OSError as error:
        _log.warning("processes on one GPU take turns: MPS did not start: %s", error)
        yield {}
        return
    try:
        said = daemon.stdout.readline().decode(errors="replace").strip() if daemon.stdout else ""
        if said == "ready":
            _log.info("processes on one GPU run at the same time, by MPS")
            yield {gpu: {**variables, _VISIBLE: name} for gpu, name in names.items()}
        else:
            _log.warning("processes on one GPU take turns: MPS did not start: %s", said or "its parent died")
            yield {}
    finally:  # the end of its standard input makes the process end the daemon
        for stream in (daemon.stdin, daemon.stdout):
            if stream is not None:
                stream.close()
        try:
            daemon.wait(2 * _QUIT_SECONDS + _SPARE_SECONDS)
        except subprocess.TimeoutExpired:
            _log.warning("the MPS daemon does not end; process %d keeps trying", daemon.pid)
