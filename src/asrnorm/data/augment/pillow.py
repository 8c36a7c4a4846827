"""The same operations with Pillow, one image at a time: the reference of the tests and the baseline of the bench."""

import math
import random
from collections.abc import Callable, Sequence

import numpy as np
from PIL import Image, ImageEnhance, ImageOps
from PIL.Image import Resampling, Transpose

from asrnorm.data.augment.geometry import RATIO, SCALE

PillowImage = Image.Image


def shift_channel(image: PillowImage, amount: float, channel: int) -> PillowImage:
    """Add to one channel and clip."""
    values = np.array(image).astype(int)
    values[:, :, channel] += int(amount)
    return Image.fromarray(values.clip(0, 255).astype(np.uint8))


def shift_hue(image: PillowImage, amount: float) -> PillowImage:
    """Add `int(amount * 255)` to the hue byte, which wraps."""
    hue, saturation, value = image.convert("HSV").split()
    turned = (np.array(hue).astype(int) + int(amount * 255)) % 256
    return Image.merge("HSV", (Image.fromarray(turned.astype(np.uint8)), saturation, value)).convert("RGB")


def grayscale(image: PillowImage) -> PillowImage:
    """Gray in three channels."""
    return ImageOps.grayscale(image).convert("RGB")


OPERATIONS: dict[str, Callable[[PillowImage, float], PillowImage]] = {
    "autocontrast": lambda image, cutoff: ImageOps.autocontrast(image, cutoff),
    "brightness": lambda image, factor: ImageEnhance.Brightness(image).enhance(factor),
    "color": lambda image, factor: ImageEnhance.Color(image).enhance(factor),
    "contrast": lambda image, factor: ImageEnhance.Contrast(image).enhance(factor),
    "sharpness": lambda image, factor: ImageEnhance.Sharpness(image).enhance(factor),
    "solarize": lambda image, threshold: ImageOps.solarize(image, int(threshold)),
    "grayscale": lambda image, _: grayscale(image),
    "shift_red": lambda image, amount: shift_channel(image, amount, 0),
    "shift_green": lambda image, amount: shift_channel(image, amount, 1),
    "shift_blue": lambda image, amount: shift_channel(image, amount, 2),
}
"""RSDA's operations by the names of `RSDA_OPERATIONS`, as functions of an image and the value of a level."""


def apply_named(image: PillowImage, steps: Sequence[tuple[str, float]]) -> PillowImage:
    """Apply RSDA operations one after the other."""
    for name, level in steps:
        image = OPERATIONS[name](image, level)
    return image


def crop_flip(image: PillowImage, top: int, left: int, flip: bool, padding: int) -> PillowImage:
    """Pad by reflection, cut a window of the original size, mirror it where asked."""
    sides = ((padding, padding), (padding, padding), (0, 0))
    padded = Image.fromarray(np.pad(np.asarray(image), sides, mode="reflect"))
    cut = padded.crop((left, top, left + image.width, top + image.height))
    return cut.transpose(Transpose.FLIP_LEFT_RIGHT) if flip else cut


def draw_box(rng: random.Random, height: int, width: int) -> tuple[int, int, int, int]:
    """Draw `(top, left, height, width)` as `RandomResizedCrop` does: ten attempts, then the largest centered box."""
    for _ in range(10):
        area = height * width * rng.uniform(*SCALE)
        aspect = math.exp(rng.uniform(math.log(RATIO[0]), math.log(RATIO[1])))
        w, h = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < w <= width and 0 < h <= height:
            return rng.randint(0, height - h), rng.randint(0, width - w), h, w
    h, w = min(height, round(width / RATIO[0])), min(width, round(height * RATIO[1]))
    return (height - h) // 2, (width - w) // 2, h, w


def resize_box(image: PillowImage, box: tuple[int, int, int, int], size: tuple[int, int], flip: bool) -> PillowImage:
    """Cut `(top, left, height, width)`, resize to `(height, width)`, rows first, mirror where asked.

    The two axes are resized by two calls, since Pillow 13 chooses their order by itself.
    """
    top, left, height, width = box
    cut = image.crop((left, top, left + width, top + height))
    cut = cut.resize((size[1], height), Resampling.BILINEAR).resize((size[1], size[0]), Resampling.BILINEAR)
    return cut.transpose(Transpose.FLIP_LEFT_RIGHT) if flip else cut


def jitter_colors(image: PillowImage, factors: Sequence[float], hue: float, order: Sequence[int]) -> PillowImage:
    """Brightness, contrast and saturation by their factors, and hue, in the given order of 0, 1, 2, 3."""
    blends = (ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color)
    for index in order:
        image = shift_hue(image, hue) if index == 3 else blends[index](image).enhance(factors[index])
    return image
