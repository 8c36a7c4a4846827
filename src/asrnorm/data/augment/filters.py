"""Edge maps, blur, pixelation and noise of single images."""

import math
from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

from asrnorm.core.errors import InputError
from asrnorm.core.randomness import draw_keys, normal_rows, uniform_rows
from asrnorm.data.augment.base import constant
from asrnorm.data.augment.color import luma
from asrnorm.data.augment.named import AUGMENTATIONS, Occasional, Size, check_range, draw_uniform, on_floats

_SOBEL = (-1.0, 0.0, 1.0, -2.0, 0.0, 2.0, -1.0, 0.0, 1.0)
_BINOMIAL = (1 / 16, 4 / 16, 6 / 16, 4 / 16, 1 / 16)


@AUGMENTATIONS.register("edges")
class Edges(Occasional):
    r"""Edge maps: the gray image's Sobel magnitude as dark lines on white, or light lines on black.

    $1 - \min(1, g \lVert \nabla \rVert / 4)$ with $\nabla$ the two Sobel sums of the gray image in [0, 1].

    Args:
        share: probability of each image to be changed.
        blurred: share of the maps whose image is smoothed first by a binomial filter of 5x5.
        inverted: share of the maps that are light on black.
        gain: $g$, how dark a line is.
    """

    fold = "structure"

    def __init__(self, *, share: float = 0.2, blurred: float = 0.5, inverted: float = 1 / 3, gain: float = 3.0) -> None:
        super().__init__(share=share)
        self.blurred, self.inverted = check_range("blurred", blurred, 0, 1), check_range("inverted", inverted, 0, 1)
        self.gain = check_range("gain", gain, 0)

    def parameters(self, count: int, image_size: Size, generator: torch.Generator) -> dict[str, Tensor]:  # noqa: ARG002
        """Draw which maps are blurred and which are inverted."""
        blurred, inverted = torch.rand((2, count), generator=generator, device=generator.device)
        return {"blurred": blurred < self.blurred, "inverted": inverted < self.inverted}

    def change(self, images: Tensor, drawn: Mapping[str, Tensor]) -> Tensor:
        """Return the edge maps, gray in three channels."""
        blurred, inverted = (drawn[name].view(-1, 1, 1, 1) for name in ("blurred", "inverted"))

        def find(x_nchw: Tensor) -> Tensor:
            gray = luma(x_nchw * 255) / 255
            kernel = constant(_BINOMIAL, gray.device)
            gray = torch.where(blurred, _filter(_filter(gray, kernel.view(1, 5)), kernel.view(5, 1)), gray)
            across = constant(_SOBEL, gray.device).view(3, 3)
            strength = torch.hypot(_filter(gray, across), _filter(gray, across.T))
            lines = (strength * (self.gain / 4)).clamp(max=1)
            return torch.where(inverted, lines, 1 - lines).expand(x_nchw.shape)

        return on_floats(images, find)


def _filter(gray_n1hw: Tensor, kernel: Tensor) -> Tensor:
    rows, columns = kernel.shape[0] // 2, kernel.shape[1] // 2
    padded = F.pad(gray_n1hw, (columns, columns, rows, rows), mode="replicate")
    return F.conv2d(padded, kernel[None, None])


@AUGMENTATIONS.register("blur")
class Blur(Occasional):
    """Gaussian blur, of each image by its own deviation.

    Args:
        share: probability of each image to be changed.
        sigma: the largest deviation in pixels; uniform from a tenth of a pixel up to it.
    """

    fold = "structure"

    def __init__(self, *, share: float = 0.5, sigma: float = 2.0) -> None:
        super().__init__(share=share)
        self.sigma = check_range("sigma", sigma, 0.1, 100)

    def parameters(self, count: int, image_size: Size, generator: torch.Generator) -> dict[str, Tensor]:  # noqa: ARG002
        """Draw the deviations."""
        return {"sigma": draw_uniform(count, 0.1, self.sigma, generator).float()}

    def change(self, images: Tensor, drawn: Mapping[str, Tensor]) -> Tensor:
        """Filter rows and columns; borders repeat their last pixel."""
        radius = math.ceil(3 * self.sigma)
        offset = torch.arange(-radius, radius + 1, device=images.device)
        weight = torch.exp(-0.5 * (offset / drawn["sigma"][:, None]) ** 2)
        weight = (weight / weight.sum(1, keepdim=True)).repeat_interleave(3, 0)

        def blur(x_nchw: Tensor) -> Tensor:
            n, c, h, w = x_nchw.shape
            flat = F.pad(x_nchw, (radius,) * 4, mode="replicate").reshape(1, n * c, h + 2 * radius, w + 2 * radius)
            flat = F.conv2d(flat, weight[:, None, None, :], groups=n * c)
            return F.conv2d(flat, weight[:, None, :, None], groups=n * c).view(n, c, h, w)

        return on_floats(images, blur)


@AUGMENTATIONS.register("pixelate")
class Pixelate(Occasional):
    """Pixelation: every square of pixels has the value of the one in its middle.

    Args:
        share: probability of each image to be changed.
        size: the largest side of a square; from 2 up to it.
    """

    fold = "structure"

    def __init__(self, *, share: float = 0.5, size: int = 4) -> None:
        super().__init__(share=share)
        self.size = int(check_range("size", size, 2))

    def parameters(self, count: int, image_size: Size, generator: torch.Generator) -> dict[str, Tensor]:  # noqa: ARG002
        """Draw the sides of the squares."""
        return {"side": torch.randint(2, self.size + 1, (count,), generator=generator, device=generator.device)}

    def change(self, images: Tensor, drawn: Mapping[str, Tensor]) -> Tensor:
        """Gather the pixel in the middle of each square."""
        n, c, h, w = images.shape
        side = drawn["side"][:, None]
        row, column = (
            (torch.arange(length, device=images.device) // side * side + side // 2).clamp_(max=length - 1)
            for length in (h, w)
        )
        index = (row[:, :, None] * w + column[:, None]).view(n, 1, h * w).expand(n, c, h * w)
        return images.flatten(2).gather(2, index).view(images.shape)


@AUGMENTATIONS.register("noise")
class Noise(Occasional):
    r"""Noise of one of three kinds, each image with its own strength: additive, multiplicative or sparse.

    Additive: $x + s\,\epsilon$ with a normal $\epsilon$; multiplicative: $x (1 + s u)$ with a uniform $u$ in -1..1;
    sparse: a share $s$ of the values becomes 0 or 1. A strength $s$ is uniform between 0 and the option.

    Args:
        share: probability of each image to be changed.
        additive: the largest deviation; 0 leaves the kind out.
        multiplicative: the largest factor.
        sparse: the largest share of replaced values.
    """

    fold = "values"

    def __init__(
        self, *, share: float = 0.5, additive: float = 0.2, multiplicative: float = 0.5, sparse: float = 0.1
    ) -> None:
        super().__init__(share=share)
        levels = {"additive": additive, "multiplicative": multiplicative, "sparse": sparse}
        self.levels = {name: check_range(name, level, 0) for name, level in levels.items() if level}
        if not self.levels:
            raise InputError("augmentation 'noise' needs a level above 0: additive, multiplicative or sparse")

    def parameters(self, count: int, image_size: Size, generator: torch.Generator) -> dict[str, Tensor]:  # noqa: ARG002
        """Draw the kind and strength of each image, and the key of its noise."""
        kind = torch.randint(len(self.levels), (count,), generator=generator, device=generator.device)
        uniform = torch.rand(count, generator=generator, device=generator.device)
        drawn = {name: (kind == k) * uniform * level for k, (name, level) in enumerate(self.levels.items())}
        return drawn | {"key": draw_keys(count, generator)}

    def change(self, images: Tensor, drawn: Mapping[str, Tensor]) -> Tensor:
        """Add the noise of each kind; those of strength 0 change nothing."""
        shape, key = images.shape[1:], drawn["key"]
        strength = {name: drawn[name].view(-1, 1, 1, 1) for name in self.levels}

        def add(x_nchw: Tensor) -> Tensor:
            if "multiplicative" in strength:
                x_nchw = x_nchw * (1 + strength["multiplicative"] * (2 * uniform_rows(key, shape) - 1))
            if "additive" in strength:
                x_nchw = x_nchw + strength["additive"] * normal_rows(key, shape)
            if "sparse" in strength:
                uniform = uniform_rows(key, shape)
                x_nchw = torch.where(uniform < strength["sparse"], (uniform < strength["sparse"] / 2).float(), x_nchw)
            return x_nchw

        return on_floats(images, add)
