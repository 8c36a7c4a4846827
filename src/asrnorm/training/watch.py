"""Looking on while a method grows: how far it is, and stopping in the midst of it."""

from collections.abc import Iterator
from contextlib import contextmanager

from asrnorm.methods import Method
from asrnorm.training.interruption import Interruption
from asrnorm.training.progress import RunProgress


class GivenUp(Exception):  # noqa: N818
    """A grow phase was left before its end; nothing of it lasts, and it is due again."""


@contextmanager
def watched(method: Method, progress: RunProgress, interruption: Interruption) -> Iterator[None]:
    """Show how far each grow phase is, and end it where the run is to stop.

    Several processes see it to its end: each has a part of the work, and they would wait for each other.

    Args:
        method: whose phases.
        progress: on the screen.
        interruption: notes who asks to stop.

    Raises:
        GivenUp: from within a phase, where stopping was asked for.
    """

    def watch(done: float) -> None:
        progress.grow(done)
        if interruption.asked and method.world.size == 1:
            raise GivenUp

    method.watch = watch
    try:
        yield
    finally:
        del method.watch
