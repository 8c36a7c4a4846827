"""Stopping when told to: Ctrl-C and SIGTERM end the current step, not the process, so that a checkpoint is written.

Looking on while a method grows: how far it is, and stopping in the midst of it.
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import torch

from asrnorm.core.distributed import World
from asrnorm.methods import Method
from asrnorm.training.log import RunProgress

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_AGREE_EVERY = 10  # steps between two questions to the other processes whether to stop


class Interruption:
    """Notes the first signal for the length of a `with` block; a second Ctrl-C stops at once.

    Example:
        >>> with Interruption() as interruption:
        ...     interruption.asked
        False
    """

    def __init__(self) -> None:
        self.asked = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "Interruption":
        if threading.current_thread() is threading.main_thread():  # Python hands signals to no other
            self._before = {number: signal.signal(number, self._note) for number in _SIGNALS}
        return self

    def __exit__(self, *exception: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def is_agreed(self, world: World, step: int, device: torch.device) -> bool:
        """Tell whether the run stops after a step; processes ask each other now and then, and all get one answer."""
        if world.size == 1:
            return self.asked
        if step % _AGREE_EVERY:
            return False
        return bool(world.sum(torch.tensor(int(self.asked), device=device)))

    def _note(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        if self.asked and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.asked = True


class PhaseInterrupted(Exception):  # noqa: N818
    """A grow phase was interrupted; it has changed nothing that lasts, and is due again."""


@contextmanager
def reporting_progress(method: Method, progress: RunProgress, interruption: Interruption) -> Iterator[None]:
    """Show the progress of the method's grow phases, and interrupt a phase if the run is to stop.

    With several processes a phase runs to its end: each does a part of the work, and they would wait for each other.

    Raises:
        PhaseInterrupted: from within a phase.
    """

    def on_progress(done: float) -> None:
        progress.grow(done)
        if interruption.asked and method.world.size == 1:
            raise PhaseInterrupted

    method.on_progress = on_progress
    try:
        yield
    finally:
        del method.on_progress
