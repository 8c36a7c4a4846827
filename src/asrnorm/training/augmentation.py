"""What is done to training images on the device: draws for the whole batch, applied to this process's part of it.

The images are float in [0, 1], source and grown ones alike. Crop and flip only move pixels and leave grown images
beyond [0, 1] as they are. The PACS set has Pillow's arithmetic on bytes, so that it rounds grown images to bytes first,
as ME-ADA does.
"""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from asrnorm.data.augment.crop import shift_flip
from asrnorm.data.augment.enhance import luma
from asrnorm.data.augment.jitter import Jitter, draw_jitter, jitter_colors
from asrnorm.data.augment.random_box import draw_boxes
from asrnorm.data.augment.resample import Boxes, resize_boxes

Augment = Literal["none", "cifar", "pacs"]
Own = Callable[[Tensor], Tensor]

PADDING = 4
PACS_SIZE, PACS_CROP = (227, 227), (222, 222)  # images as published, and as RSC cuts and tests them
_FLIP, _GRAY = 0.5, 0.1
_BYTE = 255


def network_size(augment: Augment, image_size: tuple[int, int]) -> tuple[int, int]:
    """Return the size in which the network sees images: 222 for PACS's 227, else their own.

    Example:
        >>> network_size("pacs", (227, 227)), network_size("pacs", (64, 64))
        ((222, 222), (64, 64))
    """
    return PACS_CROP if augment == "pacs" and image_size == PACS_SIZE else image_size


def augment_images(kind: Augment, images: Tensor, total: int, own: Own, generator: torch.Generator) -> Tensor:
    """Return the images of this process, augmented.

    Args:
        kind: `none`, `cifar` (shift by up to 4 pixels with reflected borders, and flip) or `pacs` (resized crop, flip,
            color jitter, grayscale).
        images: float `(n, 3, h, w)`, this process's part.
        total: size of the global batch, for which everything is drawn.
        own: cuts this process's part out of what was drawn.
        generator: on the images' device.

    Example:
        >>> images = torch.rand(2, 3, 8, 8)
        >>> augment_images("cifar", images, 2, lambda drawn: drawn, torch.Generator()).shape
        torch.Size([2, 3, 8, 8])
    """
    if kind == "none":
        return images
    return (_crop_flip if kind == "cifar" else _pacs)(images, total, own, generator)


def _crop_flip(images: Tensor, total: int, own: Own, generator: torch.Generator) -> Tensor:
    top, left = torch.randint(2 * PADDING + 1, (2, total), generator=generator, device=images.device)
    return shift_flip(images, own(top), own(left), own(_draw(_FLIP, total, generator)), PADDING)


def _pacs(images: Tensor, total: int, own: Own, generator: torch.Generator) -> Tensor:
    height, width = images.shape[2:]
    boxes = draw_boxes(total, height, width, generator)
    flip = _draw(_FLIP, total, generator)
    jitter = draw_jitter(total, generator)
    gray = _draw(_GRAY, total, generator)
    pixels = (images * _BYTE).round_().clamp_(0, _BYTE).to(torch.uint8)
    size = network_size("pacs", (height, width))
    pixels = resize_boxes(pixels, Boxes(*map(own, boxes)), size, own(flip))
    pixels = jitter_colors(pixels, Jitter(*map(own, jitter)))
    pixels = torch.where(own(gray).view(-1, 1, 1, 1), luma(pixels.float()).to(torch.uint8), pixels)
    return pixels.to(images.dtype) / _BYTE


def _draw(probability: float, total: int, generator: torch.Generator) -> Tensor:
    return torch.rand(total, generator=generator, device=generator.device) < probability
