"""Brightness, contrast and saturation.

Hue, saturation and value in float64, in the order of operations of scikit-image: the results are truncated to 8 bits,
so that a last-bit difference would show as a whole grey level.
"""

import numpy as np

from asrnorm.data.corruption.base import CORRUPTIONS, Floats, Pixels, to_pixels, to_unit
from asrnorm.data.corruption.stream import Streams


@CORRUPTIONS.register("brightness")
def brightness(images_nhwc: Pixels, _streams: Streams, *, add: float) -> Pixels:
    """Add to the value of HSV."""
    hue, saturation, value = _to_hsv(to_unit(images_nhwc))
    return to_pixels(_from_hsv(hue, saturation, np.clip(value + add, 0, 1)))


@CORRUPTIONS.register("saturate")
def saturate(images_nhwc: Pixels, _streams: Streams, *, factor: float, add: float) -> Pixels:
    """Scale and shift the saturation of HSV."""
    hue, saturation, value = _to_hsv(to_unit(images_nhwc))
    return to_pixels(_from_hsv(hue, np.clip(saturation * factor + add, 0, 1), value))


@CORRUPTIONS.register("contrast")
def contrast(images_nhwc: Pixels, _streams: Streams, *, factor: float) -> Pixels:
    """Pull every value towards the mean of its channel."""
    x = to_unit(images_nhwc)
    # Image by image: the order in which numpy sums, and with it the last bit, depends on the shape of the whole array.
    mean = np.stack([image.mean(axis=(0, 1), keepdims=True) for image in x])
    return to_pixels((x - mean) * factor + mean)


def _to_hsv(x: Floats) -> tuple[Floats, Floats, Floats]:
    red, green, blue = (np.ascontiguousarray(x[..., channel]) for channel in range(3))
    value = np.maximum(np.maximum(red, green), blue)
    span = value - np.minimum(np.minimum(red, green), blue)
    colored = span > 0
    saturation = np.divide(span, value, out=np.zeros_like(value), where=colored)
    # Sixths of the circle, from the largest channel; blue before green before red where two are equally large.
    difference = np.where(value == blue, red - green, np.where(value == green, blue - red, green - blue))
    start = np.where(value == blue, 4.0, np.where(value == green, 2.0, 0.0))
    hue = np.divide(difference, span, out=np.zeros_like(value), where=colored)
    hue = np.where(colored, (start + hue) / 6.0, 0.0)
    hue[hue < 0] += 1.0
    return hue, saturation, value


def _from_hsv(hue: Floats, saturation: Floats, value: Floats) -> Floats:
    sixths = hue * 6.0
    sector = np.floor(sixths)
    rest = sixths - sector
    low = value * (1.0 - saturation)
    falling = value * (1.0 - rest * saturation)
    rising = value * (1.0 - (1.0 - rest) * saturation)
    sector = sector.astype(np.uint8) % 6
    rgb = np.empty((*hue.shape, 3), hue.dtype)
    np.choose(sector, [value, falling, low, low, rising, value], out=rgb[..., 0])
    np.choose(sector, [rising, value, value, falling, low, low], out=rgb[..., 1])
    np.choose(sector, [low, low, rising, value, value, falling], out=rgb[..., 2])
    return rgb
