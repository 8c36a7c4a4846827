"""What a grow phase tells on its way, so that minutes of it can be shown and stopped."""

from collections.abc import Callable

Watch = Callable[[float], None]
"""Takes the part of a grow phase that is done, 0 to 1; may raise, to give the phase up."""


def look_on(done: float) -> None:
    """Do nothing about it."""
