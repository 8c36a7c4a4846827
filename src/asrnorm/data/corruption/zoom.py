"""Zoom into the middle of an image, and the blur of a camera that zooms while it exposes."""

import math

import numpy as np
from numpy.typing import NDArray

from asrnorm.data.corruption.base import CORRUPTIONS, Floats, Pixels, to_pixels, to_unit
from asrnorm.data.corruption.stream import Streams


@CORRUPTIONS.register("zoom_blur")
def zoom_blur(images_nhwc: Pixels, _streams: Streams, *, end: float, step: float) -> Pixels:
    """Mean of the image and its zooms by 1, 1 + step, ... up to `end`, which is left out up to rounding."""
    factors = np.arange(1, end, step)
    x = to_unit(images_nhwc, np.float32)
    x_hwcn = np.ascontiguousarray(np.moveaxis(x, 0, -1))
    total = np.zeros_like(x_hwcn)
    for factor in factors:
        total += zoom_in(x_hwcn, float(factor))
    return to_pixels((x + np.moveaxis(total, -1, 0)) / np.float32(len(factors) + 1))


def zoom_in(x_hw: Floats, factor: float) -> Floats:
    """Enlarge the middle of `x_hw` to its own size, linearly; further axes go along.

    In each direction: the middle `ceil(size / factor)` pixels, enlarged to `round(ceil(size / factor) * factor)` with
    the first and last pixels in place, then trimmed on both sides. The operations and their order are those of
    `scipy.ndimage.zoom` with `order=1`, in float64, so that the result is the same to the last bit.

    Example:
        >>> zoom_in(np.arange(4.0)[None].repeat(4, 0), 2.0)[0].round(2)
        array([1.  , 1.33, 1.67, 2.  ])
    """
    if factor == 1.0:
        return x_hw
    further = (1,) * (x_hw.ndim - 2)
    top, bottom, weight_top, weight_bottom = _taps(x_hw.shape[0], factor)
    left, right, weight_left, weight_right = (
        taps if taps.dtype == np.int64 else taps.reshape(-1, *further) for taps in _taps(x_hw.shape[1], factor)
    )
    upper = x_hw[top] * weight_top.reshape(-1, 1, *further)
    lower = x_hw[bottom] * weight_bottom.reshape(-1, 1, *further)
    zoomed = upper[:, left] * weight_left
    zoomed += upper[:, right] * weight_right
    zoomed += lower[:, left] * weight_left
    zoomed += lower[:, right] * weight_right
    return zoomed.astype(x_hw.dtype, copy=False)


def _taps(size: int, factor: float) -> tuple[NDArray[np.int64], NDArray[np.int64], Floats, Floats]:
    """Return for every output position its two input positions and their weights."""
    kept = math.ceil(size / factor)
    enlarged = round(kept * factor)
    step = (kept - 1) / (enlarged - 1) if enlarged > 1 else 1.0
    trimmed = (enlarged - size) // 2
    coordinate = np.arange(trimmed, trimmed + size) * step
    first = np.floor(coordinate)
    fraction = coordinate - first
    # Rounding may put the last position beyond the edge; scipy takes 0 there.
    inside = coordinate <= kept - 1
    start = (size - kept) // 2
    first = first.astype(np.int64)
    return (
        start + np.minimum(first, kept - 1),
        start + np.minimum(first + 1, kept - 1),
        np.where(inside, 1.0 - fraction, 0.0),
        np.where(inside, fraction, 0.0),
    )
