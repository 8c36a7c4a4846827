"""Spatter: drops of water or mud on the lens."""

from typing import Any

import numpy as np

from asrnorm.data.corruption.base import CORRUPTIONS, Floats, Pixels, to_pixels, to_unit
from asrnorm.data.corruption.blur import smooth
from asrnorm.data.corruption.opencv import import_opencv
from asrnorm.data.corruption.stream import Streams

_WATER = np.array([175, 238, 238], np.float32) / 255
_MUD = np.array([63, 42, 20], np.float32) / 255
_EMBOSS = np.array([[-2, -1, 0], [-1, 1, 1], [0, 1, 2]])
_EDGE_LOW, _EDGE_HIGH = 50, 150
_FARTHEST = 20  # distances from an edge are cut off here, in pixels
_MUD_EDGE = 0.8


@CORRUPTIONS.register("spatter")
def spatter(
    images_nhwc: Pixels,
    streams: Streams,
    *,
    mean: float,
    sd: float,
    sigma: float,
    threshold: float,
    strength: float,
    mud: bool,
) -> Pixels:
    """Cover the image with drops where a smooth random layer lies above a threshold.

    Args:
        images_nhwc: the images.
        streams: their randomness.
        mean: of the normal layer.
        sd: of the normal layer.
        sigma: of the Gaussian that smooths it.
        threshold: the layer counts only above this.
        strength: for water, how strong the brightest drop is; for mud, the sigma that softens its border.
        mud: brown and opaque, where water is pale and adds light.
    """
    x = to_unit(images_nhwc, np.float32)
    layer = smooth(mean + sd * streams.normal(*images_nhwc.shape[1:3]), sigma)
    if mud:
        cover = smooth((layer > threshold).astype(np.float32), strength)[..., None]
        cover[cover < _MUD_EDGE] = 0
        return to_pixels(x * (1 - cover) + _MUD * cover)
    layer[layer < threshold] = 0
    # Values above 1 wrap around in 8 bits, as in the published script.
    liquid = (layer * 255).astype(np.int64).astype(np.uint8)
    shine = np.stack([drop * _relief(drop) for drop in liquid])[..., None]
    brightest = shine.max(axis=(1, 2, 3), keepdims=True)
    # Without a single drop the script divides by zero; here the image stays as it is.
    shine /= np.where(brightest > 0, brightest, 1)
    return to_pixels(x + shine * np.float32(strength) * _WATER)


def _relief(liquid_hw: Pixels) -> Floats:
    """Light the drops from one side, by their distance from the nearest edge."""
    cv2: Any = import_opencv("spatter")
    distance = cv2.distanceTransform(255 - cv2.Canny(liquid_hw, _EDGE_LOW, _EDGE_HIGH), cv2.DIST_L2, 5)
    distance = cv2.blur(np.minimum(distance, np.float32(_FARTHEST)), (3, 3)).astype(np.uint8)
    embossed = cv2.filter2D(cv2.equalizeHist(distance), cv2.CV_8U, _EMBOSS)
    lit: Floats = cv2.blur(embossed, (3, 3)).astype(np.float32)
    return lit
