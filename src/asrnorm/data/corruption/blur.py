"""Blur that is the same everywhere: Gaussian and defocus."""

from functools import lru_cache

import numpy as np
from scipy import ndimage  # type: ignore[import-untyped]

from asrnorm.data.corruption.base import CORRUPTIONS, Floats, Pixels, to_pixels, to_unit
from asrnorm.data.corruption.opencv import import_opencv
from asrnorm.data.corruption.stream import Streams

_SMALL_DISK = 8  # disks up to this radius are drawn on one 17x17 grid


def smooth(x_nhw: Floats, sigma: float, *, mode: str = "nearest", truncate: float = 4.0) -> Floats:
    """Gaussian over the second and third axes; further axes (channels) stay apart.

    Args:
        x_nhw: images first; float32 stays float32.
        sigma: in pixels; 0 leaves the input as it is.
        mode: border, as scipy names it.
        truncate: the kernel ends after this many sigmas.
    """
    for axis in (1, 2):
        if sigma > 0:
            x_nhw = ndimage.gaussian_filter1d(x_nhw, sigma, axis=axis, mode=mode, truncate=truncate)
    return x_nhw


@CORRUPTIONS.register("gaussian_blur")
def gaussian_blur(images_nhwc: Pixels, _streams: Streams, *, sigma: float) -> Pixels:
    """Gaussian blur of every channel."""
    return to_pixels(smooth(to_unit(images_nhwc), sigma))


@CORRUPTIONS.register("defocus_blur")
def defocus_blur(images_nhwc: Pixels, _streams: Streams, *, radius: float, alias: float) -> Pixels:
    """Blur with a disk, the shape of a lens out of focus."""
    cv2 = import_opencv("defocus_blur")
    kernel = _disk(radius, alias)
    x = to_unit(images_nhwc)
    return to_pixels(np.stack([cv2.filter2D(image, -1, kernel) for image in x]))


@lru_cache(maxsize=16)
def _disk(radius: float, alias: float) -> Floats:
    cv2 = import_opencv("defocus_blur")
    reach, softening = (_SMALL_DISK, 3) if radius <= _SMALL_DISK else (int(radius), 5)
    ticks = np.arange(-reach, reach + 1)
    disk = (np.add.outer(ticks**2, ticks**2) <= radius**2).astype(np.float32)
    disk /= disk.sum()
    softened: Floats = cv2.GaussianBlur(disk, ksize=(softening, softening), sigmaX=alias)
    return softened
