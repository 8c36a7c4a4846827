"""Settings of this machine: environment variables, the data folder, how many cores a process may use."""

import os
from pathlib import Path

DATA_VARIABLE = "ASRNORM_DATA"
"""Environment variable that names the folder of data sets."""

BACKEND_VARIABLE = "ASRNORM_BACKEND"
"""Environment variable that chooses the implementation of norm layers and of augmentations."""

BACKENDS = ("auto", "reference", "triton")
"""The values of `ASRNORM_BACKEND`."""

DEVICE_VARIABLE = "ASRNORM_DEVICE"
"""Environment variable that says which device `auto` stands for; launches set it to give a run its GPU."""

LEAST_CAPABILITY = (8, 0)
"""Lowest compute capability of a GPU on which norm layers run as Triton kernels."""

LEAST_FUSED_CAPABILITY = (7, 0)
"""Lowest compute capability on which RSDA's transformations and the PACS augmentation run as Triton kernels."""


def data_folder() -> Path:
    """Return the folder of data sets: `ASRNORM_DATA`, or a folder in the user's cache.

    Example:
        >>> data_folder().is_absolute()
        True
    """
    chosen = os.environ.get(DATA_VARIABLE)
    return Path(chosen).expanduser().absolute() if chosen else Path.home() / ".cache" / "asrnorm" / "data"


def count_cores() -> int:
    """Return how many cores this process may use; a shared machine may grant fewer than it has.

    Example:
        >>> count_cores() >= 1
        True
    """
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
