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
    # Images last, so that picking rows and columns moves long stretches of memory.
    x_hwcn = np.ascontiguousarray(np.moveaxis(x, 0, -1), dtype=np.float64)
    room = Room(x_hwcn.shape)
    total, rounded = np.zeros(x_hwcn.shape, np.float32), np.empty(x_hwcn.shape, np.float32)
    for factor in factors:
        np.copyto(rounded, zoom_in(x_hwcn, float(factor), room), casting="same_kind")
        total += rounded
    return to_pixels((x + np.moveaxis(total, -1, 0)) / np.float32(len(factors) + 1))


class Room:
    """Arrays that zooms of one shape overwrite in turn: fresh ones cost more than the arithmetic."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.upper, self.lower, self.term, self.zoomed = (np.empty(shape) for _ in range(4))


def zoom_in(x_hw: NDArray[np.float64], factor: float, room: Room | None = None) -> NDArray[np.float64]:
    """Enlarge the middle of `x_hw` to its own size, linearly; further axes go along.

    In each direction: the middle `ceil(size / factor)` pixels, enlarged to `round(ceil(size / factor) * factor)` with
    the first and last pixels in place, then trimmed on both sides. The operations and their order are those of
    `scipy.ndimage.zoom` with `order=1`, so that the result is the same to the last bit.

    Args:
        x_hw: float64.
        factor: 1 or more.
        room: of the same shape; the result is then one of its arrays, good until the next zoom.

    Example:
        >>> zoom_in(np.arange(4.0)[None].repeat(4, 0), 2.0)[0].round(2)
        array([1.  , 1.33, 1.67, 2.  ])
    """
    if factor == 1.0:
        return x_hw
    room = room or Room(x_hw.shape)
    further = (1,) * (x_hw.ndim - 2)
    top, bottom, top_weight, bottom_weight = _taps(x_hw.shape[0], factor)
    left, right, left_weight, right_weight = _taps(x_hw.shape[1], factor)
    _pick(x_hw, top, 0, top_weight.reshape(-1, 1, *further), room.upper)
    _pick(x_hw, bottom, 0, bottom_weight.reshape(-1, 1, *further), room.lower)
    left_weight, right_weight = left_weight.reshape(-1, *further), right_weight.reshape(-1, *further)
    _pick(room.upper, left, 1, left_weight, room.zoomed)
    room.zoomed += _pick(room.upper, right, 1, right_weight, room.term)
    room.zoomed += _pick(room.lower, left, 1, left_weight, room.term)
    room.zoomed += _pick(room.lower, right, 1, right_weight, room.term)
    return room.zoomed


def _pick(
    x_hw: NDArray[np.float64], index: NDArray[np.int64], axis: int, weight: Floats, into: NDArray[np.float64]
) -> NDArray[np.float64]:
    np.take(x_hw, index, axis=axis, out=into, mode="clip")
    into *= weight
    return into


def _taps(size: int, factor: float) -> tuple[NDArray[np.int64], NDArray[np.int64], Floats, Floats]:
    """Return for every output position its two input positions and their weights."""
    kept = math.ceil(size / factor)
    enlarged = round(kept * factor)
    step = (kept - 1) / (enlarged - 1) if enlarged > 1 else 1.0
    trimmed = (enlarged - size) // 2
    coordinate = np.arange(trimmed, trimmed + size) * step
    first = np.floor(coordinate)
    fraction = coordinate - first
    near = 1.0 - fraction
    # Rounding may put the last position beyond the edge; scipy takes 0 there.
    inside = coordinate <= kept - 1
    start = (size - kept) // 2
    first = first.astype(np.int64)
    return (
        start + np.minimum(first, kept - 1),
        start + np.minimum(first + 1, kept - 1),
        np.where(inside, near, 0.0),
        np.where(inside, 1.0 - near, 0.0),  # not `fraction`, from which it differs in the last bit
    )
