"""Random crop with reflected borders, and flip: what CIFAR-10 is trained with, each sample its own offset."""

import torch
from torch import Tensor

from asrnorm.data.augment.batch import check_generator, check_images
from asrnorm.errors import InputError


def reflect(index: Tensor, size: int) -> Tensor:
    """Mirror indices that lie outside `0..size-1` at the first and last element, which are not repeated.

    Example:
        >>> reflect(torch.arange(-2, 6), 4).tolist()
        [2, 1, 0, 1, 2, 3, 2, 1]
    """
    return (size - 1) - ((size - 1) - index.abs()).abs()


def shift_flip(images: Tensor, top: Tensor, left: Tensor, flip: Tensor, padding: int) -> Tensor:
    """Pad by reflection, cut a window of the original size at `(top, left)`, mirror it where `flip` is set.

    The three are one gather from the images as they are: nothing is padded, no sample is visited by a loop.

    Args:
        images: uint8 `(n, 3, h, w)`.
        top: first row of each window in the padded image, int64 `(n,)`, 0 to `2 * padding`.
        left: first column, likewise.
        flip: bool `(n,)`.
        padding: rows and columns added on each side.
    """
    n, c, h, w = images.shape
    row = reflect(top[:, None] + torch.arange(-padding, h - padding, device=images.device), h)
    column = reflect(left[:, None] + torch.arange(-padding, w - padding, device=images.device), w)
    column = torch.where(flip[:, None], column.flip(1), column)
    source = (row[:, :, None] * w + column[:, None, :]).view(n, 1, h * w)
    return images.flatten(2).gather(2, source.expand(n, c, h * w)).view(n, c, h, w)


def random_crop_flip(images: Tensor, generator: torch.Generator, *, padding: int = 4, flip: float = 0.5) -> Tensor:
    """Shift each image by up to `padding` pixels with reflected borders, and mirror it with probability `flip`.

    Args:
        images: uint8 `(n, 3, h, w)`; the result has the same shape.
        generator: on the images' device.
        padding: at most `min(h, w) - 1`, since a border is mirrored once.
        flip: probability of a horizontal flip.

    Example:
        >>> images = torch.arange(48, dtype=torch.uint8).view(1, 3, 4, 4)
        >>> random_crop_flip(images, torch.Generator().manual_seed(0), padding=1).shape
        torch.Size([1, 3, 4, 4])
    """
    check_images(images)
    check_generator(images, generator)
    n, _, h, w = images.shape
    if not 0 <= padding < max(1, min(h, w)):
        raise InputError(f"expected a padding of 0 to {min(h, w) - 1} for images of {h}x{w}, got {padding}")
    top, left = torch.randint(2 * padding + 1, (2, n), generator=generator, device=images.device)
    mirrored = torch.rand(n, generator=generator, device=images.device) < flip
    return shift_flip(images, top, left, mirrored, padding)
