"""Functions that all augmentations share: checks, conversion between bytes and floats, and the choice of kernels.

Images are uint8 `(n, 3, h, w)` on any device. The memory order is free, so an NHWC cache is passed as
`images.permute(0, 3, 1, 2)` without a copy. Shape legend: n samples, c channels, h rows, w columns. On a GPU, Triton
kernels augment, elsewhere tensor operations; both give the same bits.
"""

import math
import os
import warnings
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from asrnorm.core.errors import InputError, InputTypeError
from asrnorm.core.settings import BACKEND_VARIABLE, LEAST_FUSED_CAPABILITY

Parameter = float | Tensor
"""One value for the batch, or a tensor `(n,)` with one value per sample."""


def check_images(images: Tensor) -> None:
    """Raise `InputTypeError` or `InputError` unless `images` is a uint8 tensor `(n, 3, h, w)`."""
    if not isinstance(images, Tensor) or images.dtype != torch.uint8:
        found = images.dtype if isinstance(images, Tensor) else type(images).__name__
        raise InputTypeError(f"expected images as a uint8 tensor, got {found}; augment before converting to float")
    if images.ndim != 4 or images.shape[1] != 3:
        nhwc = images.ndim == 4 and images.shape[3] == 3
        hint = "for NHWC: images.permute(0, 3, 1, 2)" if nhwc else "for one image: images.unsqueeze(0)"
        raise InputError(f"expected images (n, 3, h, w), got {tuple(images.shape)}; {hint}")


def to_float(images: Tensor, dtype: torch.dtype = torch.float32, *, exact: bool = False) -> Tensor:
    """Return uint8 images divided by 255; images in floating point are returned as they are.

    Args:
        images: of any shape.
        dtype: of the result; the quotient is computed in float32 at least.
        exact: round the quotient as a CPU does, which is what torchvision's `ToTensor` gives. By default a GPU
            multiplies by the reciprocal of 255 and may differ in the last bit; trained weights depend on that bit.

    Example:
        >>> to_float(torch.tensor([0, 51, 255], dtype=torch.uint8))
        tensor([0.0000, 0.2000, 1.0000])
    """
    if images.dtype != torch.uint8:
        return images
    wide = images.to(torch.promote_types(dtype, torch.float32))
    return (wide / (constant((255.0,), images.device, wide.dtype) if exact else 255)).to(dtype)


def to_bytes(images: Tensor) -> Tensor:
    """Return images in [0, 1] as uint8, rounded; values outside are clipped.

    Example:
        >>> to_bytes(torch.tensor([-0.1, 0.5, 1.0])).tolist()
        [0, 128, 255]
    """
    wide = torch.promote_types(images.dtype, torch.float32)  # in bfloat16 the product could round to another byte
    return (images.detach().to(wide) * 255).round_().clamp_(0, 255).to(torch.uint8)


@lru_cache(maxsize=8)
def byte_values(device: torch.device) -> Tensor:
    """Return the float32 that `to_float` gives for each byte, `(256,)`, for kernels to look up."""
    return to_float(torch.arange(256, device=device).to(torch.uint8))


def per_sample(value: Parameter, images: Tensor, dtype: torch.dtype) -> Tensor:
    """Return a parameter as `(n, 1, 1, 1)` or `(1, 1, 1, 1)` on the images' device.

    A number becomes a filled tensor there, which needs no copy from the host and so no synchronization.
    """
    if not isinstance(value, Tensor):
        if not math.isfinite(value):
            raise InputError(f"expected a finite parameter, got {value}")
        return torch.full((1, 1, 1, 1), value, dtype=dtype, device=images.device)
    if value.device != images.device:
        raise InputError(f"the parameter is on {value.device}, the images on {images.device}; move it there first")
    if value.ndim > 1 or value.numel() not in (1, images.shape[0]):
        raise InputError(
            f"expected one parameter or one per sample, ({images.shape[0]},), got shape {tuple(value.shape)}"
        )
    return value.to(dtype).reshape(-1, 1, 1, 1)


@lru_cache(maxsize=64)
def constant(values: tuple[float, ...], device: torch.device, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return fixed numbers as a tensor on `device`, copied there by the first call and cached.

    A copy from the host synchronizes and is not allowed while a CUDA graph is captured: run a step before the capture.
    """
    return torch.tensor(values, dtype=dtype, device=device)


def num_taps(limit: int, out: int) -> int:
    """Return the most inputs that a resize to `out` reads per output, for any box within `limit`."""
    return math.ceil(2 * max(1.0, limit / out))


_CHUNK_VALUES = 1 << 18  # with float32 and int32 intermediates about what a core's second-level cache holds


def change_rows(images: Tensor, chosen: Tensor, change: Callable[..., Tensor], *parameters: Tensor) -> Tensor:
    """Return the images, those that `chosen` says replaced by `change(images, *parameters)`.

    On the CPU only the chosen ones are computed. Elsewhere all are: shapes are fixed, and the host reads nothing.
    """
    if images.device.type != "cpu":
        return torch.where(chosen.view(-1, 1, 1, 1), change(images, *parameters), images)
    rows = chosen.nonzero().squeeze(1)
    if not len(rows):
        return images
    return images.index_copy(0, rows, change(images[rows], *(value[rows] for value in parameters)))


def in_chunks(function: Callable[..., Tensor], images: Tensor, *parameters: Tensor) -> Tensor:
    """Call `function(images, *parameters)` on chunks of the batch that fit the CPU's cache; a GPU gets the whole batch.

    On large images a chain of elementwise operations then runs several times faster on the CPU. The function must
    treat samples independently; every tensor has the samples on axis 0.
    """
    per_image = max(1, images.numel() // max(1, images.shape[0]))
    step = max(1, _CHUNK_VALUES // per_image)
    if images.device.type != "cpu" or images.shape[0] <= step:
        return function(images, *parameters)
    chunks = zip(*(tensor.split(step) for tensor in (images, *parameters)), strict=True)
    return torch.cat([function(*chunk) for chunk in chunks])


Fused = Callable[..., Tensor]
"""A function of `kernels/rsda.py` or `kernels/pacs_augment.py` that launches kernels."""


def find_fused(images: Tensor) -> Fused | None:
    """Return `apply_fused` of `kernels/rsda.py` if it can process the images, else `None`."""
    rsda, _ = _find_kernels(images)
    fits = rsda is not None and images.shape[2] * images.shape[3] <= rsda.MOST_PIXELS
    return rsda.apply_fused if fits else None


def find_fused_pacs(images: Tensor, size: tuple[int, int]) -> Fused | None:
    """Return `apply_fused` of `kernels/pacs_augment.py` if it can process the images and the result, else `None`."""
    kernels = _find_resizing(images, size)
    known = images.dtype in (torch.uint8, torch.float32)
    return kernels.apply_fused if kernels and known and size[0] * size[1] <= kernels.MOST_PIXELS else None


def find_fused_resize(images: Tensor, size: tuple[int, int]) -> Fused | None:
    """Return `resize_fused` of `kernels/pacs_augment.py` if it can resize the images to `size`, else `None`."""
    kernels = _find_resizing(images, size)
    return kernels.resize_fused if kernels else None


def _find_resizing(images: Tensor, size: tuple[int, int]) -> Any:
    _, pacs = _find_kernels(images)
    if pacs is None or min(*size, *images.shape[2:]) < 1:
        return None
    taps = max(num_taps(limit, out) for limit, out in zip(images.shape[2:], size, strict=True))
    return pacs if taps <= pacs.MOST_TAPS else None


def _find_kernels(images: Tensor) -> tuple[Any, Any]:
    if images.device.type != "cuda" or os.environ.get(BACKEND_VARIABLE) == "reference":
        return None, None
    return _load(images.device)


@lru_cache(maxsize=16)
def _load(device: torch.device) -> tuple[Any, Any]:
    """Return the modules `kernels.rsda` and `kernels.pacs_augment`; without Triton warn once and return None twice."""
    capability = torch.cuda.get_device_capability(device)
    try:
        if capability < LEAST_FUSED_CAPABILITY:
            raise RuntimeError(f"compute capability {capability[0]}.{capability[1]} is too old for Triton")
        from asrnorm.kernels import pacs_augment, rsda
    except Exception as error:  # a broken binary wheel may raise anything
        slower = "RSDA's transformations and PACS's augmentation run as tensor operations, slower"
        warnings.warn(f"no Triton kernels ({error}); {slower}", RuntimeWarning, stacklevel=4)
        return None, None
    return rsda, pacs_augment
