"""The augmentation of PACS in training: resized crop, flip, torchvision's `ColorJitter` and grayscale.

The pixels equal Pillow's to the bit. Parameters are drawn by torchvision's rules, but not from its stream of random
numbers. On a GPU with Triton three kernels compute the same bits (`kernels/pacs_augment.py`).
"""

from typing import NamedTuple

import torch
from torch import Tensor

from asrnorm.data.augment.base import (
    byte_values,
    change_rows,
    check_images,
    find_fused_pacs,
    in_chunks,
    to_bytes,
    to_float,
)
from asrnorm.data.augment.color import blend, hue_steps, luma, mean_luma, turn_hue
from asrnorm.data.augment.geometry import Boxes, draw_boxes, resize_boxes

BRIGHTNESS, CONTRAST, SATURATION, HUE = range(4)
_FLIP, GRAY = 0.5, 0.1  # probabilities
_JITTER = 0.4  # factors lie in 1 - 0.4 .. 1 + 0.4, the hue in -0.4 .. 0.4 of the circle


class PacsDraw(NamedTuple):
    """Parameters of each image: `Boxes`, whether it is mirrored, `Jitter`, and whether it becomes gray."""

    top: Tensor
    left: Tensor
    height: Tensor
    width: Tensor
    flip: Tensor
    factors: Tensor
    hue: Tensor
    order: Tensor
    gray: Tensor


def draw_pacs(count: int, image_size: tuple[int, int], generator: torch.Generator, *, gray: float = GRAY) -> PacsDraw:
    """Draw boxes, flips, jitter and grays in this order, on the generator's device."""
    boxes = draw_boxes(count, *image_size, generator)
    flip = torch.rand(count, generator=generator, device=generator.device) < _FLIP
    jitter = draw_jitter(count, generator)
    is_gray = torch.rand(count, generator=generator, device=generator.device) < gray
    return PacsDraw(*boxes, flip, *jitter, is_gray)


def apply_pacs(images: Tensor, drawn: PacsDraw, size: tuple[int, int]) -> Tensor:
    """Crop, resize to `size`, mirror, jitter and gray images as drawn, and keep their dtype; nothing synchronizes.

    Images in floating point are in [0, 1] and rounded to bytes first.
    """
    is_byte = images.dtype == torch.uint8
    fused = find_fused_pacs(images, size)
    if fused is not None:
        table = None if is_byte else byte_values(images.device).expand(3, 256).contiguous()
        return fused(images.detach(), drawn, size, table)
    pixels = apply_unfused(images, drawn, size)
    return pixels if is_byte else to_float(pixels, images.dtype)


def apply_unfused(images: Tensor, drawn: PacsDraw, size: tuple[int, int]) -> Tensor:
    """Compute `apply_pacs` by tensor operations and return bytes; the reference of the kernels."""
    pixels = images if images.dtype == torch.uint8 else to_bytes(images)
    pixels = resize_boxes(pixels, Boxes(*drawn[:4]), size, drawn.flip)
    pixels = jitter_colors(pixels, Jitter(drawn.factors, drawn.hue, drawn.order))
    return torch.where(drawn.gray.view(-1, 1, 1, 1), luma(pixels.float()).to(torch.uint8), pixels)


class Jitter(NamedTuple):
    """Parameters of each sample: three factors `(n, 3)`, the hue `(n,)`, and the order, a permutation `(n, 4)`."""

    factors: Tensor
    hue: Tensor
    order: Tensor


def draw_jitter(count: int, generator: torch.Generator) -> Jitter:
    """Draw factors and hue uniformly, and the order of the four adjustments, for each sample."""
    device = generator.device
    spread = (torch.rand((4, count), generator=generator, device=device, dtype=torch.float64) * 2 - 1) * _JITTER
    order = torch.rand((count, 4), generator=generator, device=device).argsort(1)
    return Jitter((1 + spread[:3]).T.contiguous(), spread[3], order)


def jitter_colors(images: Tensor, jitter: Jitter) -> Tensor:
    """Adjust brightness, contrast, saturation and hue of each image by its own factors, in its own order.

    Shapes must not depend on the order, and the hue costs far more than the others, so it is computed once: three slots
    before it take the blends that precede a sample's hue, three slots after it the other blends. A sample skips the
    slots that are not its own.
    """
    check_images(images)
    return in_chunks(_jitter, images, *jitter)


def _jitter(images: Tensor, factors: Tensor, hue: Tensor, order: Tensor) -> Tensor:
    position = (order == HUE).int().argmax(1, keepdim=True)
    slot = torch.arange(3, device=images.device).expand(images.shape[0], 3)
    kind = order.gather(1, slot + (slot >= position))
    factor = factors.gather(1, kind).float()
    before = slot < position
    x_nchw = images.float()
    for k in range(3):
        x_nchw = change_rows(x_nchw, before[:, k], _blend, kind[:, k], factor[:, k])
    x_nchw = turn_hue(x_nchw, hue_steps(hue).view(-1, 1, 1, 1))
    for k in range(3):
        x_nchw = change_rows(x_nchw, ~before[:, k], _blend, kind[:, k], factor[:, k])
    return x_nchw.to(torch.uint8)


def _blend(x_nchw: Tensor, kind: Tensor, factor: Tensor) -> Tensor:
    kind, factor = kind.view(-1, 1, 1, 1), factor.view(-1, 1, 1, 1)
    gray = luma(x_nchw)
    degenerate = torch.where(kind == CONTRAST, mean_luma(gray), gray).masked_fill_(kind == BRIGHTNESS, 0)
    return blend(degenerate, x_nchw, factor).floor_()
