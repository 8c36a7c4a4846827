"""Choice of the implementation: Triton kernels on a GPU, else tensor operations; both give the same bits.

`ASRNORM_BACKEND=reference` selects the tensor operations.
"""

import os
import warnings
from collections.abc import Callable
from functools import lru_cache
from types import ModuleType
from typing import NamedTuple

import torch
from torch import Tensor

from asrnorm.core.settings import BACKEND_VARIABLE, LEAST_FUSED_CAPABILITY
from asrnorm.data.augment.base import num_taps

Fused = Callable[..., Tensor]
"""A function of `kernels/rsda.py` or `kernels/pacs_augment.py` that launches kernels."""


class _Kernels(NamedTuple):
    rsda: ModuleType
    pacs: ModuleType


def find_fused(images: Tensor) -> Fused | None:
    """Return `apply_fused` of `kernels/rsda.py` if it can process the images, else `None`."""
    kernels = _find(images)
    if kernels is None or images.shape[2] * images.shape[3] > kernels.rsda.MOST_PIXELS:
        return None
    apply_fused: Fused = kernels.rsda.apply_fused
    return apply_fused


def find_fused_pacs(images: Tensor, size: tuple[int, int]) -> Fused | None:
    """Return `apply_fused` of `kernels/pacs_augment.py` if it can process the images and the result, else `None`."""
    kernels = _find_resizing(images, size)
    if kernels is None or images.dtype not in (torch.uint8, torch.float32) or size[0] * size[1] > kernels.MOST_PIXELS:
        return None
    apply_fused: Fused = kernels.apply_fused
    return apply_fused


def find_fused_resize(images: Tensor, size: tuple[int, int]) -> Fused | None:
    """Return `resize_fused` of `kernels/pacs_augment.py` if it can resize the images to `size`, else `None`."""
    kernels = _find_resizing(images, size)
    return None if kernels is None else kernels.resize_fused


def _find_resizing(images: Tensor, size: tuple[int, int]) -> ModuleType | None:
    kernels = _find(images)
    if kernels is None or min(*size, *images.shape[2:]) < 1:
        return None
    taps = max(num_taps(limit, out) for limit, out in zip(images.shape[2:], size, strict=True))
    return kernels.pacs if taps <= kernels.pacs.MOST_TAPS else None


def _find(images: Tensor) -> _Kernels | None:
    if images.device.type != "cuda" or os.environ.get(BACKEND_VARIABLE) == "reference":
        return None
    return _load(images.device)


@lru_cache(maxsize=16)
def _load(device: torch.device) -> _Kernels | None:
    """Import the kernels once per device; warn once if that fails."""
    capability = torch.cuda.get_device_capability(device)
    try:
        if capability < LEAST_FUSED_CAPABILITY:
            raise RuntimeError(f"compute capability {capability[0]}.{capability[1]} is too old for Triton")
        from asrnorm.kernels import pacs_augment, rsda
    except Exception as error:  # a broken binary wheel may raise anything
        slower = "RSDA's transformations and PACS's augmentation run as tensor operations, slower"
        warnings.warn(f"no Triton kernels ({error}); {slower}", RuntimeWarning, stacklevel=4)
        return None
    return _Kernels(rsda, pacs_augment)
