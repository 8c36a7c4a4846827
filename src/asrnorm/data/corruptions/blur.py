"""Gaussian, defocus, motion, zoom and glass blur; motion blur equals ImageMagick's."""

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage  # type: ignore[import-untyped]

from asrnorm.data.corruptions.base import CORRUPTIONS, Floats, Pixels, Streams, import_opencv, to_pixels, to_unit

_SMALL_DISK = 8  # disks up to this radius are drawn on one 17x17 grid


def smooth(x_nhw: Floats, sigma: float, *, mode: str = "nearest", truncate: float = 4.0) -> Floats:
    """Blur with a Gaussian over the second and third axes, in the dtype of the input; sigma 0 returns the input."""
    for axis in (1, 2):
        if sigma > 0:
            x_nhw = ndimage.gaussian_filter1d(x_nhw, sigma, axis=axis, mode=mode, truncate=truncate)
    return x_nhw


@CORRUPTIONS.register("gaussian_blur")
def gaussian_blur(images_nhwc: Pixels, _streams: Streams, *, sigma: float) -> Pixels:
    """Blur every channel with a Gaussian."""
    return to_pixels(smooth(to_unit(images_nhwc), sigma))


@CORRUPTIONS.register("defocus_blur")
def defocus_blur(images_nhwc: Pixels, _streams: Streams, *, radius: float, alias: float) -> Pixels:
    """Blur with a disk, the shape of a lens out of focus."""
    cv2 = import_opencv("defocus_blur")
    kernel = disk(radius, alias)
    return to_pixels(np.stack([cv2.filter2D(image, -1, kernel) for image in to_unit(images_nhwc)]))


@lru_cache(maxsize=16)
def disk(radius: float, alias: float) -> Floats:
    """Return the kernel of `defocus_blur`, odd and square."""
    cv2 = import_opencv("defocus_blur")
    reach, softening = (_SMALL_DISK, 3) if radius <= _SMALL_DISK else (int(radius), 5)
    ticks = np.arange(-reach, reach + 1)
    disk = (np.add.outer(ticks**2, ticks**2) <= radius**2).astype(np.float32)
    disk /= disk.sum()
    softened: Floats = cv2.GaussianBlur(disk, ksize=(softening, softening), sigmaX=alias)
    return softened


@CORRUPTIONS.register("motion_blur")
def motion_blur(images_nhwc: Pixels, streams: Streams, *, radius: float, sigma: float) -> Pixels:
    """Smear each image in a direction between -45 and 45 degrees."""
    angles = streams.uniform(low=-45.0, high=45.0)
    return np.stack(
        [smear(image, radius, sigma, float(angle)) for image, angle in zip(images_nhwc, angles, strict=True)]
    )


def smear(image_hwc: Pixels, radius: float, sigma: float, angle: float) -> Pixels:
    """Blur one image along a line that starts at each pixel.

    The kernel is half a Gaussian with `2 * radius + 1` taps; tap i lies `ceil(i cos - 1/2)` pixels to the right and
    `ceil(i sin - 1/2)` down, edges repeat, and the sum is rounded. The angle is in degrees, 0 to the right, 90 down.
    """
    taps = np.arange(2 * math.ceil(radius) + 1)
    weights = np.exp(-(taps**2) / (2 * sigma**2))
    weights /= weights.sum()
    slopes = math.cos(math.radians(angle)), math.sin(math.radians(angle))
    right, down = (np.ceil(taps * slope - 0.5).astype(np.int64) for slope in slopes)
    padding = [(max(0, -down.min()), max(0, down.max())), (max(0, -right.min()), max(0, right.max()))]
    padded = np.pad(image_hwc, padding + [(0, 0)] * (image_hwc.ndim - 2), mode="edge").astype(np.float64)
    height, width = image_hwc.shape[:2]
    top, left = padding[0][0], padding[1][0]
    total = np.zeros(image_hwc.shape)
    for weight, dy, dx in zip(weights, down + top, right + left, strict=True):
        total += weight * padded[dy : dy + height, dx : dx + width]
    return (total + 0.5).astype(np.uint8)


@CORRUPTIONS.register("zoom_blur")
def zoom_blur(images_nhwc: Pixels, _streams: Streams, *, end: float, step: float) -> Pixels:
    """Average the image and its zooms by `np.arange(1, end, step)`."""
    factors = np.arange(1, end, step)
    x = to_unit(images_nhwc, np.float32)
    # Images last, so that taking rows and columns copies long runs of memory.
    x_hwcn = np.ascontiguousarray(np.moveaxis(x, 0, -1), dtype=np.float64)
    total = np.zeros(x_hwcn.shape, np.float32)
    for factor in factors:
        total += zoom_in(x_hwcn, float(factor)).astype(np.float32)
    return to_pixels((x + np.moveaxis(total, -1, 0)) / np.float32(len(factors) + 1))


def zoom_in(x_hw: NDArray[np.float64], factor: float) -> NDArray[np.float64]:
    """Enlarge the middle of `x_hw` to its own size, linearly along the first two axes.

    In each direction: the middle `ceil(size / factor)` pixels, enlarged to `round(ceil(size / factor) * factor)` with
    the first and last pixels in place, then trimmed on both sides. The result equals `scipy.ndimage.zoom` with
    `order=1` to the last bit, and takes a fraction of its time.
    """
    if factor == 1.0:
        return x_hw
    further = (1,) * (x_hw.ndim - 2)
    rows, columns = _taps(x_hw.shape[0], factor), _taps(x_hw.shape[1], factor)
    zoomed = np.zeros(x_hw.shape)
    for row, row_weight in rows:
        weighted = x_hw.take(row, axis=0, mode="clip")
        weighted *= row_weight.reshape(-1, 1, *further)
        for column, column_weight in columns:
            term = weighted.take(column, axis=1, mode="clip")
            term *= column_weight.reshape(-1, *further)
            zoomed += term
    return zoomed


def _taps(size: int, factor: float) -> tuple[tuple[NDArray[np.int64], Floats], tuple[NDArray[np.int64], Floats]]:
    """Return the two input positions of every output position, each with its weight."""
    kept = math.ceil(size / factor)
    enlarged = round(kept * factor)
    step = (kept - 1) / (enlarged - 1) if enlarged > 1 else 1.0
    trimmed = (enlarged - size) // 2
    coordinate = np.arange(trimmed, trimmed + size) * step
    first = np.floor(coordinate)
    near = 1.0 - (coordinate - first)
    # Rounding may put the last position beyond the edge; scipy takes 0 there.
    inside = coordinate <= kept - 1
    start = (size - kept) // 2
    first = first.astype(np.int64)
    return (
        (start + np.minimum(first, kept - 1), np.where(inside, near, 0.0)),
        # Not `coordinate - first`, from which it differs in the last bit
        (start + np.minimum(first + 1, kept - 1), np.where(inside, 1.0 - near, 0.0)),
    )


@CORRUPTIONS.register("glass_blur")
def glass_blur(images_nhwc: Pixels, streams: Streams, *, sigma: float, reach: int, rounds: int) -> Pixels:
    """Blur, copy every pixel from a random neighbor, blur again.

    The published script visits pixels from the last to the first and means to swap each with a neighbor at offsets from
    -reach to reach - 1; since it assigns views of one array, the neighbor keeps its value and the swap is a copy.
    """
    n, height, width, channels = images_nhwc.shape
    x = (smooth(to_unit(images_nhwc), sigma) * 255).astype(np.uint8).reshape(n, -1, channels)
    for _ in range(rounds):
        origin = _origins(streams, height, width, reach)
        x = np.take_along_axis(x, origin[..., None], axis=1)
    return to_pixels(smooth(to_unit(x.reshape(images_nhwc.shape)), sigma))


def _origins(streams: Streams, height: int, width: int, reach: int) -> NDArray[np.int64]:
    """Return for each pixel (flat index) the pixel whose old value it has after one pass of copies, `(n, h * w)`.

    The pass visits pixels from the last to the first. A neighbor earlier in memory still has its old value; a later one
    already has a copy, and its origin counts. Such chains are short, and are followed for all pixels at once.
    """
    rows = np.arange(reach + 1, height - reach + 1)
    columns = np.arange(reach + 1, width - reach + 1)
    position = np.tile(np.arange(height * width), (len(streams), 1))
    if len(rows) == 0 or len(columns) == 0:
        return position
    visited = (rows[:, None] * width + columns).ravel()
    offset = streams.integers(-reach, reach, 2, len(visited))
    neighbor = position.copy()
    neighbor[:, visited] = visited + offset[:, 0] * width + offset[:, 1]
    origin = neighbor.copy()
    is_visited = np.zeros(height * width, bool)
    is_visited[visited] = True
    image, pixel = np.nonzero((neighbor > position) & is_visited[neighbor])
    while len(image):
        here = origin[image, pixel]
        there = neighbor[image, here]
        origin[image, pixel] = there
        onward = (there > here) & is_visited[there]
        image, pixel = image[onward], pixel[onward]
    return origin
