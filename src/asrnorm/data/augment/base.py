"""What every augmentation works on: a batch of RGB images, uint8, `(n, 3, h, w)`, on any device.

The axes are NCHW because networks take them so, and because a channel then is a slice: memory order is left free, so a
cache kept as NHWC is passed as `images.permute(0, 3, 1, 2)` without a copy. Shape legend: n samples, c channels, h
rows, w columns.
"""

import math
from collections.abc import Callable, Sequence
from functools import lru_cache

import torch
from torch import Tensor

from asrnorm.core.errors import InputError, InputTypeError

Parameter = float | Tensor
"""One value for the batch, or a tensor `(n,)` with a value a sample."""


def check_images(images: Tensor) -> None:
    """Refuse what is not a batch of RGB images in uint8.

    Raises:
        InputTypeError: not a uint8 tensor.
        InputError: not of shape `(n, 3, h, w)`.

    Example:
        >>> check_images(torch.zeros(2, 3, 4, 4, dtype=torch.uint8))
        >>> check_images(torch.zeros(2, 4, 4, 3, dtype=torch.uint8))
        Traceback (most recent call last):
        asrnorm.core.errors.InputError: expected images (n, 3, h, w), got (2, 4, 4, 3); for NHWC: ...
    """
    if not isinstance(images, Tensor) or images.dtype != torch.uint8:
        found = images.dtype if isinstance(images, Tensor) else type(images).__name__
        raise InputTypeError(f"expected images as a uint8 tensor, got {found}; augment before converting to float")
    if images.ndim != 4 or images.shape[1] != 3:
        nhwc = images.ndim == 4 and images.shape[3] == 3
        hint = "for NHWC: images.permute(0, 3, 1, 2)" if nhwc else "for one image: images.unsqueeze(0)"
        raise InputError(f"expected images (n, 3, h, w), got {tuple(images.shape)}; {hint}")


def check_generator(images: Tensor, generator: torch.Generator) -> None:
    """Refuse a generator that lives on another kind of device than the images: drawing would copy or fail later.

    Raises:
        InputError: the two devices differ.
    """
    if generator.device.type != images.device.type:
        raise InputError(
            f"the generator is on {generator.device}, the images on {images.device}; "
            f"make it with torch.Generator({str(images.device)!r})"
        )


def per_sample(value: Parameter, images: Tensor, dtype: torch.dtype) -> Tensor:
    """Return a parameter as `(n, 1, 1, 1)` or `(1, 1, 1, 1)` on the images' device.

    A number becomes a filled tensor there, which needs no copy from the host and so no wait.

    Raises:
        InputError: a number that is not finite, or a tensor of another length or on another device.
    """
    if not isinstance(value, Tensor):
        if not math.isfinite(value):
            raise InputError(f"expected a finite parameter, got {value}")
        return torch.full((1, 1, 1, 1), value, dtype=dtype, device=images.device)
    if value.device != images.device:
        raise InputError(f"the parameter is on {value.device}, the images on {images.device}; move it there first")
    if value.ndim > 1 or value.numel() not in (1, images.shape[0]):
        raise InputError(
            f"expected one parameter or one a sample, ({images.shape[0]},), got shape {tuple(value.shape)}"
        )
    return value.to(dtype).reshape(-1, 1, 1, 1)


def constant(values: Sequence[float], device: torch.device, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return fixed numbers as a tensor on `device`, copied there once and kept.

    The copy from the host would make later calls wait for the device, and is not allowed while a CUDA graph is
    captured: run a step once before the capture, as one does anyway.
    """
    return _constant(tuple(values), device, dtype)


@lru_cache(maxsize=64)
def _constant(values: tuple[float, ...], device: torch.device, dtype: torch.dtype) -> Tensor:
    return torch.tensor(values, dtype=dtype, device=device)


# Values a piece: with its float32 and int32 intermediates about what a core's second-level cache holds.
_PIECE = 1 << 18


def in_pieces(function: Callable[..., Tensor], images: Tensor, *parameters: Tensor) -> Tensor:
    """Call `function(images, *parameters)` on the CPU in pieces of the batch that stay in the cache.

    On large images a chain of elementwise operations then runs several times faster. Other devices get the batch
    whole. The function must treat samples independently; every tensor has the samples on axis 0.
    """
    per_image = max(1, images.numel() // max(1, images.shape[0]))
    step = max(1, _PIECE // per_image)
    if images.device.type != "cpu" or images.shape[0] <= step:
        return function(images, *parameters)
    pieces = zip(*(tensor.split(step) for tensor in (images, *parameters)), strict=True)
    return torch.cat([function(*piece) for piece in pieces])
