"""Synthetic shifts of the source's validation images, for model selection without target images.

Selection is fair only if its shifts occur neither in training nor in the targets; `tests/unit/evaluation/test_shift.py`
lists those and checks that they are disjoint.
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

from asrnorm.core.config import Fold
from asrnorm.core.errors import InputError, InputTypeError, UnknownNameError, describe_unknown
from asrnorm.data.augment import augment, to_float
from asrnorm.methods import keyed_generator

Shift = str | dict[str, Any]
"""A shift of this module, an augmentation, or a mapping with its name and options."""

_COLOR_SHIFTS = (
    *("gamma", "color_cast", "channel_swap", "illumination", "posterize"),
    *("dither", "grating", "lens", "occlusion"),
)
# Digits are gray: swapped channels would change nothing, and a color cast is a colored stroke, which targets have.
_DIGIT_SHIFTS = ("gamma", "glow", "grating", "lens", "occlusion")

SELECTION_SHIFTS: dict[str, tuple[Shift, ...]] = {
    **dict.fromkeys(("digits", "digits_mini"), _DIGIT_SHIFTS),
    **dict.fromkeys(("cifar10c", "pacs", "folder"), _COLOR_SHIFTS),
}
"""Shifts that `shifted-val` applies to the validation images of each suite."""

# What holds for both halves of the bank: a suite's lists leave out what its targets show, such as lines for PACS.
_VALUE_SHIFTS = ("gamma", "color_cast", "channel_swap", "illumination", "posterize", "dither")
_STRUCTURE_SHIFTS = ("grating", "lens", "occlusion", "affine", "randconv", "pro_randconv", "fourier")
_PHOTOMETRIC = "invert", "solarize", "posterize", "contrast", "brightness", "gamma", "gray"
_PICTURES: dict[str, tuple[Shift, ...]] = {
    "values": (*_VALUE_SHIFTS, "noise", {"name": "photometric", "operations": _PHOTOMETRIC}),
    "structure": (*_STRUCTURE_SHIFTS, "blur", "pixelate"),
}
_DIGITS: dict[str, tuple[Shift, ...]] = {
    "values": ("gamma", "glow", "noise", {"name": "photometric", "operations": _PHOTOMETRIC[2:-1]}),
    "structure": ("grating", "lens", "occlusion", "edges", "randconv", "pro_randconv", "fourier"),
}
_TINY_PICTURES: dict[str, tuple[Shift, ...]] = {
    "values": (*_VALUE_SHIFTS, {"name": "photometric", "operations": ("invert", "solarize", "posterize", "gray")}),
    "structure": (*_STRUCTURE_SHIFTS, "edges"),
}
FOLD_SHIFTS = {
    **dict.fromkeys(("digits", "digits_mini"), _DIGITS),
    **dict.fromkeys(("pacs", "folder"), _PICTURES),
    "cifar10c": _TINY_PICTURES,
}
"""Shifts of each half of the bank, on which a run that trains with the other half is measured."""

_NUM_UNIFORM = 4  # random numbers per image; no shift uses more
_BATCH = 128  # of augmented images, some of which take something from another one
_CHUNK_VALUES = 1 << 22  # processed at a time: about 50 MB with the intermediates


def shift_images(
    images: NDArray[np.uint8],
    suite_name: str,
    seed: int = 0,
    *,
    fold: Fold = "none",
    device: torch.device | str = "cpu",
) -> dict[str, NDArray[np.uint8]]:
    """Return images, uint8 `(n, h, w, 3)` of any size, under every selection shift of a suite.

    With a `fold`, the shifts are those of the half of the bank that such a run does not train with; augmentations are
    computed on the device.

    Example:
        >>> sorted(shift_images(np.zeros((2, 8, 8, 3), np.uint8), "digits"))
        ['gamma', 'glow', 'grating', 'lens', 'occlusion']
    """
    held: Fold = "structure" if fold == "values" else "values"
    shifts = SELECTION_SHIFTS if fold == "none" else {name: halves[held] for name, halves in FOLD_SHIFTS.items()}
    if suite_name not in shifts:
        raise UnknownNameError(describe_unknown("suite with selection shifts,", suite_name, shifts))
    shifted = {}
    for shift in shifts[suite_name]:
        part = {"name": shift} if isinstance(shift, str) else shift
        name = part["name"]
        is_own = name in _SHIFTS
        shifted[name] = apply_shift(images, name, seed) if is_own else _augment_all(images, part, seed, device)
    return shifted


def _augment_all(
    images: NDArray[np.uint8], part: dict[str, Any], seed: int, device: torch.device | str
) -> NDArray[np.uint8]:
    out = np.empty_like(images)
    for number, start in enumerate(range(0, len(images), _BATCH)):
        chunk = slice(start, start + _BATCH)
        x_nchw = torch.from_numpy(np.array(images[chunk])).permute(0, 3, 1, 2).to(device)
        out[chunk] = augment(x_nchw, [{**part, "share": 1.0}], seed=seed, step=number).permute(0, 2, 3, 1).cpu().numpy()
    return out


def apply_shift(images: NDArray[np.uint8], name: str, seed: int = 0) -> NDArray[np.uint8]:
    """Return the images under one shift, for sets too large to hold in memory under all shifts.

    The parameters of an image depend on the seed, the shift and the index of the image.

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
    step = max(1, _CHUNK_VALUES // max(1, 3 * h * w))
    for start in range(0, n, step):
        chunk = slice(start, start + step)
        x_nchw = to_float(torch.from_numpy(np.array(images[chunk])).permute(0, 3, 1, 2))
        y_nchw = _SHIFTS[name](x_nchw, uniform_nk[chunk])
        out[chunk] = (y_nchw * 255).round().clamp(0, 255).to(torch.uint8).permute(0, 2, 3, 1).numpy()
    return out


def _between(uniform_n: Tensor, low: float, high: float) -> Tensor:
    return (low + (high - low) * uniform_n)[:, None, None, None]


def _coordinates(x_nchw: Tensor) -> tuple[Tensor, Tensor]:
    """Row and column of each pixel's center in -1..1, `(1, 1, h, 1)` and `(1, 1, 1, w)`."""
    h, w = x_nchw.shape[2:]
    rows = (torch.arange(h) + 0.5) * (2 / h) - 1
    columns = (torch.arange(w) + 0.5) * (2 / w) - 1
    return rows.view(1, 1, -1, 1), columns.view(1, 1, 1, -1)


def _gamma(x_nchw: Tensor, u_nk: Tensor) -> Tensor:
    """A power well below or well above one."""
    power = torch.where(u_nk[:, 0] < 0.5, 0.35 + 0.2 * u_nk[:, 1], 1.8 + u_nk[:, 1])
    return x_nchw ** power[:, None, None, None]


def _choose(values: list[list[Any]], u_n: Tensor) -> Tensor:
    """One of the lists for each image, uniformly."""
    return torch.tensor(values)[(u_n * len(values)).long().clamp_(max=len(values) - 1)]


def _color_cast(x_nchw: Tensor, u_nk: Tensor) -> Tensor:
    """A colored lamp: one channel weaker, one stronger, by factors."""
    gains = [[0.5, 1.0, 1.4], [0.5, 1.4, 1.0], [1.0, 0.5, 1.4], [1.0, 1.4, 0.5], [1.4, 0.5, 1.0], [1.4, 1.0, 0.5]]
    return x_nchw * _choose(gains, u_nk[:, 0])[:, :, None, None]


def _channel_swap(x_nchw: Tensor, u_nk: Tensor) -> Tensor:
    """Two channels exchanged, which mirrors the hue circle; a cyclic shift of all three would rotate it."""
    order = _choose([[1, 0, 2], [2, 1, 0], [0, 2, 1]], u_nk[:, 0])
    return x_nchw.gather(1, order[:, :, None, None].expand_as(x_nchw))


def _illumination(x_nchw: Tensor, u_nk: Tensor) -> Tensor:
    """Light from one side: a factor that decreases across the image."""
    row, column = _coordinates(x_nchw)
    angle = _between(u_nk[:, 0], 0, 2 * math.pi)
    across = (angle.cos() * column + angle.sin() * row) / (angle.cos().abs() + angle.sin().abs())
    return x_nchw * (_between(u_nk[:, 1], 0.6, 1.0) * across).exp()


def _glow(x_nchw: Tensor, u_nk: Tensor) -> Tensor:
    """A soft gray light on the background, with the strokes still visible."""
    row, column = _coordinates(x_nchw)
    distance = (row - _between(u_nk[:, 0], -0.8, 0.8)) ** 2 + (column - _between(u_nk[:, 1], -0.8, 0.8)) ** 2
    width = _between(u_nk[:, 2], 0.5, 0.9)
    light = _between(u_nk[:, 3], 0.4, 0.6) * (-distance / (2 * width**2)).exp()
    return 1 - (1 - x_nchw) * (1 - light)


def _posterize(x_nchw: Tensor, u_nk: Tensor) -> Tensor:
    """Four or five values per channel."""
    count = 4 + (_between(u_nk[:, 0], 0, 1) < 0.5).float()
    return (x_nchw * count).floor().minimum(count - 1) / (count - 1)


def _dither(x_nchw: Tensor, u_nk: Tensor) -> Tensor:
    """Three or four values per channel, with ordered dithering in between."""
    quad = torch.tensor([[0.0, 2.0], [3.0, 1.0]])
    tile = 4 * quad.repeat(2, 2) + quad.repeat_interleave(2, 0).repeat_interleave(2, 1)
    h, w = x_nchw.shape[2:]
    threshold = ((tile + 0.5) / 16).repeat(-(-h // 4), -(-w // 4))[:h, :w]
    steps = 2 + (_between(u_nk[:, 0], 0, 1) < 0.5).float()
    return (x_nchw * steps + threshold).floor().minimum(steps) / steps


def _grating(x_nchw: Tensor, u_nk: Tensor) -> Tensor:
    """Stripes over the image: a sine of random direction, width and phase, added to the pixels."""
    row, column = _coordinates(x_nchw)
    angle = _between(u_nk[:, 0], 0, math.pi)
    wave = angle.cos() * column + angle.sin() * row
    phase = math.pi * _between(u_nk[:, 1], 3, 6) * wave + _between(u_nk[:, 2], 0, 2 * math.pi)
    return x_nchw + _between(u_nk[:, 3], 0.15, 0.3) * phase.sin()


def _lens(x_nchw: Tensor, u_nk: Tensor) -> Tensor:
    """Barrel or pincushion distortion that leaves the middle of each side fixed."""
    row, column = _coordinates(x_nchw)
    strength = torch.where(u_nk[:, 0] < 0.5, 0.25 + 0.2 * u_nk[:, 1], -0.3 + 0.1 * u_nk[:, 1])[:, None, None, None]
    factor = (1 + strength * (row**2 + column**2)) / (1 + strength)
    grid = torch.cat([column * factor, row * factor], 1).permute(0, 2, 3, 1)
    return F.grid_sample(x_nchw, grid, padding_mode="border", align_corners=False)


def _occlusion(x_nchw: Tensor, u_nk: Tensor) -> Tensor:
    """A gray square with about a third of the image's side."""
    row, column = _coordinates(x_nchw)
    half = _between(u_nk[:, 2], 0.28, 0.38)
    inside_rows = (row - _between(u_nk[:, 0], -0.7, 0.7)).abs() <= half
    inside_columns = (column - _between(u_nk[:, 1], -0.7, 0.7)).abs() <= half
    return x_nchw.masked_fill(inside_rows & inside_columns, 0.5)


_SHIFTS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    shift.__name__.removeprefix("_"): shift
    for shift in (
        *(_gamma, _color_cast, _channel_swap, _illumination, _glow),
        *(_posterize, _dither, _grating, _lens, _occlusion),
    )
}
