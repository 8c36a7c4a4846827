"""Choice of the implementation: Triton kernels on a GPU, else tensor operations; both give the same bits.

`ASRNORM_BACKEND=reference` selects the tensor operations.
"""

import os
import warnings
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from asrnorm.core.settings import BACKEND_VARIABLE, LEAST_FUSED_CAPABILITY
from asrnorm.data.augment.geometry import num_taps

Fused = Callable[..., Tensor]
"""`apply_fused` of `triton/rsda.py`, which takes images, ops, levels, the values of the grids, and units for float
images; or of `triton/pacs.py`, which takes images, what was drawn, the size, and a table for float results; or
`resize_fused` of `triton/resize.py`, which takes images and the size."""


class _Kernels(NamedTuple):
    """The launchers of the kernels, and the largest sizes they take."""

    rsda: Fused
    rsda_pixels: int
    pacs: Fused
    pacs_pixels: int
    pacs_taps: int
    resize: Fused


def find_fused(images: Tensor) -> Fused | None:
    """Return RSDA's kernel for images that fit it, or `None`.

    Example:
        >>> find_fused(torch.zeros(2, 3, 32, 32, dtype=torch.uint8)) is None  # no GPU
        True
    """
    kernels = _find(images)
    if kernels is None or images.shape[2] * images.shape[3] > kernels.rsda_pixels:
        return None
    return kernels.rsda


def find_fused_pacs(images: Tensor, size: tuple[int, int]) -> Fused | None:
    """Return the kernels of PACS's augmentation for images and a result that fit them, or `None`.

    Example:
        >>> find_fused_pacs(torch.zeros(2, 3, 32, 32, dtype=torch.uint8), (30, 30)) is None  # no GPU
        True
    """
    kernels = _find(images)
    if kernels is None or images.dtype not in (torch.uint8, torch.float32):
        return None
    if min(*size, *images.shape[2:]) < 1 or size[0] * size[1] > kernels.pacs_pixels:
        return None
    taps = max(num_taps(limit, out) for limit, out in zip(images.shape[2:], size, strict=True))
    return kernels.pacs if taps <= kernels.pacs_taps else None


def find_fused_resize(images: Tensor, size: tuple[int, int]) -> Fused | None:
    """Return the kernel that resizes whole images, or `None`.

    Example:
        >>> find_fused_resize(torch.zeros(2, 3, 32, 32, dtype=torch.uint8), (30, 30)) is None  # no GPU
        True
    """
    kernels = _find(images)
    if kernels is None or min(*size, *images.shape[2:]) < 1:
        return None
    taps = max(num_taps(limit, out) for limit, out in zip(images.shape[2:], size, strict=True))
    return kernels.resize if taps <= kernels.pacs_taps else None


def _find(images: Tensor) -> _Kernels | None:
    if images.device.type != "cuda" or os.environ.get(BACKEND_VARIABLE) == "reference":
        return None
    return _load(images.device)


@lru_cache(maxsize=16)
def _load(device: torch.device) -> _Kernels | None:
    """Import the kernels once per device; warn once if that fails."""
    capability = torch.cuda.get_device_capability(device)
    if capability < LEAST_FUSED_CAPABILITY:
        _warn(f"compute capability {capability[0]}.{capability[1]} is too old for Triton")
        return None
    try:
        from asrnorm.kernels import pacs_augment, rsda
    except Exception as error:  # a broken binary wheel may raise anything
        _warn(f"Triton cannot be imported ({error})")
        return None
    fused_pacs = pacs_augment.apply_fused, pacs_augment.MOST_PIXELS, pacs_augment.MOST_TAPS
    return _Kernels(rsda.apply_fused, rsda.MOST_PIXELS, *fused_pacs, pacs_augment.resize_fused)


def _warn(reason: str) -> None:
    lost = "RSDA's transformations and PACS's augmentation run as tensor operations, slower"
    warnings.warn(f"{reason}; {lost}", RuntimeWarning, stacklevel=5)
