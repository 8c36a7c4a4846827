"""Affine maps with parameters of each image, and AugMix: chains of Pillow's operations, mixed.

Hendrycks, Mu, Cubuk, Zoph, Gilmer and Lakshminarayanan, *AugMix: A Simple Data Processing Method to Improve Robustness
and Uncertainty*, ICLR 2020. The operations equal Pillow's to the bit; ranges and draws are those of the released code.
"""

import math
from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor

from asrnorm.core.config import Fold
from asrnorm.core.errors import InputError
from asrnorm.data.augment.base import change_rows, to_bytes, to_float
from asrnorm.data.augment.color import autocontrast, equalize, posterize, solarize
from asrnorm.data.augment.geometry import affine
from asrnorm.data.augment.named import (
    AUGMENTATIONS,
    Occasional,
    Operations,
    Size,
    check_range,
    draw_uniform,
    on_bytes,
    on_floats,
)


@AUGMENTATIONS.register("affine")
class Affine(Occasional):
    """Affine maps: rotation, shear, shift and scale, each uniform in both directions; black where it looks outside.

    Args:
        share: probability of each image to be changed.
        degrees: the largest rotation.
        shear: the largest shear along either axis, as a slope.
        translate: the largest shift, as a share of height and width.
        scale: smallest and largest scale.
    """

    fold = "structure"

    def __init__(
        self,
        *,
        share: float = 0.5,
        degrees: float = 15.0,
        shear: float = 0.1,
        translate: float = 0.1,
        scale: tuple[float, float] = (0.8, 1.2),
    ) -> None:
        super().__init__(share=share)
        self.degrees, self.shear = check_range("degrees", degrees, 0, 180), check_range("shear", shear, 0, 1)
        self.translate, self.scale = check_range("translate", translate, 0, 1), scale
        if not 0 < scale[0] <= scale[1]:
            raise InputError(f"augmentation option 'scale' must be two numbers above 0 in order, not {scale}")

    def parameters(self, count: int, image_size: Size, generator: torch.Generator) -> dict[str, Tensor]:
        """Draw the maps as matrices from output to input."""
        height, width = image_size
        turn = math.radians(self.degrees)
        bounds = (turn, self.shear, self.shear, self.translate * width, self.translate * height)
        angle, x_shear, y_shear, x_shift, y_shift = (draw_uniform(count, -most, most, generator) for most in bounds)
        scale = draw_uniform(count, *self.scale, generator)
        cos, sin = torch.cos(angle) / scale, torch.sin(angle) / scale
        rows = (cos - sin * y_shear, cos * x_shear - sin), (sin + cos * y_shear, sin * x_shear + cos)
        x_mid, y_mid = width / 2, height / 2
        matrix = []
        for (a, b), middle in zip(rows, (x_mid, y_mid), strict=True):
            matrix += [a, b, middle - a * (x_mid + x_shift) - b * (y_mid + y_shift)]
        return {"matrix": torch.stack(matrix, 1)}

    def change(self, images: Tensor, drawn: Mapping[str, Tensor]) -> Tensor:
        """Resample each image by its matrix."""
        return on_bytes(images, lambda pixels: affine(pixels, drawn["matrix"]))


AUTOCONTRAST, EQUALIZE, POSTERIZE, SOLARIZE, ROTATE, SHEAR_X, SHEAR_Y, TRANSLATE_X, TRANSLATE_Y = range(9)
SKIP = -1


@AUGMENTATIONS.register("augmix")
class AugMix(Operations):
    r"""AugMix: the image mixed with a weighted mean of a few chains of one to three Pillow operations.

    $(1 - m)\, x + m \sum_i w_i\, C_i(x)$ with $m \sim \mathrm{Beta}(\alpha, \alpha)$ and
    $w \sim \mathrm{Dirichlet}(\alpha, \dots, \alpha)$. Operations: autocontrast, equalize, posterize, solarize, rotate,
    shear and translate along either axis. Released code: mixes normalized images, which gives the same.

    Args:
        share: probability of each image to be changed.
        severity: of the operations, up to 10.
        width: number of chains.
        depth: the most operations in a chain.
        alpha: of both distributions.
    """

    names = (
        *("autocontrast", "equalize", "posterize", "solarize"),
        *("rotate", "shear_x", "shear_y", "translate_x", "translate_y"),
    )
    folds: ClassVar[Mapping[str, Fold]] = dict.fromkeys(names[ROTATE:], "structure")

    def __init__(
        self, *, share: float = 1.0, severity: float = 3.0, width: int = 3, depth: int = 3, alpha: float = 1.0
    ) -> None:
        super().__init__(share=share)
        self.severity = check_range("severity", severity, 0.1, 10)
        self.width, self.depth = int(check_range("width", width, 1, 100)), int(check_range("depth", depth, 1, 100))
        self.alpha = check_range("alpha", alpha, 0.01)

    def parameters(self, count: int, image_size: Size, generator: torch.Generator) -> dict[str, Tensor]:
        """Draw operations, levels and weights; beyond a chain's own depth its operations are skipped."""
        device, shape = generator.device, (count, self.width, self.depth)
        depth = torch.randint(1, self.depth + 1, shape[:2], generator=generator, device=device)
        op = self.draw_operations(shape, generator)
        op = op.masked_fill(torch.arange(self.depth, device=device) >= depth[..., None], SKIP)
        level = torch.rand(shape, generator=generator, device=device, dtype=torch.float64)
        level = level * (self.severity - 0.1) + 0.1
        sign = torch.where(torch.rand(shape, generator=generator, device=device) < 0.5, -1.0, 1.0)
        gamma = torch.full((count, self.width + 2), self.alpha, dtype=torch.float64, device=device)
        gamma = torch._standard_gamma(gamma, generator=generator).clamp_(min=1e-30)
        weights, pair = gamma[:, :-2], gamma[:, -2:]
        value, matrix = operation_values(op, level, sign, image_size)
        return {
            "op": op,
            "value": value,
            "matrix": matrix,
            "weight": (weights / weights.sum(1, keepdim=True)).float(),
            "mix": (pair[:, 0] / pair.sum(1)).float(),
        }

    def change(self, images: Tensor, drawn: Mapping[str, Tensor]) -> Tensor:
        """Run all chains on bytes and mix them in floating point."""
        pixels = images if images.dtype == torch.uint8 else to_bytes(images)
        mixture = torch.zeros(images.shape, device=images.device)
        for i in range(self.width):
            chain = pixels
            for j in range(self.depth):
                chain = apply_operation(chain, *(drawn[name][:, i, j] for name in ("op", "value", "matrix")))
            mixture += drawn["weight"][:, i].view(-1, 1, 1, 1) * to_float(chain)
        return on_floats(images, lambda x_nchw: torch.lerp(x_nchw, mixture, drawn["mix"].view(-1, 1, 1, 1)))


def operation_values(op: Tensor, level: Tensor, sign: Tensor, image_size: Size) -> tuple[Tensor, Tensor]:
    """Return bits or threshold of each operation at a level of 0 to 10, and the matrix of those that move pixels.

    `op`, `level` and `sign`, the direction of a move, have any one shape; matrices have an axis of six more.
    """
    height, width = image_size
    part = level / 10
    value = torch.where(op == POSTERIZE, 4 - (part * 4).floor(), 256 - (part * 256).floor())
    degrees, slope = (part * 30).floor() * sign, part * 0.3 * sign
    angle = torch.deg2rad(-degrees).masked_fill(op != ROTATE, 0)
    cos, sin = torch.cos(angle), torch.sin(angle)
    zero = torch.zeros_like(part)
    x_shift, y_shift = ((part * (length / 3)).floor() * sign for length in (width, height))
    # As Image.rotate: around the center, and counter-clockwise for a positive angle.
    x_turn = width / 2 - cos * (width / 2) - sin * (height / 2)
    y_turn = height / 2 + sin * (width / 2) - cos * (height / 2)
    matrix = (
        cos,
        torch.where(op == SHEAR_X, slope, sin),
        torch.where(op == TRANSLATE_X, x_shift, torch.where(op == ROTATE, x_turn, zero)),
        torch.where(op == SHEAR_Y, slope, -sin),
        cos,
        torch.where(op == TRANSLATE_Y, y_shift, torch.where(op == ROTATE, y_turn, zero)),
    )
    return value, torch.stack(matrix, -1)


def apply_operation(pixels: Tensor, op: Tensor, value: Tensor, matrix: Tensor) -> Tensor:
    """Apply one operation to each image: uint8 `(n, 3, h, w)`, with its row of `operation_values`."""
    pixels = change_rows(pixels, op == AUTOCONTRAST, autocontrast)
    pixels = change_rows(pixels, op == EQUALIZE, equalize)
    pixels = change_rows(pixels, op == POSTERIZE, posterize, value.clamp(max=8))
    pixels = change_rows(pixels, op == SOLARIZE, solarize, value)
    return change_rows(pixels, op >= ROTATE, affine, matrix)
