"""Augmentations as values, for a loop of one's own: called with a batch of `create_loader` and a generator.

A random step is any function of `(images, generator)`, its settings bound by `functools.partial`. `asrnorm train` calls
none of them: what it draws must not depend on the device or on the number of processes (`training/augmentation.py`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from asrnorm.data.augment.base import check_images, constant
from asrnorm.data.augment.geometry import PACS_CROP, random_crop_flip, resize
from asrnorm.data.augment.pacs import random_pacs
from asrnorm.data.suites.base import IMAGENET_MEAN, IMAGENET_STD
from asrnorm.data.suites.cifar10c import CIFAR10C

Augmentation = Callable[[Tensor, torch.Generator], Tensor]
"""Takes uint8 images `(n, 3, h, w)` and a generator on their device; returns uint8 images or float input."""


def to_float(images: Tensor, mean: Sequence[float] | None = None, std: Sequence[float] | None = None) -> Tensor:
    """Return the images in float32, divided by 255, less `mean`, over `std`.

    Equal to torchvision's `ToTensor` and `Normalize`, also on a GPU, where dividing by plain numbers would round
    otherwise.

    Args:
        images: uint8 `(n, 3, h, w)`.
        mean: of each channel, as a share of 255.
        std: likewise.

    Example:
        >>> to_float(torch.full((1, 3, 1, 1), 255, dtype=torch.uint8), mean=(0.5, 0, 0), std=(0.5, 1, 2)).flatten()
        tensor([1.0000, 1.0000, 0.5000])
    """
    check_images(images)
    x_nchw = images.float().div_(constant((255.0,), images.device))
    if mean is not None:
        x_nchw.sub_(constant(mean, images.device).view(1, 3, 1, 1))
    if std is not None:
        x_nchw.div_(constant(std, images.device).view(1, 3, 1, 1))
    return x_nchw


@dataclass(frozen=True)
class Compose:
    """Augmentations one after the other.

    Example:
        >>> augment = Compose((random_crop_flip, ToFloat()))
        >>> augment(torch.zeros(2, 3, 32, 32, dtype=torch.uint8), torch.Generator()).dtype
        torch.float32
    """

    steps: tuple[Augmentation, ...]

    def __call__(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """Return what the last step returns."""
        for step in self.steps:
            images = step(images, generator)
        return images


@dataclass(frozen=True)
class ToFloat:
    """`to_float` as a step."""

    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None

    def __call__(self, images: Tensor, generator: torch.Generator | None = None) -> Tensor:  # noqa: ARG002
        """Return float32 images; nothing is drawn from the generator."""
        return to_float(images, self.mean, self.std)


@dataclass(frozen=True)
class Resize:
    """`resize` to `(height, width)` as a step."""

    size: tuple[int, int] = PACS_CROP

    def __call__(self, images: Tensor, generator: torch.Generator | None = None) -> Tensor:  # noqa: ARG002
        """Return uint8 images of the new size; nothing is drawn from the generator."""
        return resize(images, self.size)


# What the papers' recipes do to a suite's images, for networks that do not normalize their input themselves.
# Digits have no augmentation of their own and no mean or std.
CIFAR_TRAIN = Compose((random_crop_flip, ToFloat(CIFAR10C.mean, CIFAR10C.std)))
CIFAR_EVAL = ToFloat(CIFAR10C.mean, CIFAR10C.std)
PACS_TRAIN = partial(random_pacs, size=PACS_CROP, finish=ToFloat(IMAGENET_MEAN, IMAGENET_STD))
PACS_EVAL = Compose((Resize(PACS_CROP), ToFloat(IMAGENET_MEAN, IMAGENET_STD)))
DIGITS_TRAIN = DIGITS_EVAL = ToFloat()
