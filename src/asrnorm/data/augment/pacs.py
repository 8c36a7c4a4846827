"""torchvision's `ColorJitter` on batches: brightness, contrast, saturation and hue in an order of each sample's own.

The four adjustments are Pillow's and equal to the bit. What is drawn follows torchvision's rule, not its stream.

What PACS is trained with: resized crop, flip, color jitter and gray, as one step of draws and of pixels.

On a GPU with Triton the pixels take three launches (`triton/pacs.py`), else tensor operations; the bits are the same.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from asrnorm.data.augment.backend import find_fused_pacs
from asrnorm.data.augment.base import check_generator, check_images, in_pieces
from asrnorm.data.augment.color import blend, hue_steps, luma, mean_luma, turn_hue
from asrnorm.data.augment.geometry import PACS_CROP, Boxes, draw_boxes, resize_boxes

BRIGHTNESS, CONTRAST, SATURATION, HUE = range(4)


class Jitter(NamedTuple):
    """What was drawn for each sample: three factors `(n, 3)`, the hue `(n,)`, and the order, a permutation `(n, 4)`."""

    factors: Tensor
    hue: Tensor
    order: Tensor


class JitterRange(NamedTuple):
    """How far each adjustment may go: factors from `1 - x` to `1 + x`, hue from `-x` to `x` of the circle."""

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
    """Apply what was drawn.

    Each sample has its own order, and shapes must not depend on it. The hue, far the dearest of the four, is computed
    once: the blends that come before a sample's hue go into three slots before it, the others into three after it, and
    a slot that is not a sample's leaves that sample as it is.

    Args:
        images: uint8 `(n, 3, h, w)`.
        jitter: of as many samples.
    """
    check_images(images)
    return in_pieces(_jitter, images, *jitter)


def _jitter(images: Tensor, factors: Tensor, hue: Tensor, order: Tensor) -> Tensor:
    place = (order == HUE).int().argmax(1, keepdim=True)
    slot = torch.arange(3, device=images.device).expand(images.shape[0], 3)
    kind = order.gather(1, slot + (slot >= place))
    factor = factors.gather(1, kind).float()
    before = slot < place
    x_nchw = images.float()
    for k in range(3):
        x_nchw = _blend_some(x_nchw, kind[:, k], factor[:, k], before[:, k])
    x_nchw = turn_hue(x_nchw, hue_steps(hue).view(-1, 1, 1, 1))
    for k in range(3):
        x_nchw = _blend_some(x_nchw, kind[:, k], factor[:, k], ~before[:, k])
    return x_nchw.to(torch.uint8)


def _blend_some(x_nchw: Tensor, kind: Tensor, factor: Tensor, wanted: Tensor) -> Tensor:
    """Blend the samples that want it, each in its own kind."""
    if x_nchw.device.type == "cpu":
        # Reading the mask costs nothing here, and only these samples are worked on.
        rows = wanted.nonzero().squeeze(1)
        if len(rows) == len(wanted):
            return _blend(x_nchw, kind, factor)
        if len(rows) == 0:
            return x_nchw
        x_nchw[rows] = _blend(x_nchw[rows], kind[rows], factor[rows])
        return x_nchw
    return _blend(x_nchw, torch.where(wanted, kind, BRIGHTNESS), torch.where(wanted, factor, 1.0))


def _blend(x_nchw: Tensor, kind: Tensor, factor: Tensor) -> Tensor:
    kind, factor = kind.view(-1, 1, 1, 1), factor.view(-1, 1, 1, 1)
    gray = luma(x_nchw)
    degenerate = torch.where(kind == CONTRAST, mean_luma(gray), gray).masked_fill_(kind == BRIGHTNESS, 0)
    return blend(degenerate, x_nchw, factor).floor_()


_FLIP, _GRAY = 0.5, 0.1

Finish = Callable[[Tensor], Tensor]
"""Turns uint8 images into the network's input, each byte by itself and by its channel; hashable, to be tabulated."""


class PacsDraw(NamedTuple):
    """What was drawn for each image: `Boxes`, whether it is mirrored, `Jitter`, and whether it becomes gray."""

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


def apply_pacs(images: Tensor, drawn: PacsDraw, size: tuple[int, int], finish: Finish | None = None) -> Tensor:
    """Crop, resize, mirror, adjust and gray images as drawn; nothing is read by the host.

    Args:
        images: `(n, 3, h, w)`, uint8, or float in [0, 1], which is rounded to bytes first.
        drawn: of as many images, on the same device.
        size: height and width of the result.
        finish: what is done to the bytes at the end; `None` returns them.

    Example:
        >>> images = torch.full((2, 3, 9, 9), 200, dtype=torch.uint8)
        >>> apply_pacs(images, draw_pacs(2, (9, 9), torch.Generator()), (8, 8)).shape
        torch.Size([2, 3, 8, 8])
    """
    fused = find_fused_pacs(images, size)
    if fused is not None:
        table = None if finish is None else _tabulate(finish, images.device)
        return fused(images.detach(), drawn, size, table)
    pixels = apply_unfused(images, drawn, size)
    return pixels if finish is None else finish(pixels)


def apply_unfused(images: Tensor, drawn: PacsDraw, size: tuple[int, int]) -> Tensor:
    """`apply_pacs` as tensor operations, without a finish: what the kernels are held to."""
    pixels = images if images.dtype == torch.uint8 else (images * 255).round_().clamp_(0, 255).to(torch.uint8)
    pixels = resize_boxes(pixels, Boxes(*drawn[:4]), size, drawn.flip)
    pixels = jitter_colors(pixels, Jitter(drawn.factors, drawn.hue, drawn.order))
    return torch.where(drawn.gray.view(-1, 1, 1, 1), luma(pixels.float()).to(torch.uint8), pixels)


def random_pacs(
    images: Tensor, generator: torch.Generator, size: tuple[int, int] = PACS_CROP, finish: Finish | None = None
) -> Tensor:
    """Draw for each image and apply.

    Example:
        >>> images = torch.zeros(2, 3, 40, 30, dtype=torch.uint8)
        >>> random_pacs(images, torch.Generator().manual_seed(0), (20, 20)).shape
        torch.Size([2, 3, 20, 20])
    """
    check_images(images)
    check_generator(images, generator)
    drawn = draw_pacs(images.shape[0], (images.shape[2], images.shape[3]), generator)
    return apply_pacs(images, drawn, size, finish)


@lru_cache(maxsize=16)
def _tabulate(finish: Finish, device: torch.device) -> Tensor:
    """What each byte of each channel becomes, `(3, 256)`; made by the first call and kept, as `batch.constant`."""
    ramp = torch.arange(256, device=device).to(torch.uint8)
    return finish(ramp.view(1, 1, 1, 256).expand(1, 3, 1, 256)).reshape(3, 256).contiguous()
