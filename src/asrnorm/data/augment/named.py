"""What an augmentation is, chains of several, those of the suites (`none`, `cifar`, `pacs`), and variants of these.

Each draws its parameters for the whole batch, one row per image, and applies them as tensors. The trainer draws for the
global batch on the CPU, so that a run draws the same on every device and with any number of processes, and each process
applies its rows on its device.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from typing import Any, ClassVar

import torch
from torch import Tensor

from asrnorm.core.config import Fold
from asrnorm.core.errors import InputError, UnknownNameError, describe_unknown
from asrnorm.core.randomness import keyed_generator
from asrnorm.core.registry import Registry
from asrnorm.data.augment.base import change_rows, constant, to_bytes, to_float
from asrnorm.data.augment.geometry import crop_flip
from asrnorm.data.augment.pacs import GRAY, PacsDraw, apply_pacs, draw_pacs

Size = tuple[int, int]
Spec = str | Sequence[str | Mapping[str, Any]]
"""The name of an augmentation, or a chain: names, and mappings with a `name` and options."""

AUGMENTATIONS: Registry[Callable[..., "Augmentation"]] = Registry("augmentation")

_PACS_SIZE, _PACS_CROP = (227, 227), (222, 222)  # images as published, and as RSC and JiGen crop and test them


class Augmentation(ABC):
    """A random change of training images; hyper-parameters are keyword-only arguments of the constructor."""

    mixes: bool = False  # `apply` needs the whole batch, because an image takes something from another one
    fold: Fold = "none"  # the half of the bank that it belongs to; `none` is in both

    @abstractmethod
    def draw(self, count: int, image_size: Size, generator: torch.Generator) -> dict[str, Tensor]:
        """Return the parameters of `count` images, tensors with one row per image, on the generator's device."""

    @abstractmethod
    def apply(self, images: Tensor, drawn: Mapping[str, Tensor]) -> Tensor:
        """Return the images changed as drawn; shapes do not depend on the draws, and nothing synchronizes.

        Images are `(n, 3, h, w)`, uint8, or floating point in [0, 1], and keep their dtype; `drawn` has their rows.
        """

    def output_size(self, image_size: Size) -> Size:
        """Return height and width of the result, the size in which a network sees images."""
        return image_size

    def in_fold(self, fold: Fold) -> "Augmentation":
        """Return what training with one half of the bank may use of it; for `none` itself."""
        return self if fold == "none" or self.fold in ("none", fold) else NoAugmentation()

    def __call__(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """Draw for each image and apply; the generator must be on the images' kind of device."""
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


class Occasional(Augmentation):
    """Changes each image with probability `share`; subclasses draw `parameters` and `change` the chosen images."""

    def __init__(self, *, share: float = 0.5) -> None:
        self.share = check_range("share", share, 0, 1)

    def draw(self, count: int, image_size: Size, generator: torch.Generator) -> dict[str, Tensor]:
        """Draw which images are changed, then their parameters."""
        chosen = torch.rand(count, generator=generator, device=generator.device) < self.share
        return {"chosen": chosen} | self.parameters(count, image_size, generator)

    def apply(self, images: Tensor, drawn: Mapping[str, Tensor]) -> Tensor:
        """Change the chosen images."""
        names = [name for name in drawn if name != "chosen"]

        def change(some: Tensor, *values: Tensor) -> Tensor:
            return self.change(some, dict(zip(names, values, strict=True)))

        return change_rows(images, drawn["chosen"], change, *(drawn[name] for name in names))

    @abstractmethod
    def parameters(self, count: int, image_size: Size, generator: torch.Generator) -> dict[str, Tensor]:
        """Return the parameters of `count` images, as `draw` does."""

    @abstractmethod
    def change(self, images: Tensor, drawn: Mapping[str, Tensor]) -> Tensor:
        """Return images changed as drawn, in their dtype."""


class Operations(Occasional):
    """An `Occasional` that draws among operations, or among those that `operations` names."""

    names: ClassVar[tuple[str, ...]]
    folds: ClassVar[Mapping[str, Fold]]  # of operations that are not in `values`

    def __init__(self, *, share: float, operations: Sequence[str] | None = None) -> None:
        super().__init__(share=share)
        if operations is not None and not (isinstance(operations, list | tuple) and operations):
            raise InputError(f"augmentation option 'operations' must be a list of names, not {operations!r:.80}")
        for name in operations or ():
            if name not in self.names:
                raise UnknownNameError(describe_unknown("operation", str(name), self.names))
        self.operations = tuple(map(self.names.index, self.names if operations is None else operations))

    def draw_operations(self, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        """Return indices of operations, uniformly drawn."""
        drawn = torch.randint(len(self.operations), shape, generator=generator, device=generator.device)
        return constant(self.operations, generator.device, torch.int64)[drawn]

    def in_fold(self, fold: Fold) -> Augmentation:
        """Return it with the operations of one half."""
        part = copy(self)
        kind = [self.folds.get(name, "values") for name in self.names]
        part.operations = tuple(k for k in self.operations if fold == "none" or kind[k] in ("none", fold))
        return part if any(kind[k] != "none" for k in part.operations) else NoAugmentation()


def on_bytes(images: Tensor, change: Callable[[Tensor], Tensor]) -> Tensor:
    """Return `change(images)` for a function of bytes; images in floating point are rounded to bytes and back."""
    if images.dtype == torch.uint8:
        return change(images)
    return to_float(change(to_bytes(images)), images.dtype)


def on_floats(images: Tensor, change: Callable[[Tensor], Tensor]) -> Tensor:
    """Return `change(images)` for a function of float32 images in [0, 1], clipped to that range, in their dtype.

    It computes in float32 under autocast too, where convolutions would otherwise round the images.
    """
    with torch.autocast(images.device.type, enabled=False):
        changed = change(to_float(images).float()).clamp(0, 1)
    return to_bytes(changed) if images.dtype == torch.uint8 else changed.to(images.dtype)


def check_range(name: str, value: float, least: float, most: float = float("inf")) -> float:
    """Return an option of an augmentation; raise `InputError` if it is out of range."""
    if not least <= value <= most:
        bound = f"at least {least}" if most == float("inf") else f"in {least}..{most}"
        raise InputError(f"augmentation option {name!r} must be {bound}, not {value}")
    return value


def draw_uniform(count: int, low: float, high: float, generator: torch.Generator) -> Tensor:
    """Return `count` numbers between two bounds, float64 on the generator's device."""
    uniform = torch.rand(count, generator=generator, device=generator.device, dtype=torch.float64)
    return uniform.mul_(high - low).add_(low)


class Chain(Augmentation):
    """Augmentations one after the other; their draws are numbered, and come from one generator in this order."""

    def __init__(self, parts: Sequence[Augmentation]) -> None:
        self.parts = tuple(parts)
        self.mixes = any(part.mixes for part in self.parts)

    def draw(self, count: int, image_size: Size, generator: torch.Generator) -> dict[str, Tensor]:
        """Draw for each part in turn."""
        drawn: dict[str, Tensor] = {}
        for number, part in enumerate(self.parts):
            own = part.draw(count, image_size, generator)
            drawn |= {f"{number}.{name}": value for name, value in own.items()}
            image_size = part.output_size(image_size)
        return drawn

    def apply(self, images: Tensor, drawn: Mapping[str, Tensor]) -> Tensor:
        """Apply each part in turn."""
        for number, part in enumerate(self.parts):
            images = part.apply(images, take_prefixed(drawn, f"{number}."))
        return images

    def in_fold(self, fold: Fold) -> Augmentation:
        """Return the chain of what its parts are in one half."""
        return Chain([part.in_fold(fold) for part in self.parts])

    def output_size(self, image_size: Size) -> Size:
        """Return height and width after the last part."""
        for part in self.parts:
            image_size = part.output_size(image_size)
        return image_size


def take_prefixed(drawn: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Return the entries whose names have a prefix, without it."""
    return {name.removeprefix(prefix): value for name, value in drawn.items() if name.startswith(prefix)}


def create_augmentation(what: Spec, **options: object) -> Augmentation:
    """Return an augmentation by its registry name, or a chain of several.

    Args:
        what: a name, or a list of names and of mappings with a `name` and options.
        **options: of the augmentation, if `what` is a name.

    Raises:
        UnknownNameError: no such augmentation or option; the message has the nearest one.
        InputError: a value out of range, or an entry of a chain without a name.

    Example:
        >>> chain = create_augmentation(["cifar", {"name": "photometric", "share": 1.0}])
        >>> chain(torch.rand(2, 3, 8, 8), torch.Generator()).shape
        torch.Size([2, 3, 8, 8])
    """
    if isinstance(what, str):
        AUGMENTATIONS.check(what, options)
        return AUGMENTATIONS[what](**options)
    if options:
        raise InputError(f"options of a chain go to its parts: [{{name: ..., {next(iter(options))}: ...}}]")
    return Chain([_create_part(part) for part in what])


def _create_part(part: str | Mapping[str, Any]) -> Augmentation:
    if isinstance(part, str):
        return create_augmentation(part)
    if not isinstance(part, Mapping) or not isinstance(part.get("name"), str):
        raise InputError(f"a part of a chain is a name, or a mapping with a name and options, not {part!r:.80}")
    return create_augmentation(**{"what" if key == "name" else str(key): value for key, value in part.items()})


def augment(images: Tensor, what: Spec, *, seed: int = 0, step: int = 0) -> Tensor:
    """Return images under an augmentation or a chain; the same for the same seed and step, on every device.

    Args:
        images: `(n, 3, h, w)` on any device, uint8, or floating point in [0, 1]; the result has the same dtype.
        what: a name of `asrnorm list augmentations`, or a list of names and of mappings with a `name` and options.
        seed: of the draws.
        step: of one's own loop; another step draws anew.

    Raises:
        UnknownNameError: no such augmentation or option.
        InputError: a value out of range, or images of another shape.

    Example:
        >>> images = torch.rand(4, 3, 32, 32)
        >>> augment(images, ["cifar", {"name": "edges", "share": 0.5}], seed=1).shape
        torch.Size([4, 3, 32, 32])
    """
    if not isinstance(images, Tensor) or images.ndim != 4 or images.shape[1] != 3:
        found = tuple(images.shape) if isinstance(images, Tensor) else type(images).__name__
        raise InputError(f"expected images (n, 3, h, w), got {found}")
    augmentation = create_augmentation(what)
    size = (images.shape[2], images.shape[3])
    drawn = augmentation.draw(len(images), size, keyed_generator(seed, step, "augment"))
    return augmentation.apply(images, {name: value.to(images.device) for name, value in drawn.items()})


def network_size(what: Spec, image_size: Size) -> Size:
    """Return the size of a network's input in training with an augmentation, at which it is also tested.

    A name that is no augmentation leaves the size of the suite's images as it is.
    """
    if isinstance(what, str) and what not in AUGMENTATIONS:
        return image_size
    return create_augmentation(what).output_size(image_size)
