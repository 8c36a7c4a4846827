"""Motion blur, as ImageMagick computes it."""

import math

import numpy as np
from numpy.typing import NDArray

from asrnorm.data.corruption.base import CORRUPTIONS, Pixels
from asrnorm.data.corruption.stream import Streams


@CORRUPTIONS.register("motion_blur")
def motion_blur(images_nhwc: Pixels, streams: Streams, *, radius: float, sigma: float) -> Pixels:
    """Smear each image in a direction between -45 and 45 degrees."""
    angles = streams.uniform(low=-45.0, high=45.0)
    return np.stack(
        [smear(image, radius, sigma, float(angle)) for image, angle in zip(images_nhwc, angles, strict=True)]
    )


def smear(image_hwc: Pixels, radius: float, sigma: float, angle: float) -> Pixels:
    """Blur one image along a line that starts at each pixel.

    The kernel is half a Gaussian with `2 * radius + 1` taps; tap i lies `ceil(i cos - 1/2)` to the right and
    `ceil(i sin - 1/2)` down, edges repeat, and the sum is rounded.

    Args:
        image_hwc: or `hw`.
        radius: half the length of the line, in pixels.
        sigma: of the Gaussian.
        angle: in degrees, 0 to the right, 90 down.
    """
    taps = np.arange(2 * math.ceil(radius) + 1)
    weights = np.exp(-(taps**2) / (2 * sigma**2))
    weights /= weights.sum()
    right, down = _offsets(taps, math.cos(math.radians(angle))), _offsets(taps, math.sin(math.radians(angle)))
    padding = [(max(0, -down.min()), max(0, down.max())), (max(0, -right.min()), max(0, right.max()))]
    padded = np.pad(image_hwc, padding + [(0, 0)] * (image_hwc.ndim - 2), mode="edge").astype(np.float64)
    height, width = image_hwc.shape[:2]
    top, left = padding[0][0], padding[1][0]
    total = np.zeros(image_hwc.shape)
    for weight, dy, dx in zip(weights, down + top, right + left, strict=True):
        total += weight * padded[dy : dy + height, dx : dx + width]
    return (total + 0.5).astype(np.uint8)


def _offsets(taps: NDArray[np.int64], slope: float) -> NDArray[np.int64]:
    return np.ceil(taps * slope - 0.5).astype(np.int64)
