"""The augmentations that a config can name: `none`, `cifar`, `pacs`, and the variants that some methods need.

Each draws its parameters for the whole batch, one row per image, and applies them as tensors. The trainer draws for the
global batch on the CPU, so that a run draws the same on every device and with any number of processes, and each process
applies its rows on its device.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from asrnorm.core.errors import InputError
from asrnorm.core.registry import Registry
from asrnorm.data.augment.geometry import crop_flip
from asrnorm.data.augment.pacs import GRAY, PacsDraw, apply_pacs, draw_pacs

Size = tuple[int, int]

AUGMENTATIONS: Registry[Callable[..., "Augmentation"]] = Registry("augmentation")

_PACS_SIZE, _PACS_CROP = (227, 227), (222, 222)  # images as published, and as RSC and JiGen crop and test them


class Augmentation(ABC):
    """A random change of training images; hyper-parameters are keyword-only arguments of the constructor."""

    @abstractmethod
    def draw(self, count: int, image_size: Size, generator: torch.Generator) -> dict[str, Tensor]:
        """Return the parameters of `count` images, tensors with one row per image, on the generator's device."""

    @abstractmethod
    def apply(self, images: Tensor, drawn: Mapping[str, Tensor]) -> Tensor:
        """Return the images changed as drawn; shapes do not depend on the draws, and nothing synchronizes.

        Args:
            images: `(n, 3, h, w)`, uint8, or floating point in [0, 1]; the result has the same dtype.
            drawn: the rows of these images from `draw`, on the same device.
        """

    def output_size(self, image_size: Size) -> Size:
        """Return height and width of the result, the size in which a network sees images."""
        return image_size

    def __call__(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """Draw for each image and apply.

        Raises:
            InputError: the generator is on another kind of device than the images.
        """
        if generator.device.type != images.device.type:
            raise InputError(
                f"the generator is on {generator.device}, the images on {images.device}; "
                f"make it with torch.Generator({str(images.device)!r})"
            )
        return self.apply(images, self.draw(len(images), (images.shape[2], images.shape[3]), generator))


@AUGMENTATIONS.register("none")
class NoAugmentation(Augmentation):
    """Leave the images as they are."""

    def draw(self, count: int, image_size: Size, generator: torch.Generator) -> dict[str, Tensor]:  # noqa: ARG002
        """Draw nothing."""
        return {}

    def apply(self, images: Tensor, drawn: Mapping[str, Tensor]) -> Tensor:  # noqa: ARG002
        """Return the same tensor."""
        return images


@AUGMENTATIONS.register("cifar")
class CropFlip(Augmentation):
    """Shift each image by up to `padding` pixels with reflected or black borders, and mirror it at random.

    Pixels are only moved, so generated images may have values beyond [0, 1].

    Args:
        padding: less than height and width, since a border is mirrored once.
        flip: probability of a horizontal flip.
        black: borders are black, not reflected.
    """

    def __init__(self, *, padding: int = 4, flip: float = 0.5, black: bool = False) -> None:
        self.padding, self.flip, self.black = padding, flip, black

    def draw(self, count: int, image_size: Size, generator: torch.Generator) -> dict[str, Tensor]:
        """Draw the offsets, uniform on each axis, then the flips."""
        if not 0 <= self.padding < max(1, min(image_size)):
            height, width = image_size
            raise InputError(
                f"augmentation 'cifar': expected a padding of 0 to {min(image_size) - 1} for images of "
                f"{height}x{width}, got {self.padding}"
            )
        device = generator.device
        top, left = torch.randint(2 * self.padding + 1, (2, count), generator=generator, device=device)
        return {"top": top, "left": left, "flip": torch.rand(count, generator=generator, device=device) < self.flip}

    def apply(self, images: Tensor, drawn: Mapping[str, Tensor]) -> Tensor:
        """Crop and mirror in one gather."""
        return crop_flip(images, drawn["top"], drawn["left"], drawn["flip"], self.padding, black=self.black)


@AUGMENTATIONS.register("cifar_zero")
class ZeroPaddedCropFlip(CropFlip):
    """`cifar` with black borders, as ST and TTT train on CIFAR-10."""

    def __init__(self, *, padding: int = 4, flip: float = 0.5) -> None:
        super().__init__(padding=padding, flip=flip, black=True)


@AUGMENTATIONS.register("pacs")
class PacsAugmentation(Augmentation):
    """Resized crop, flip, color jitter and grayscale, as RSC and JiGen train on PACS.

    The arithmetic is Pillow's on bytes, so images in floating point are rounded to bytes first, as ME-ADA does.

    Example:
        >>> PacsAugmentation()(torch.rand(2, 3, 227, 227), torch.Generator()).shape
        torch.Size([2, 3, 222, 222])
    """

    gray = GRAY

    def draw(self, count: int, image_size: Size, generator: torch.Generator) -> dict[str, Tensor]:
        """Draw boxes, flips, jitter and which images become gray."""
        return draw_pacs(count, image_size, generator, gray=self.gray)._asdict()

    def apply(self, images: Tensor, drawn: Mapping[str, Tensor]) -> Tensor:
        """Crop, resize, mirror, jitter and gray the images."""
        size = self.output_size((images.shape[2], images.shape[3]))
        return apply_pacs(images, PacsDraw(*(drawn[name] for name in PacsDraw._fields)), size)

    def output_size(self, image_size: Size) -> Size:
        """Return 222x222 for images of 227x227, else the images' own size."""
        return _PACS_CROP if image_size == _PACS_SIZE else image_size


@AUGMENTATIONS.register("pacs_color")
class PacsColorAugmentation(PacsAugmentation):
    """`pacs` without gray images, for JiGen, which grays tiles instead."""

    gray = 0.0


def create_augmentation(name: str, **options: object) -> Augmentation:
    """Return an augmentation by its registry name.

    Raises:
        UnknownNameError: no such augmentation or option; the message has the nearest one.
    """
    AUGMENTATIONS.check(name, options)
    return AUGMENTATIONS[name](**options)


def network_size(augment: str, image_size: Size) -> Size:
    """Return the size of a network's input in training with `augment`, at which it is also tested.

    A name that is no augmentation leaves the size of the suite's images as it is.

    Example:
        >>> network_size("pacs", (227, 227)), network_size("pacs", (64, 64)), network_size("none", (227, 227))
        ((222, 222), (64, 64), (227, 227))
    """
    return create_augmentation(augment).output_size(image_size) if augment in AUGMENTATIONS else image_size
