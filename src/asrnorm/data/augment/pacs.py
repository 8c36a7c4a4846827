"""The augmentation that PACS is trained with: resized crop, flip, torchvision's `ColorJitter` and grayscale.

The pixels equal Pillow's to the bit. What is drawn follows torchvision's rules, not its stream of random numbers. On a
GPU with Triton three kernels compute the same bits (`kernels/pacs_augment.py`).
"""

from typing import NamedTuple

import torch
from torch import Tensor

from asrnorm.data.augment.backend import find_fused_pacs
from asrnorm.data.augment.base import byte_values, check_images, in_chunks, to_bytes, to_float
from asrnorm.data.augment.color import blend, hue_steps, luma, mean_luma, turn_hue
from asrnorm.data.augment.geometry import Boxes, draw_boxes, resize_boxes

BRIGHTNESS, CONTRAST, SATURATION, HUE = range(4)
_FLIP, _GRAY = 0.5, 0.1  # probabilities


class PacsDraw(NamedTuple):
    """What is drawn for each image: `Boxes`, whether it is mirrored, `Jitter`, and whether it becomes gray."""

    top: Tensor
    left: Tensor
    height: Tensor
    width: Tensor
    flip: Tensor
    factors: Tensor
    hue: Tensor
    order: Tensor
    gray: Tensor


def draw_pacs(count: int, image_size: tuple[int, int], generator: torch.Generator) -> PacsDraw:
    """Draw boxes, flips, jitter and grays in this order, on the generator's device.

    Example:
        >>> drawn = draw_pacs(2, (8, 8), torch.Generator().manual_seed(0))
        >>> drawn.flip.dtype, drawn.order.shape
        (torch.bool, torch.Size([2, 4]))
    """
    boxes = draw_boxes(count, *image_size, generator)
    flip = torch.rand(count, generator=generator, device=generator.device) < _FLIP
    jitter = draw_jitter(count, generator)
    gray = torch.rand(count, generator=generator, device=generator.device) < _GRAY
    return PacsDraw(*boxes, flip, *jitter, gray)


def apply_pacs(images: Tensor, drawn: PacsDraw, size: tuple[int, int]) -> Tensor:
    """Crop, resize, mirror, jitter and gray images as drawn; nothing synchronizes.

    Args:
        images: `(n, 3, h, w)`, uint8, or floating point in [0, 1], which is rounded to bytes first.
        drawn: of as many images, on the same device.
        size: height and width of the result.

    Returns:
        `(n, 3, *size)` in the dtype of the images.

    Example:
        >>> images = torch.full((2, 3, 9, 9), 200, dtype=torch.uint8)
        >>> apply_pacs(images, draw_pacs(2, (9, 9), torch.Generator()), (8, 8)).shape
        torch.Size([2, 3, 8, 8])
    """
    is_byte = images.dtype == torch.uint8
    fused = find_fused_pacs(images, size)
    if fused is not None:
        table = None if is_byte else byte_values(images.device).expand(3, 256).contiguous()
        return fused(images.detach(), drawn, size, table)
    pixels = apply_unfused(images, drawn, size)
    return pixels if is_byte else to_float(pixels, images.dtype)


def apply_unfused(images: Tensor, drawn: PacsDraw, size: tuple[int, int]) -> Tensor:
    """`apply_pacs` as tensor operations, to bytes: the reference of the kernels."""
    pixels = images if images.dtype == torch.uint8 else to_bytes(images)
    pixels = resize_boxes(pixels, Boxes(*drawn[:4]), size, drawn.flip)
    pixels = jitter_colors(pixels, Jitter(drawn.factors, drawn.hue, drawn.order))
    return torch.where(drawn.gray.view(-1, 1, 1, 1), luma(pixels.float()).to(torch.uint8), pixels)


class Jitter(NamedTuple):
    """What is drawn for each sample: three factors `(n, 3)`, the hue `(n,)`, and the order, a permutation `(n, 4)`."""

    factors: Tensor
    hue: Tensor
    order: Tensor


class JitterRange(NamedTuple):
    """Ranges of the adjustments: factors from `1 - x` to `1 + x`, hue from `-x` to `x` of the circle."""

    brightness: float = 0.4
    contrast: float = 0.4
    saturation: float = 0.4
    hue: float = 0.4


def draw_jitter(count: int, generator: torch.Generator, spread: JitterRange = JitterRange()) -> Jitter:  # noqa: B008
    """Draw factors and hue uniformly, and the order of the four adjustments, for each sample.

    Example:
        >>> jitter = draw_jitter(2, torch.Generator().manual_seed(0))
        >>> jitter.factors.shape, jitter.order.sort(1).values.tolist()
        (torch.Size([2, 3]), [[0, 1, 2, 3], [0, 1, 2, 3]])
    """
    device = generator.device
    uniform = torch.rand((4, count), generator=generator, device=device, dtype=torch.float64) * 2 - 1
    factors = [(1 + width * u).clamp_(min=0) for width, u in zip(spread[:3], uniform[:3], strict=True)]
    order = torch.rand((count, 4), generator=generator, device=device).argsort(1)
    return Jitter(torch.stack(factors, 1), uniform[3] * spread.hue, order)


def jitter_colors(images: Tensor, jitter: Jitter) -> Tensor:
    """Adjust brightness, contrast, saturation and hue of each image by its own factors, in its own order.

    Shapes must not depend on the order, and the hue costs far more than the others, so it is computed once: the blends
    that come before a sample's hue go into three slots before it, the others into three slots after it, and a slot
    that is not a sample's leaves that sample as it is.

    Args:
        images: uint8 `(n, 3, h, w)`.
        jitter: of as many samples.
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
        x_nchw = _blend_some(x_nchw, kind[:, k], factor[:, k], before[:, k])
    x_nchw = turn_hue(x_nchw, hue_steps(hue).view(-1, 1, 1, 1))
    for k in range(3):
        x_nchw = _blend_some(x_nchw, kind[:, k], factor[:, k], ~before[:, k])
    return x_nchw.to(torch.uint8)


def _blend_some(x_nchw: Tensor, kind: Tensor, factor: Tensor, chosen: Tensor) -> Tensor:
    """Blend the chosen samples, each in its own kind."""
    if x_nchw.device.type != "cpu":
        return _blend(x_nchw, torch.where(chosen, kind, BRIGHTNESS), torch.where(chosen, factor, 1.0))
    # Reading the mask costs nothing on the CPU, and the other samples are skipped.
    rows = chosen.nonzero().squeeze(1)
    if len(rows) == len(chosen):
        return _blend(x_nchw, kind, factor)
    if len(rows):
        x_nchw[rows] = _blend(x_nchw[rows], kind[rows], factor[rows])
    return x_nchw


def _blend(x_nchw: Tensor, kind: Tensor, factor: Tensor) -> Tensor:
    kind, factor = kind.view(-1, 1, 1, 1), factor.view(-1, 1, 1, 1)
    gray = luma(x_nchw)
    degenerate = torch.where(kind == CONTRAST, mean_luma(gray), gray).masked_fill_(kind == BRIGHTNESS, 0)
    return blend(degenerate, x_nchw, factor).floor_()
