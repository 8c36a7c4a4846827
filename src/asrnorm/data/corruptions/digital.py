"""Noise, and the digital corruptions: brightness, saturation, contrast, pixelation, JPEG and elastic transform."""

from io import BytesIO
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from asrnorm.data.corruptions.base import CORRUPTIONS, Floats, Pixels, Streams, import_opencv, to_pixels, to_unit
from asrnorm.data.corruptions.blur import smooth


@CORRUPTIONS.register("gaussian_noise")
def gaussian_noise(images_nhwc: Pixels, streams: Streams, *, sd: float) -> Pixels:
    """Add N(0, sd) to every value."""
    return to_pixels(to_unit(images_nhwc) + sd * streams.normal(*images_nhwc.shape[1:]))


@CORRUPTIONS.register("shot_noise")
def shot_noise(images_nhwc: Pixels, streams: Streams, *, photons: float) -> Pixels:
    """Count Poisson photons, `photons` of them where an image is white: fewer photons, more noise."""
    return to_pixels(streams.poisson(to_unit(images_nhwc) * photons) / photons)


@CORRUPTIONS.register("impulse_noise")
def impulse_noise(images_nhwc: Pixels, streams: Streams, *, amount: float) -> Pixels:
    """Replace a fraction `amount` of all values by 0 or 255, half each."""
    chance = streams.uniform(*images_nhwc.shape[1:])
    corrupted = images_nhwc.copy()
    corrupted[chance < amount] = 0
    corrupted[chance < amount / 2] = 255
    return corrupted


@CORRUPTIONS.register("speckle_noise")
def speckle_noise(images_nhwc: Pixels, streams: Streams, *, sd: float) -> Pixels:
    """Add N(0, sd) times the value to every value."""
    x = to_unit(images_nhwc)
    return to_pixels(x + x * (sd * streams.normal(*images_nhwc.shape[1:])))


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
    # Image by image: the order in which numpy sums, and so the last bit, depends on the shape of the whole array.
    mean = np.stack([image.mean(axis=(0, 1), keepdims=True) for image in x])
    return to_pixels((x - mean) * factor + mean)


# HSV in float64, in scikit-image's order of operations: results are truncated to 8 bits, so that a difference in the
# last bit would show as a whole gray level.
def _to_hsv(x: Floats) -> tuple[Floats, Floats, Floats]:
    red, green, blue = (np.ascontiguousarray(x[..., channel]) for channel in range(3))
    value = np.maximum(np.maximum(red, green), blue)
    span = value - np.minimum(np.minimum(red, green), blue)
    colored = span > 0
    saturation = np.divide(span, value, out=np.zeros_like(value), where=colored)
    # In sixths of the circle, from the largest channel; of equal ones blue comes first, then green.
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


@CORRUPTIONS.register("pixelate")
def pixelate(images_nhwc: Pixels, _streams: Streams, *, scale: float) -> Pixels:
    """Shrink with a box filter and enlarge back."""
    height, width = images_nhwc.shape[1:3]
    small = max(1, int(width * scale)), max(1, int(height * scale))
    box = Image.Resampling.BOX
    return np.stack(
        [np.asarray(Image.fromarray(image).resize(small, box).resize((width, height), box)) for image in images_nhwc]
    )


@CORRUPTIONS.register("jpeg_compression")
def jpeg_compression(images_nhwc: Pixels, _streams: Streams, *, quality: int) -> Pixels:
    """Write as JPEG and read back."""
    files = [BytesIO() for _ in images_nhwc]
    for image, file in zip(images_nhwc, files, strict=True):
        Image.fromarray(image).save(file, "JPEG", quality=int(quality))
    return np.stack([np.asarray(Image.open(file)) for file in files])


@CORRUPTIONS.register("elastic_transform")
def elastic_transform(images_nhwc: Pixels, streams: Streams, *, alpha: float, sigma: float, affine: float) -> Pixels:
    """Move three points by up to `affine`, and the image with them, then stretch it locally.

    The local displacement is up to `alpha` before a Gaussian of `sigma` smooths it; all are fractions of the shorter
    side.
    """
    height, width = images_nhwc.shape[1:3]
    side = min(height, width)
    x = _move(to_unit(images_nhwc, np.float32), streams.uniform(3, 2, low=-1.0, high=1.0) * (affine * side))
    if alpha == 0:
        return to_pixels(x)
    field = streams.uniform(2, height, width, low=-1.0, high=1.0)
    smoothed = (smooth(field[:, axis], sigma * side, mode="reflect", truncate=3.0) for axis in (0, 1))
    right, down = ((displacement * (alpha * side)).astype(np.float32) for displacement in smoothed)
    return to_pixels(_sample(x, np.arange(height)[:, None] + down, np.arange(width) + right))


def _move(x_nhwc: Floats, shift_n32: Floats) -> Floats:
    cv2: Any = import_opencv("elastic_transform")
    height, width = x_nhwc.shape[1:3]
    # Paper: the script takes (height, width) for the center where OpenCV reads (x, y); only squares hide that.
    center = np.array([width // 2, height // 2], np.float32)
    arm = max(1, min(height, width) // 3)
    corners = center + np.array([[arm, arm], [arm, -arm], [-arm, -arm]], np.float32)
    moved = []
    for image, shift in zip(x_nhwc, shift_n32, strict=True):
        matrix = cv2.getAffineTransform(corners, corners + shift.astype(np.float32))
        moved.append(cv2.warpAffine(image, matrix, (width, height), borderMode=cv2.BORDER_REFLECT_101))
    return np.stack(moved)


def _sample(x_nhwc: Floats, row_nhw: Floats, column_nhw: Floats) -> Floats:
    """Read images between pixels, linearly, reflected at the borders (edge pixels repeated)."""
    n, height, width, channels = x_nhwc.shape
    pixels = x_nhwc.reshape(-1, channels)
    first = (np.arange(n) * height * width)[:, None, None]
    above, column = np.floor(row_nhw), np.floor(column_nhw)
    lower = (row_nhw - above)[..., None]
    further_right = (column_nhw - column)[..., None]
    total = np.zeros(x_nhwc.shape)
    for dy, weight_y in ((0, 1.0 - lower), (1, lower)):
        row_index = first + _reflect(above.astype(np.int64) + dy, height) * width
        for dx, weight_x in ((0, 1.0 - further_right), (1, further_right)):
            index = row_index + _reflect(column.astype(np.int64) + dx, width)
            total += pixels[index] * (weight_y * weight_x)
    return total.astype(x_nhwc.dtype)


def _reflect(index: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    index = index % (2 * size)
    return np.minimum(index, 2 * size - 1 - index)
