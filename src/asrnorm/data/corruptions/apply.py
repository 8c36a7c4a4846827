"""`corrupt`: one corruption on an array of images."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from asrnorm.core.config import as_whole_number
from asrnorm.core.errors import InputError, InputTypeError
from asrnorm.data.corruptions.base import CORRUPTIONS, Pixels, Streams
from asrnorm.data.corruptions.severity import check_limits, check_side, choose_preset, severity_options

# Images are worked on so many values at a time: their float64 copies then stay in a core's cache, and small enough
# that the allocator keeps the memory instead of giving it back to the system and asking again.
_CHUNK_VALUES = 2**16


def list_corruptions() -> tuple[str, ...]:
    """Return the names of all corruptions.

    Example:
        >>> len(list_corruptions()), list_corruptions()[:2]
        (19, ('brightness', 'contrast'))
    """
    return CORRUPTIONS.names()


def corrupt(
    images_nhwc_uint8: Pixels,
    name: str,
    *,
    severity: int = 3,
    seed: int = 0,
    preset: str | None = None,
    indices: Sequence[int] | None = None,
    **options: Any,
) -> Pixels:
    """Return the images with one of the 19 corruptions of CIFAR-10-C and ImageNet-C.

    An image's result depends on its pixels, the corruption, the severity, the seed and its index alone: a part of a
    data set, given with its `indices`, comes out as it does within the whole.

    Args:
        images_nhwc_uint8: RGB images of one size; any size.
        name: one of `list_corruptions()`.
        severity: 1 (mild) to 5.
        seed: of the random corruptions; another seed, other noise.
        preset: whose severities: `cifar` (CIFAR-10-C) or `imagenet` (ImageNet-C); by default the former for images up
            to 64 pixels a side.
        indices: an integer for each image that tells it from the others; 0, 1, 2, ... by default.
        **options: numbers to use instead of the severity's, such as `sd=0.2` for `gaussian_noise`; and `source`, a
            folder or wheel with the photographs, for `frost`.

    Raises:
        UnknownNameError: there is no such corruption, preset or option.
        InputError: the severity is not 1 to 5, an option has no meaning, the array has another shape, its images
            are too long for `fog` or `frost`, or there are not as many indices as images.
        InputTypeError: the array is not uint8, or a seed or index is no whole number.

    Example:
        >>> gray = np.full((2, 32, 32, 3), 100, np.uint8)
        >>> corrupt(gray, "brightness", severity=1)[0, 0, 0]
        array([112, 112, 112], dtype=uint8)
    """
    function = CORRUPTIONS[name]
    CORRUPTIONS.check(name, options)
    check_limits(name, options)
    images = _check_images(images_nhwc_uint8)
    n, height, width, channels = images.shape
    check_side(name, height, width)
    seed = as_whole_number(seed, "seed")
    settings = severity_options(name, severity, preset or choose_preset(height, width)) | options
    indices = range(n) if indices is None else [as_whole_number(index, "an index") for index in indices]
    if len(indices) != n:
        raise InputError(f"{n} images but {len(indices)} indices; give one index for each image")
    corrupted = np.empty_like(images)
    chunk = max(1, _CHUNK_VALUES // (height * width * channels))
    for start in range(0, n, chunk):
        part = slice(start, start + chunk)
        streams = Streams(seed, name, severity, indices[part])
        corrupted[part] = function(images[part], streams, **settings)
    return corrupted


def _check_images(images: Any) -> Pixels:
    if not isinstance(images, np.ndarray) or images.dtype != np.uint8:
        kind = images.dtype if isinstance(images, np.ndarray) else type(images).__name__
        raise InputTypeError(f"images must be a numpy array of uint8, not {kind}; scale to 0..255 and convert")
    if images.ndim != 4 or images.shape[-1] != 3 or 0 in images.shape[1:]:
        raise InputError(f"images must have shape (n, height, width, 3), not {images.shape}; one image: image[None]")
    return np.ascontiguousarray(images)
