"""SIGTERM, which Slurm, systemd and a launch send, as Ctrl-C: what was begun is left in order.

Training does more, in `training/interruption.py`: it writes a checkpoint first.
"""

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType


@contextmanager
def terminating_in_order() -> Iterator[None]:
    """Raise `KeyboardInterrupt` on SIGTERM within the block, and let the GPU finish what it was given before it ends.

    A process that dies outright leaves temporary files, and under MPS can take down others that share its GPU.

    Example:
        >>> with terminating_in_order():
        ...     signal.getsignal(signal.SIGTERM) is _interrupt
        True
    """
    is_ours = threading.current_thread() is threading.main_thread() and _is_default()
    if is_ours:
        signal.signal(signal.SIGTERM, _interrupt)
    try:
        yield
    finally:
        _await_gpu()
        if is_ours:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _is_default() -> bool:
    return signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def _interrupt(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
    raise KeyboardInterrupt


def _await_gpu() -> None:
    torch = sys.modules.get("torch")  # where it was not needed, it is not imported for this
    if torch is not None and torch.cuda.is_initialized():
        with suppress(RuntimeError):  # a GPU that has failed has nothing left to finish
            torch.cuda.synchronize()
