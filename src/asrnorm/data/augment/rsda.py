"""RSDA's transformation set: ten operations on grids of levels, applied in tuples (Volpi and Murino, ICCV 2019).

The set, its order and its grids are those of the authors' released code. The operations are Pillow's, here on whole
batches and equal to the bit.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor

from asrnorm.core.config import Fold
from asrnorm.core.errors import InputError, UnknownNameError, describe_unknown
from asrnorm.data.augment.base import Parameter, check_images, find_fused
from asrnorm.data.augment.color import (
    autocontrast,
    blend,
    brightness,
    color,
    contrast,
    grayscale,
    luma,
    mean_luma,
    sharpness,
    shift_channel,
    smooth,
    solarize,
    stretch,
)
from asrnorm.data.augment.named import AUGMENTATIONS, Operations, Size, check_range, on_bytes

IDENTITY = -1
"""The operation index that leaves an image as it is, for tuples shorter than the tensor that holds them."""


class Operation(NamedTuple):
    """One operation of the set: its name, its grid of levels, and the function of `(images, level)`."""

    name: str
    levels: tuple[float, ...]
    apply: Callable[[Tensor, Parameter], Tensor]


def _grid(low: float, high: float, count: int, dtype: type = float) -> tuple[float, ...]:
    return tuple(np.linspace(low, high, count).astype(dtype).tolist())


_FACTORS = _grid(0.6, 1.4, 20)
_SHIFTS = _grid(-120, 120, 30, int)

RSDA_OPERATIONS = (
    Operation("autocontrast", _grid(0.0, 0.3, 20), autocontrast),
    Operation("brightness", _FACTORS, brightness),
    Operation("color", _FACTORS, color),
    Operation("contrast", _FACTORS, contrast),
    Operation("sharpness", _FACTORS, sharpness),
    Operation("solarize", _grid(0, 20, 20, int), solarize),
    Operation("grayscale", (0,), lambda images, _: grayscale(images)),
    Operation("shift_red", _SHIFTS, partial(shift_channel, channel=0)),
    Operation("shift_green", _SHIFTS, partial(shift_channel, channel=1)),
    Operation("shift_blue", _SHIFTS, partial(shift_channel, channel=2)),
)
"""The ten operations in the order of the source, which is their index."""

_BY_NAME = {operation.name: operation for operation in RSDA_OPERATIONS}
_MOST_LEVELS = max(len(operation.levels) for operation in RSDA_OPERATIONS)
# All grids at one length: short ones repeat their last level.
_GRIDS = [(o.levels + o.levels[-1:] * _MOST_LEVELS)[:_MOST_LEVELS] for o in RSDA_OPERATIONS]


def draw_tuples(count: int, generator: torch.Generator, length: int = 3) -> tuple[Tensor, Tensor]:
    """Draw tuples as RSDA does: operations uniformly with replacement, then a level uniformly from each one's grid.

    Both are int64 `(count, length)`, on the generator's device.

    Example:
        >>> ops, levels = draw_tuples(100, torch.Generator().manual_seed(0))
        >>> ops.shape, 0 <= int(ops.min()) and int(ops.max()) <= 9
        (torch.Size([100, 3]), True)
    """
    ops = torch.randint(len(RSDA_OPERATIONS), (count, length), generator=generator, device=generator.device)
    return ops, draw_levels(ops, generator)


def draw_levels(ops: Tensor, generator: torch.Generator) -> Tensor:
    """Return an index into the grid of each operation, uniformly drawn."""
    # One draw in float64 scaled by the size of each grid: the sizes differ, and randint takes one bound.
    uniform = torch.rand(ops.shape, generator=generator, device=ops.device, dtype=torch.float64)
    sizes = _sizes(ops.device)[ops]
    return torch.minimum((uniform * sizes).long(), sizes - 1)


@AUGMENTATIONS.register("rsda")
class RsdaOperations(Operations):
    """RSDA's operations: `depth` of the ten in a row with levels of their grids, each image its own.

    The method `rsda` searches for tuples that the network finds hard, and applies one to the whole batch.

    Args:
        share: probability of each image to be changed.
        depth: operations in a row.
        operations: names of those to draw from; all of them if `None`.
    """

    names = tuple(operation.name for operation in RSDA_OPERATIONS)
    folds: ClassVar[Mapping[str, Fold]] = {"sharpness": "structure"}

    def __init__(self, *, share: float = 1.0, depth: int = 3, operations: Sequence[str] | None = None) -> None:
        super().__init__(share=share, operations=operations)
        self.depth = int(check_range("depth", depth, 1))

    def parameters(self, count: int, image_size: Size, generator: torch.Generator) -> dict[str, Tensor]:  # noqa: ARG002
        """Draw tuples as `draw_tuples` does."""
        ops = self.draw_operations((count, self.depth), generator)
        return {"ops": ops, "levels": draw_levels(ops, generator)}

    def change(self, images: Tensor, drawn: Mapping[str, Tensor]) -> Tensor:
        """Apply each image's tuple."""
        return on_bytes(images, lambda pixels: apply_tuple(pixels, drawn["ops"], drawn["levels"]))


def apply_named(images: Tensor, steps: Sequence[tuple[str, float]]) -> Tensor:
    """Apply operations by name, one after the other, each with one value for the whole batch.

    Steps are pairs of name and level **value**, such as `("brightness", 1.2)`; grayscale ignores its value. A name that
    is not in the set raises `UnknownNameError`.

    Example:
        >>> images = torch.full((1, 3, 1, 1), 100, dtype=torch.uint8)
        >>> apply_named(images, [("brightness", 1.4), ("shift_red", 20), ("solarize", 150)]).flatten().tolist()
        [95, 140, 140]
    """
    check_images(images)
    for name, level in steps:
        if name not in _BY_NAME:
            raise UnknownNameError(describe_unknown("RSDA operation", name, _BY_NAME))
        images = _BY_NAME[name].apply(images, level)
    return images


def apply_tuple(images: Tensor, ops: Tensor, levels: Tensor) -> Tensor:
    """Apply tuples given as tensors: one to the whole batch, or each sample its own.

    On the CPU only the operations in `ops` run. On another device the host reads neither tensor, so the call can be
    captured in a CUDA graph and replayed with new tuples: with Triton and small images in one kernel
    (`kernels/rsda.py`), else by `apply_unread`. All paths give the same bits.

    Args:
        images: uint8 `(n, 3, h, w)`.
        ops: operation indices, `(k,)` for the batch or `(n, k)` for each sample; `IDENTITY` does nothing.
        levels: indices into the grids, of the same shape. An index beyond its grid is an error on the CPU, and means
            the last level on another device.

    Example:
        >>> images = torch.full((1, 3, 1, 1), 100, dtype=torch.uint8)
        >>> apply_tuple(images, torch.tensor([1, 7, IDENTITY]), torch.tensor([19, 0, 0])).flatten().tolist()
        [20, 140, 140]
    """
    check_images(images)
    if ops.shape != levels.shape or ops.ndim not in (1, 2) or (ops.ndim == 2 and ops.shape[0] != images.shape[0]):
        found = f"{tuple(ops.shape)} and {tuple(levels.shape)}"
        raise InputError(f"expected ops and levels of one shape, (k,) or ({images.shape[0]}, k), got {found}")
    if ops.device.type == "cpu":
        return _apply_read(images, ops, levels)
    fused = find_fused(images)
    if fused is None:
        return apply_unread(images, ops, levels)
    return fused(images, ops, levels, level_values(images.device, images.shape[2] * images.shape[3]))


def _apply_read(images: Tensor, ops: Tensor, levels: Tensor) -> Tensor:
    ops, levels = torch.atleast_2d(ops.long()), torch.atleast_2d(levels.long().cpu())
    known, sizes = len(RSDA_OPERATIONS), _sizes(torch.device("cpu"))
    if bool(((ops < IDENTITY) | (ops >= known)).any()):
        raise InputError(f"expected operation indices from {IDENTITY} (identity) to {known - 1}, got {ops.tolist()}")
    if bool(((levels < 0) | (levels >= sizes[ops])).any()):
        raise InputError(f"level outside its grid: levels {levels.tolist()}, grids of {sizes[ops].tolist()}")
    for op, level in zip(ops.unbind(1), levels.unbind(1), strict=True):
        before = images
        for index in set(op.tolist()) - {IDENTITY}:  # each operation runs once, on the samples that have it
            operation = RSDA_OPERATIONS[index]
            rows = (op == index).nonzero().squeeze(1)
            values = torch.tensor(operation.levels, dtype=torch.float64, device="cpu")[level[rows]].to(images.device)
            if len(rows) == len(op):
                images = operation.apply(before, values)
            else:
                images = images.clone() if images is before else images
                images[rows.to(images.device)] = operation.apply(before[rows.to(images.device)], values)
    return images


def apply_unread(images: Tensor, ops: Tensor, levels: Tensor) -> Tensor:
    r"""Compute `apply_tuple` without reading the tuples on the host.

    Every step computes $d + f (x - d) + s$, clipped and truncated, then inverted at or above a threshold: $d$ black,
    gray, flat or smoothed, $f$ the factor, $s$ the channel shift; and the autocontrast map of x. The ten operations
    differ only in these numbers, which are looked up for all steps at once.
    """
    ops, levels = torch.atleast_2d(ops.long()), torch.atleast_2d(levels.long())
    table = _table(images.device)[ops, levels.clamp(0, _MOST_LEVELS - 1)][..., None, None]
    cutoffs, rows = table[:, :, 0, None], table[:, :, 1:].float()
    for cutoff, row in zip(cutoffs.unbind(1), rows.unbind(1), strict=True):
        images = _step(images, cutoff, row)
    return images


def _step(images: Tensor, cutoff: Tensor, row: Tensor) -> Tensor:
    is_stretched, factor, is_gray, is_flat, is_smooth, threshold = row[:, :-3, None].unbind(1)
    scale, offset = stretch(images, cutoff)
    x_nchw = images.float()
    stretched = (images * scale).add_(offset).clamp_(0, 255).floor_().float()
    gray = luma(x_nchw)
    degenerate = (smooth(x_nchw) * is_smooth).addcmul_(gray, is_gray).addcmul_(mean_luma(gray), is_flat)
    # Black, gray, flat and smoothed are weighted by 0 or 1, and the shift is added to an unchanged image: all exact.
    y_nchw = blend(degenerate, x_nchw, factor).floor_().add_(row[:, -3:]).clamp_(0, 255)
    y_nchw = torch.where(is_stretched > 0, stretched, y_nchw)
    return torch.where(y_nchw < threshold, y_nchw, 255 - y_nchw).to(torch.uint8)


def _row(name: str, level: float) -> list[float]:
    """Return the numbers of one operation at one level, in the order in which `_step` reads them."""
    return [
        level if name == "autocontrast" else 0.0,  # the cutoff
        float(name == "autocontrast"),
        level if name in ("brightness", "color", "contrast", "sharpness") else float(name != "grayscale"),  # the factor
        float(name in ("color", "grayscale")),
        float(name == "contrast"),
        float(name == "sharpness"),
        level if name == "solarize" else 256.0,  # the threshold
        *(level if name == f"shift_{channel}" else 0.0 for channel in ("red", "green", "blue")),
    ]


@lru_cache(maxsize=8)
def _table(device: torch.device) -> Tensor:
    rows = [[_row(o.name, level) for level in grid] for o, grid in zip(RSDA_OPERATIONS, _GRIDS, strict=True)]
    rows.append([_row("identity", 0.0)] * _MOST_LEVELS)  # last, so that index -1 finds it
    return torch.tensor(rows, dtype=torch.float64, device=device)


@lru_cache(maxsize=16)
def level_values(device: torch.device, pixels: int) -> Tensor:
    """Return the parameter of each operation at each level, float32 `(10, levels)`, cached per device.

    For autocontrast it is the number of pixels dropped at either end, a floor of float64 numbers as in Pillow.
    """
    cutoffs, *grids = _GRIDS
    dropped = [cutoff * pixels // 100 for cutoff in cutoffs]
    return torch.tensor([dropped, *grids], dtype=torch.float32, device=device)


@lru_cache(maxsize=8)
def _sizes(device: torch.device) -> Tensor:
    """Return the number of levels of each operation; the last entry is the identity's, found by index -1."""
    return torch.tensor([len(operation.levels) for operation in RSDA_OPERATIONS] + [_MOST_LEVELS], device=device)
