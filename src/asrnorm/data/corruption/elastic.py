"""Elastic transform: a random affine map, then a random displacement of every pixel."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from asrnorm.data.corruption.base import CORRUPTIONS, Floats, Pixels, to_pixels, to_unit
from asrnorm.data.corruption.blur import smooth
from asrnorm.data.corruption.opencv import import_opencv
from asrnorm.data.corruption.stream import Streams


@CORRUPTIONS.register("elastic_transform")
def elastic_transform(images_nhwc: Pixels, streams: Streams, *, alpha: float, sigma: float, affine: float) -> Pixels:
    """Move three points at random and the image with them, then stretch it locally.

    Args:
        images_nhwc: the images.
        streams: their randomness.
        alpha: greatest displacement before smoothing; like the two others a fraction of the shorter side.
        sigma: of the Gaussian that smooths the displacement.
        affine: each of the three points moves by up to this, across and down.
    """
    height, width = images_nhwc.shape[1:3]
    side = min(height, width)
    x = _move(to_unit(images_nhwc, np.float32), streams.uniform(3, 2, low=-1.0, high=1.0) * (affine * side))
    if alpha == 0:
        return to_pixels(x)
    field = streams.uniform(2, height, width, low=-1.0, high=1.0)
    right, down = (
        (smooth(field[:, axis], sigma * side, mode="reflect", truncate=3.0) * (alpha * side)).astype(np.float32)
        for axis in (0, 1)
    )
    return to_pixels(_sample(x, np.arange(height)[:, None] + down, np.arange(width) + right))


def _move(x_nhwc: Floats, shift_n32: Floats) -> Floats:
    cv2: Any = import_opencv("elastic_transform")
    height, width = x_nhwc.shape[1:3]
    # Paper: the script takes (height, width) for the centre where OpenCV reads (x, y); only squares hide that.
    center = np.array([width // 2, height // 2], np.float32)
    arm = max(1, min(height, width) // 3)
    corners = center + np.array([[arm, arm], [arm, -arm], [-arm, -arm]], np.float32)
    return np.stack(
        [
            cv2.warpAffine(
                image,
                cv2.getAffineTransform(corners, corners + shift.astype(np.float32)),
                (width, height),
                borderMode=cv2.BORDER_REFLECT_101,
            )
            for image, shift in zip(x_nhwc, shift_n32, strict=True)
        ]
    )


def _sample(x_nhwc: Floats, row_nhw: Floats, column_nhw: Floats) -> Floats:
    """Read images between pixels, linearly, reflected at the borders (edge pixels repeated)."""
    n, height, width, channels = x_nhwc.shape
    pixels = x_nhwc.reshape(-1, channels)
    first = (np.arange(n) * height * width)[:, None, None]
    above, column = np.floor(row_nhw), np.floor(column_nhw)
    lower = (row_nhw - above)[..., None]
    righter = (column_nhw - column)[..., None]
    total = np.zeros(x_nhwc.shape)
    for dy, weight_y in ((0, 1.0 - lower), (1, lower)):
        row_index = first + _reflect(above.astype(np.int64) + dy, height) * width
        for dx, weight_x in ((0, 1.0 - righter), (1, righter)):
            index = row_index + _reflect(column.astype(np.int64) + dx, width)
            total += pixels[index] * (weight_y * weight_x)
    return total.astype(x_nhwc.dtype)


def _reflect(index: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    index = index % (2 * size)
    return np.minimum(index, 2 * size - 1 - index)
