"""What PACS is trained with: resized crop, flip, color jitter and gray, as one step of draws and of pixels.

On a GPU with Triton the pixels take three launches (`triton/pacs.py`), else tensor operations; the bits are the same.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from asrnorm.data.augment.backend import find_fused_pacs
from asrnorm.data.augment.batch import check_generator, check_images
from asrnorm.data.augment.enhance import luma
from asrnorm.data.augment.input_size import PACS_CROP
from asrnorm.data.augment.jitter import Jitter, draw_jitter, jitter_colors
from asrnorm.data.augment.random_box import draw_boxes
from asrnorm.data.augment.resample import Boxes, resize_boxes

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
