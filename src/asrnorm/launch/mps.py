"""An MPS daemon of one's own for the time of a block; without it the driver lets processes on a GPU take turns.

Source: NVIDIA, Multi-Process Service, https://docs.nvidia.com/deploy/mps. Nothing here needs torch.
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

VARIABLE = "ASRNORM_MPS"
"""Environment variable that switches the service off where it says `0`."""

MOST_CLIENTS = 48
"""Processes that one daemon serves on a GPU."""

Way = Literal["MPS", "time slices"]

_CONTROL = "nvidia-cuda-mps-control"
_PIPE, _LOG, _VISIBLE = "CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY", "CUDA_VISIBLE_DEVICES"
_DEFAULT_PIPE = Path("/tmp/nvidia-mps")  # where CUDA looks if the variable is not set
_LONGEST = 40  # characters of the temporary folder: the name of a UNIX socket may have 107
_KEEPER = str(Path(__file__).with_name("mps_daemon.py"))
_PROBE = str(Path(__file__).with_name("mps_probe.py"))
_ANSWER_SECONDS, _START_SECONDS, _PROBE_SECONDS, _QUIT_SECONDS, _SPARE_SECONDS = 5.0, 20.0, 60.0, 15.0, 10.0
_log = logging.getLogger(__name__)


class Sharing(NamedTuple):
    """How processes share a GPU.

    Attributes:
        way: at the same time, or in turns.
        variables: by GPU, what the environment of a process on it must hold; nothing where it is to stay as it is.
    """

    way: Way
    variables: Mapping[str, Mapping[str, str]]


TURNS = Sharing("time slices", {})
"""Nothing is done: the driver lets processes take turns."""


@contextmanager
def share_gpus(gpus: Sequence[str], clients: int, environment: Mapping[str, str] | None = None) -> Iterator[Sharing]:
    """Let processes use GPUs at the same time within a block; where that cannot be had, they take turns as ever.

    The daemon ends with the block, and with this process however that ends. A user's own daemon is left alone.

    Args:
        gpus: as `CUDA_VISIBLE_DEVICES` names them.
        clients: the most processes on one GPU; with one there is nothing to share.
        environment: of the processes; this one's where `None`.

    Example:
        >>> with share_gpus(["0"], clients=1) as sharing:
        ...     print(sharing.way)
        time slices
    """
    own = dict(os.environ if environment is None else environment)
    if not gpus or clients < 2 or own.get(VARIABLE, "").lower() in ("0", "no", "off", "false"):
        yield TURNS
        return
    control = shutil.which(_CONTROL, path=own.get("PATH"))
    running = _is_running(control, own)
    if running or _PIPE in own:
        _log.info("processes on one GPU are left to the MPS settings that are there")
        yield Sharing("MPS", {}) if running else TURNS
        return
    if control is None or clients > MOST_CLIENTS:
        reason = f"no {_CONTROL} on the PATH" if control is None else f"MPS serves {MOST_CLIENTS}, not {clients}"
        _log.info("processes on one GPU take turns: %s", reason)
        yield TURNS
        return
    with _keep_daemon(control, gpus, own) as variables:
        yield Sharing("MPS", variables) if variables else TURNS


def visible_gpu(index: int = 0, environment: Mapping[str, str] | None = None) -> str:
    """Return the name of this process's GPU of that index, as `CUDA_VISIBLE_DEVICES` takes it.

    Example:
        >>> visible_gpu(1, {"CUDA_VISIBLE_DEVICES": "3,5"}), visible_gpu(1, {})
        ('5', '1')
    """
    names = (os.environ if environment is None else environment).get(_VISIBLE, "").split(",")
    return names[index].strip() if any(names) and index < len(names) else str(index)


def _is_running(control: str | None, environment: Mapping[str, str]) -> bool:
    """Return whether CUDA would find a daemon as things are."""
    if not (Path(environment.get(_PIPE) or _DEFAULT_PIPE) / "control").exists():
        return False
    if control is None:  # a container may be given the daemon of its host, but not the program
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
    return True  # one that hangs is no place for a second one beside it


@contextmanager
def _keep_daemon(
    control: str, gpus: Sequence[str], environment: Mapping[str, str]
) -> Iterator[dict[str, dict[str, str]]]:
    """Give the variables by GPU, none where the daemon or a first process under it failed."""
    # The daemon sees these GPUs alone and numbers them anew, and its clients count by its numbers.
    names = {gpu: str(index) if gpu.isdigit() else gpu for index, gpu in enumerate(gpus)}
    try:
        folder = _make_folder()
        variables = {_PIPE: str(folder / "pipe"), _LOG: str(folder / "log")}
        seconds = [str(value) for value in (_START_SECONDS, _PROBE_SECONDS, _QUIT_SECONDS)]
        keeper = subprocess.Popen(
            [sys.executable, "-I", "-S", _KEEPER, control, str(folder), _PROBE, ",".join(names.values()), *seconds],
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
        said = _hear(keeper)
        if said == "ready":
            _log.info("processes on one GPU run at the same time, by MPS")
            yield {gpu: {**variables, _VISIBLE: name} for gpu, name in names.items()}
        else:
            _log.warning("processes on one GPU take turns: MPS did not start: %s", said or "its keeper died")
            yield {}
    finally:
        _dismiss(keeper)


def _hear(keeper: "subprocess.Popen[bytes]") -> str:
    return keeper.stdout.readline().decode(errors="replace").strip() if keeper.stdout else ""


def _dismiss(keeper: "subprocess.Popen[bytes]") -> None:
    """Close what the keeper listens to, at which it ends the daemon, and wait for that."""
    for stream in (keeper.stdin, keeper.stdout):
        if stream is not None:
            stream.close()
    try:
        keeper.wait(2 * _QUIT_SECONDS + _SPARE_SECONDS)
    except subprocess.TimeoutExpired:
        _log.warning("the MPS daemon does not end; process %d goes on trying", keeper.pid)


def _make_folder() -> Path:
    short = tempfile.gettempdir() if len(tempfile.gettempdir()) <= _LONGEST else "/tmp"
    folder = Path(tempfile.mkdtemp(prefix="asrnorm-", dir=short))
    for name in ("pipe", "log"):
        (folder / name).mkdir()
    return folder
