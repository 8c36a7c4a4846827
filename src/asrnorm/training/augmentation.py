"""What is done to training images on the device: draws for the whole batch, applied to this process's part of it.

The images are float in [0, 1], source and grown ones alike. Crop and flip only move pixels and leave grown images
beyond [0, 1] as they are. The PACS set has Pillow's arithmetic on bytes, so that it rounds grown images to bytes first,
as ME-ADA does.
"""

from collections.abc import Mapping
from functools import lru_cache, partial
from typing import Literal

import torch
from torch import Tensor

from asrnorm.data.augment.crop import shift_flip
from asrnorm.data.augment.input_size import network_size
from asrnorm.data.augment.pacs import Finish, PacsDraw, apply_pacs, draw_pacs

Augment = Literal["none", "cifar", "pacs"]

PADDING = 4
_FLIP = 0.5


def draw_augmentation(
    kind: Augment, total: int, image_size: tuple[int, int], generator: torch.Generator
) -> dict[str, Tensor]:
    """Return what is drawn for a batch, tensors with one row an image, on the generator's device.

    Args:
        kind: `none`, `cifar` (shift by up to 4 pixels with reflected borders, and flip) or `pacs` (resized crop, flip,
            color jitter, grayscale).
        total: size of the global batch.
        image_size: height and width of the images.
        generator: on the CPU, so that a run draws the same on every device.

    Example:
        >>> drawn = draw_augmentation("cifar", 2, (8, 8), torch.Generator().manual_seed(0))
        >>> {name: value.dtype for name, value in drawn.items()}
        {'top': torch.int64, 'left': torch.int64, 'flip': torch.bool}
    """
    if kind == "none":
        return {}
    if kind == "cifar":
        top, left = torch.randint(2 * PADDING + 1, (2, total), generator=generator, device=generator.device)
        flip = torch.rand(total, generator=generator, device=generator.device) < _FLIP
        return {"top": top, "left": left, "flip": flip}
    return draw_pacs(total, image_size, generator)._asdict()


def augment_images(kind: Augment, images: Tensor, drawn: Mapping[str, Tensor]) -> Tensor:
    """Return images augmented by what was drawn for them; shapes do not depend on it, and nothing is waited for.

    Args:
        kind: as it was drawn for.
        images: float `(n, 3, h, w)`.
        drawn: their rows of what `draw_augmentation` gave, on the same device.

    Example:
        >>> drawn = draw_augmentation("cifar", 2, (8, 8), torch.Generator())
        >>> augment_images("cifar", torch.rand(2, 3, 8, 8), drawn).shape
        torch.Size([2, 3, 8, 8])
    """
    if kind == "none":
        return images
    if kind == "cifar":
        return shift_flip(images, drawn["top"], drawn["left"], drawn["flip"], PADDING)
    size = network_size("pacs", (images.shape[2], images.shape[3]))
    return apply_pacs(images, PacsDraw(*(drawn[name] for name in PacsDraw._fields)), size, _over_255(images.dtype))


@lru_cache(maxsize=4)
def _over_255(dtype: torch.dtype) -> Finish:
    return partial(_to_unit, dtype=dtype)


def _to_unit(pixels: Tensor, dtype: torch.dtype) -> Tensor:
    return pixels.to(dtype) / 255
