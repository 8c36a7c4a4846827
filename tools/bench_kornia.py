"""Corruptions beside the operations of kornia that come nearest, on one core of a CPU.

`OMP_NUM_THREADS=1 python -m tools.bench_kornia FILE` measures at 32x32 and 224x224, with the parameters of severity 3,
and writes FILE. None of kornia's operations computes the published corruption: snow is brightened pixels, fog a plasma
that brightens, motion blur a kernel with equal weights.
"""

import sys
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path

import torch
from torch import Tensor

from asrnorm.bench.corruptions import BASELINE
from asrnorm.bench.data import natural_like
from asrnorm.bench.harness import Case, Row, compare, describe
from asrnorm.data.corruptions import corrupt


def list_operations(side: int) -> dict[str, Callable[[Tensor], Tensor]]:
    """Return kornia's operation nearest to each corruption, for images of a size."""
    kornia = import_module("kornia")
    augmentation, enhance, resize = kornia.augmentation, kornia.enhance, kornia.geometry.transform.resize
    quality, sigma, small = torch.tensor([15.0 if side > 64 else 58.0]), 3.0 if side > 64 else 0.7, 0.4 * side
    taps = 31 if side > 64 else 13
    return {
        "brightness": partial(enhance.adjust_brightness, factor=0.3),
        "contrast": partial(enhance.adjust_contrast_with_mean_subtraction, factor=0.2),
        "elastic_transform": augmentation.RandomElasticTransform(p=1.0),
        "fog": augmentation.RandomPlasmaBrightness(p=1.0),
        "gaussian_blur": partial(
            kornia.filters.gaussian_blur2d, kernel_size=2 * round(4 * sigma) + 1, sigma=(sigma, sigma)
        ),
        "gaussian_noise": augmentation.RandomGaussianNoise(std=0.18, p=1.0),
        "impulse_noise": augmentation.RandomSaltAndPepperNoise(amount=(0.09, 0.09), p=1.0),
        "jpeg_compression": lambda images: enhance.jpeg_codec_differentiable(images, quality),
        "motion_blur": augmentation.RandomMotionBlur(taps, 45.0, 1.0, p=1.0),
        "pixelate": lambda images: resize(resize(images, (int(small), int(small))), (side, side)),
        "saturate": partial(enhance.adjust_saturation, factor=2.0),
        "snow": augmentation.RandomSnow(p=1.0),
    }


def measure(side: int, count: int) -> list[Row]:
    """Time the reference, the tensors and kornia's operation for every corruption that has one."""
    images = natural_like(count, side)
    array, unit = images.permute(0, 2, 3, 1).contiguous().numpy(), images.float() / 255
    rows = []
    for name, operation in list_operations(side).items():
        cases = {
            BASELINE: Case(partial(corrupt, array, name), count),
            "tensors, CPU": Case(partial(corrupt, unit, name), count),
            "kornia, CPU": Case(partial(operation, unit), count),
        }
        rows += compare(f"{name}, {side}x{side}", cases, baseline=BASELINE, repeats=7)
    return rows


if __name__ == "__main__":
    with torch.no_grad():
        Path(sys.argv[1]).write_text(describe("corruptions", [*measure(32, 256), *measure(224, 8)]))
