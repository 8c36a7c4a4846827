"""What a corruption is, and the two conversions that all of them share.

A corruption takes `n` images of one size as uint8 `nhwc` in RGB, one random stream an image, and keyword-only numbers
that a severity fixes; it returns uint8 of the same shape. No value of one image may depend on another image, so that
any chunking gives the same result.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from asrnorm.registry import Registry

Pixels: TypeAlias = NDArray[np.uint8]
Floats: TypeAlias = NDArray[Any]  # float64 or float32: each corruption keeps the precision of the published script

CORRUPTIONS: Registry[Callable[..., Pixels]] = Registry("corruption")


def to_unit(images_nhwc: Pixels, dtype: type[np.floating[Any]] = np.float64) -> Floats:
    """Return images scaled to 0..1; divided in float64 first, whatever the type asked for.

    Example:
        >>> to_unit(np.array([0, 51, 255], np.uint8))
        array([0. , 0.2, 1. ])
    """
    return (images_nhwc / 255.0).astype(dtype, copy=False)


def to_pixels(x: Floats) -> Pixels:
    """Return 0..1 clipped, times 255, truncated: the published arrays are truncated, not rounded.

    Example:
        >>> to_pixels(np.array([-0.5, 0.999, 2.0]))
        array([  0, 254, 255], dtype=uint8)
    """
    return (np.clip(x, 0, 1) * 255).astype(np.uint8)
