"""Snow and fog."""

import numpy as np

from asrnorm.data.corruption.base import CORRUPTIONS, Floats, Pixels, to_pixels, to_unit
from asrnorm.data.corruption.motion import smear
from asrnorm.data.corruption.stream import Streams
from asrnorm.data.corruption.zoom import zoom_in

_GRAY = np.array([0.299, 0.587, 0.114], np.float32)  # luma of ITU-R BT.601
_FIRST_WIBBLE = 100.0


@CORRUPTIONS.register("snow")
def snow(
    images_nhwc: Pixels,
    streams: Streams,
    *,
    mean: float,
    sd: float,
    zoom: float,
    threshold: float,
    radius: float,
    sigma: float,
    keep: float,
) -> Pixels:
    """Whiten the image and add falling flakes, and the same flakes turned by 180 degrees."""
    height, width = images_nhwc.shape[1:3]
    flakes_hwn = np.moveaxis(mean + sd * streams.normal(height, width), 0, -1)
    zoomed = np.moveaxis(zoom_in(flakes_hwn, zoom), -1, 0)
    flakes = to_pixels(np.where(zoomed < threshold, 0.0, zoomed))
    angles = streams.uniform(low=-135.0, high=-45.0)
    smeared = [smear(layer, radius, sigma, float(angle)) for layer, angle in zip(flakes, angles, strict=True)]
    fallen = to_unit(np.stack(smeared))[..., None]
    x = to_unit(images_nhwc, np.float32)
    gray = (x @ _GRAY)[..., None]
    x = np.float32(keep) * x + np.float32(1 - keep) * np.maximum(x, gray * np.float32(1.5) + np.float32(0.5))
    return to_pixels(x + fallen + fallen[:, ::-1, ::-1])


@CORRUPTIONS.register("fog")
def fog(images_nhwc: Pixels, streams: Streams, *, density: float, decay: float) -> Pixels:
    """Add a plasma fractal and scale back to the image's own maximum."""
    height, width = images_nhwc.shape[1:3]
    x = to_unit(images_nhwc)
    brightest = x.max(axis=(1, 2, 3), keepdims=True)
    side = max(2, 1 << (max(height, width) - 1).bit_length())
    haze = plasma(streams, side, decay)[:, :height, :width, None]
    return to_pixels((x + density * haze) * brightest / (brightest + density))


def plasma(streams: Streams, side: int, decay: float) -> Floats:
    """Draw maps by the diamond-square algorithm, scaled to 0..1, which wrap around at the borders.

    Each new point is the mean of its four neighbours plus `w * U(-w, w)`, where w starts at 100 and falls by the
    factor `decay` from one halving of the grid to the next.

    Args:
        streams: one map for each.
        side: a power of two.
        decay: the larger, the smoother.

    Returns:
        `(n, side, side)`.
    """
    height_nhw = np.zeros((len(streams), side, side))
    noise = streams.uniform(side * side, low=-1.0, high=1.0)
    used, step, wibble = 0, side, _FIRST_WIBBLE

    def wobble(neighbors: Floats) -> Floats:
        nonlocal used
        count = neighbors.shape[1] * neighbors.shape[2]
        drawn = noise[:, used : used + count].reshape(neighbors.shape)
        used += count
        return neighbors / 4 + wibble**2 * drawn

    while step >= 2:
        half = step // 2
        corner = height_nhw[:, ::step, ::step]
        below = corner + np.roll(corner, -1, axis=1)
        center = wobble(below + np.roll(below, -1, axis=2))
        height_nhw[:, half::step, half::step] = center
        above = center + np.roll(center, 1, axis=1)
        height_nhw[:, ::step, half::step] = wobble(above + corner + np.roll(corner, -1, axis=2))
        beside = center + np.roll(center, 1, axis=2)
        height_nhw[:, half::step, ::step] = wobble(beside + below)
        step = half
        wibble /= decay
    height_nhw -= height_nhw.min(axis=(1, 2), keepdims=True)
    height_nhw /= height_nhw.max(axis=(1, 2), keepdims=True)
    return height_nhw
