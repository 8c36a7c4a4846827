"""How many processor cores there are to work with."""

import os


def count_cores() -> int:
    """Return how many cores this process may use, which on a shared machine are fewer than it has.

    Example:
        >>> count_cores() >= 1
        True
    """
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
