"""Which implementation runs: the fused kernel where there is a GPU and Triton, else tensor operations.

Both give the same bits. `ASRNORM_BACKEND=reference` keeps to the tensor operations.
"""

import os
import warnings
from collections.abc import Callable
from functools import lru_cache

import torch
from torch import Tensor

from asrnorm.diagnosis import BACKEND_VARIABLE, LEAST_FUSED_CAPABILITY

Fused = Callable[..., Tensor]
"""`apply_fused` of `triton/rsda.py`: takes images, ops, levels, the values of the grids, and units for float images."""


def find_fused(images: Tensor) -> Fused | None:
    """Return the kernel for images that fit it, or `None` where tensor operations have to do the work.

    Example:
        >>> find_fused(torch.zeros(2, 3, 32, 32, dtype=torch.uint8)) is None  # no GPU
        True
    """
    if images.device.type != "cuda" or os.environ.get(BACKEND_VARIABLE) == "reference":
        return None
    fused, most_pixels = _load(images.device)
    return fused if images.shape[2] * images.shape[3] <= most_pixels else None


@lru_cache(maxsize=16)
def _load(device: torch.device) -> tuple[Fused | None, int]:
    """Import the kernel once a device; where that fails, say so once."""
    capability = torch.cuda.get_device_capability(device)
    if capability < LEAST_FUSED_CAPABILITY:
        return _fall_back(f"compute capability {capability[0]}.{capability[1]} is too old for Triton")
    try:
        from asrnorm.data.augment.triton.rsda import MOST_PIXELS, apply_fused
    except Exception as error:  # a broken binary wheel may raise anything
        return _fall_back(f"Triton cannot be imported ({error})")
    return apply_fused, MOST_PIXELS


def _fall_back(reason: str) -> tuple[None, int]:
    warnings.warn(f"{reason}; RSDA's transformations run as tensor operations, slower", RuntimeWarning, stacklevel=4)
    return None, 0
