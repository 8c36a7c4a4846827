"""Synthetic shifts of the source's validation images, to choose a checkpoint by without looking at any target.

The choice is honest only where the shifts are neither trained on nor tested on. So all three kinds are named here, by
what they do, and are disjoint: what training applies, what sets the targets apart, and what the choice is made by. A
test holds the three apart; the code itself reads the last alone.
Shape legend: n images, h rows, w columns, k uniform numbers of an image.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from asrnorm.core.errors import InputError, InputTypeError, UnknownNameError, describe_unknown
from asrnorm.data.augment import to_float
from asrnorm.methods import keyed_generator

TRAINING_TRANSFORMS = frozenset(
    {
        # RDA, RSDA and ESDA, on any suite
        *("autocontrast", "brightness", "color", "contrast", "sharpness", "solarize", "grayscale"),
        *("shift_red", "shift_green", "shift_blue"),
        *("crop", "flip"),  # CIFAR's; RSC's third version flips too
        *("resized_crop", "hue"),  # PACS's, whose others are among RSDA's
    }
)
"""What any recipe or method does to images in training."""

_DIGIT_TARGETS = frozenset(
    {
        *("photograph_blend", "inversion", "colored_stroke", "colored_ground"),
        *("font", "rotation", "neighboring_digit", "blur", "rescan"),
    }
)

TARGET_SHIFTS = {
    "digits": _DIGIT_TARGETS,
    "digits_mini": _DIGIT_TARGETS,
    "cifar10c": frozenset(
        {
            *("brightness", "contrast", "saturate", "fog", "frost", "snow", "spatter"),
            *("gaussian_noise", "impulse_noise", "shot_noise", "speckle_noise"),
            *("defocus_blur", "gaussian_blur", "glass_blur", "motion_blur", "zoom_blur"),
            *("elastic_transform", "jpeg_compression", "pixelate"),
        }
    ),
    "pacs": frozenset({"photograph", "painting", "cartoon", "sketch"}),
    "folder": frozenset(),  # the user's own
}
"""What sets each suite's targets apart from its source."""

_COLOR_SHIFTS = (
    *("gamma", "color_cast", "channel_swap", "illumination", "posterize"),
    *("dither", "grating", "lens", "occlusion"),
)
# Digits are gray: swapped channels would change nothing, and a color cast is a colored stroke, which targets have.
_DIGIT_SHIFTS = ("gamma", "glow", "grating", "lens", "occlusion")

SELECTION_SHIFTS = {
    "digits": _DIGIT_SHIFTS,
    "digits_mini": _DIGIT_SHIFTS,
    "cifar10c": _COLOR_SHIFTS,
    "pacs": _COLOR_SHIFTS,
    "folder": _COLOR_SHIFTS,
}
"""What `shifted-val` applies to the validation images of each suite."""

_NUM_UNIFORM = 4  # as many as the shift that draws most of an image
_PIECE = 1 << 22  # values worked on at a time: about 50 MB with the intermediates


def shift_images(images: NDArray[np.uint8], suite_name: str, seed: int = 0) -> dict[str, NDArray[np.uint8]]:
    """Return the images under every shift that a suite's choice is made by.

    Args:
        images: uint8 `(n, h, w, 3)`, of any size.
        suite_name: a registry name; it decides which shifts.
        seed: decides their parameters, an image's own in each shift.

    Raises:
        UnknownNameError: no such suite.

    Example:
        >>> sorted(shift_images(np.zeros((2, 8, 8, 3), np.uint8), "digits"))
        ['gamma', 'glow', 'grating', 'lens', 'occlusion']
    """
    if suite_name not in SELECTION_SHIFTS:
        raise UnknownNameError(describe_unknown("suite with selection shifts,", suite_name, SELECTION_SHIFTS))
    return {name: apply_shift(images, name, seed) for name in SELECTION_SHIFTS[suite_name]}


def apply_shift(images: NDArray[np.uint8], name: str, seed: int = 0) -> NDArray[np.uint8]:
    """Return the images under one shift, for sets too large to hold under all of them at once.

    What is drawn for an image depends on the seed, the shift and the image's place, not on how many there are.

    Args:
        images: uint8 `(n, h, w, 3)`, of any size.
        name: of the shift.
        seed: decides its parameters.

    Raises:
        UnknownNameError: no such shift.
        InputTypeError: not uint8.
        InputError: not of that shape.

    Example:
        >>> apply_shift(np.full((1, 1, 1, 3), (10, 20, 30), np.uint8), "channel_swap").flatten().tolist()
        [10, 30, 20]
    """
    if name not in _SHIFTS:
        raise UnknownNameError(describe_unknown("selection shift", name, _SHIFTS))
    if images.dtype != np.uint8:
        raise InputTypeError(f"expected uint8 images, got {images.dtype}")
    if images.ndim != 4 or images.shape[3] != 3:
        raise InputError(f"expected images (n, h, w, 3), got {images.shape}")
    n, h, w, _ = images.shape
    generator = keyed_generator(seed, "shifted-val", name)
    uniform_nk = torch.rand((n, _NUM_UNIFORM), generator=generator, dtype=torch.float64).float()
    out = np.empty_like(images)
    step = max(1, _PIECE // max(1, 3 * h * w))
    for start in range(0, n, step):
        part = slice(start, start + step)
        x_nchw = to_float(torch.from_numpy(np.array(images[part])).permute(0, 3, 1, 2))
        y_nchw = _SHIFTS[name](x_nchw, uniform_nk[part])
        out[part] = (y_nchw * 255).round().clamp(0, 255).to(torch.uint8).permute(0, 2, 3, 1).numpy()
    return out


def _between(uniform_n: Tensor, low: float, high: float) -> Tensor:
    return (low + (high - low) * uniform_n)[:, None, None, None]


def _plane(x_nchw: Tensor) -> tuple[Tensor, Tensor]:
    """Row and column of each pixel's center in -1..1, `(1, 1, h, 1)` and `(1, 1, 1, w)`."""
    h, w = x_nchw.shape[2:]
    rows = (torch.arange(h) + 0.5) * (2 / h) - 1
    columns = (torch.arange(w) + 0.5) * (2 / w) - 1
    return rows.view(1, 1, -1, 1), columns.view(1, 1, 1, -1)


def _gamma(x_nchw: Tensor, u_nk: Tensor) -> Tensor:
    """A power well below one, or well above."""
    power = torch.where(u_nk[:, 0] < 0.5, 0.35 + 0.2 * u_nk[:, 1], 1.8 + u_nk[:, 1])
    return x_nchw ** power[:, None, None, None]


def _permuted(values: list[list[Any]], u_n: Tensor) -> Tensor:
    """One of the lists for each image, uniformly."""
    return torch.tensor(values)[(u_n * len(values)).long().clamp_(max=len(values) - 1)]


def _color_cast(x_nchw: Tensor, u_nk: Tensor) -> Tensor:
    """A colored lamp: one channel weaker, one stronger, by factors."""
    gains = [[0.5, 1.0, 1.4], [0.5, 1.4, 1.0], [1.0, 0.5, 1.4], [1.0, 1.4, 0.5], [1.4, 0.5, 1.0], [1.4, 1.0, 0.5]]
    return x_nchw * _permuted(gains, u_nk[:, 0])[:, :, None, None]


def _channel_swap(x_nchw: Tensor, u_nk: Tensor) -> Tensor:
    """Two channels exchanged: it mirrors the circle of hues, while moving all three round would turn it."""
    order = _permuted([[1, 0, 2], [2, 1, 0], [0, 2, 1]], u_nk[:, 0])
    return x_nchw.gather(1, order[:, :, None, None].expand_as(x_nchw))


def _illumination(x_nchw: Tensor, u_nk: Tensor) -> Tensor:
    """Light from one side: a factor that falls off across the image."""
    row, column = _plane(x_nchw)
    angle = _between(u_nk[:, 0], 0, 2 * math.pi)
    across = (angle.cos() * column + angle.sin() * row) / (angle.cos().abs() + angle.sin().abs())
    return x_nchw * (_between(u_nk[:, 1], 0.6, 1.0) * across).exp()


def _glow(x_nchw: Tensor, u_nk: Tensor) -> Tensor:
    """A soft gray light somewhere on the ground, over which strokes stay visible."""
    row, column = _plane(x_nchw)
    distance = (row - _between(u_nk[:, 0], -0.8, 0.8)) ** 2 + (column - _between(u_nk[:, 1], -0.8, 0.8)) ** 2
    width = _between(u_nk[:, 2], 0.5, 0.9)
    light = _between(u_nk[:, 3], 0.4, 0.6) * (-distance / (2 * width**2)).exp()
    return 1 - (1 - x_nchw) * (1 - light)


def _posterize(x_nchw: Tensor, u_nk: Tensor) -> Tensor:
    """Four or five values a channel."""
    count = 4 + (_between(u_nk[:, 0], 0, 1) < 0.5).float()
    return (x_nchw * count).floor().minimum(count - 1) / (count - 1)


def _dither(x_nchw: Tensor, u_nk: Tensor) -> Tensor:
    """Three or four values a channel, the rest as a pattern of dots."""
    quad = torch.tensor([[0.0, 2.0], [3.0, 1.0]])
    tile = 4 * quad.repeat(2, 2) + quad.repeat_interleave(2, 0).repeat_interleave(2, 1)
    h, w = x_nchw.shape[2:]
    threshold = ((tile + 0.5) / 16).repeat(-(-h // 4), -(-w // 4))[:h, :w]
    steps = 2 + (_between(u_nk[:, 0], 0, 1) < 0.5).float()
    return (x_nchw * steps + threshold).floor().minimum(steps) / steps


def _grating(x_nchw: Tensor, u_nk: Tensor) -> Tensor:
    """Stripes laid over the image: a sine of some direction, width and phase, lighter and darker in turn."""
    row, column = _plane(x_nchw)
    angle = _between(u_nk[:, 0], 0, math.pi)
    wave = angle.cos() * column + angle.sin() * row
    phase = math.pi * _between(u_nk[:, 1], 3, 6) * wave + _between(u_nk[:, 2], 0, 2 * math.pi)
    return x_nchw + _between(u_nk[:, 3], 0.15, 0.3) * phase.sin()


def _lens(x_nchw: Tensor, u_nk: Tensor) -> Tensor:
    """Barrel or pincushion: points move along the radius, more the farther out, the middles of the sides not."""
    row, column = _plane(x_nchw)
    strength = torch.where(u_nk[:, 0] < 0.5, 0.25 + 0.2 * u_nk[:, 1], -0.3 + 0.1 * u_nk[:, 1])[:, None, None, None]
    factor = (1 + strength * (row**2 + column**2)) / (1 + strength)
    grid = torch.cat([column * factor, row * factor], 1).permute(0, 2, 3, 1)
    return F.grid_sample(x_nchw, grid, padding_mode="border", align_corners=False)


def _occlusion(x_nchw: Tensor, u_nk: Tensor) -> Tensor:
    """A gray square of about a third of the side."""
    row, column = _plane(x_nchw)
    half = _between(u_nk[:, 2], 0.28, 0.38)
    inside_rows = (row - _between(u_nk[:, 0], -0.7, 0.7)).abs() <= half
    inside_columns = (column - _between(u_nk[:, 1], -0.7, 0.7)).abs() <= half
    return x_nchw.masked_fill(inside_rows & inside_columns, 0.5)


_SHIFTS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "gamma": _gamma,
    "color_cast": _color_cast,
    "channel_swap": _channel_swap,
    "illumination": _illumination,
    "glow": _glow,
    "posterize": _posterize,
    "dither": _dither,
    "grating": _grating,
    "lens": _lens,
    "occlusion": _occlusion,
}
