"""Images per second of every corruption: the NumPy reference on one core, tensors on the CPU, and on a GPU.

Torchvision's nearest operation has a row where there is one; it is not the same corruption.
"""

from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from asrnorm.bench.data import natural_like
from asrnorm.bench.device import attempt, capture, require
from asrnorm.bench.harness import Case, Row, compare
from asrnorm.data.corruptions import corrupt, list_corruptions
from asrnorm.data.corruptions.tensors import TENSOR_CORRUPTIONS

BASELINE = "numpy, one core"
_SIDES = (32, 224)
# Of torchvision.transforms.v2.functional, with the parameters of severity 3 at 224x224.
_TORCHVISION: dict[str, Callable[[Any, Tensor], Tensor]] = {
    "brightness": lambda v2, images: v2.adjust_brightness(images, 1.3),
    "contrast": lambda v2, images: v2.adjust_contrast(images, 0.2),
    "elastic_transform": lambda v2, images: v2.elastic(images, 0.05 * torch.randn_like(images[:1, :2]).movedim(1, 3)),
    "gaussian_blur": lambda v2, images: v2.gaussian_blur(images, [25, 25], [3.0, 3.0]),
    "gaussian_noise": lambda v2, images: v2.gaussian_noise(images, sigma=0.18),
    "jpeg_compression": lambda v2, images: v2.jpeg((255 * images).byte(), 15),
    "pixelate": lambda v2, images: v2.resize(v2.resize(images, [89, 89]), list(images.shape[2:])),
    "saturate": lambda v2, images: v2.adjust_saturation(images, 2.0),
}
_VALUES = 2**21  # of a batch on the CPU; a GPU gets eight times as many


def run(device: str | None = "cpu", *, quick: bool = False, only: str = "") -> Iterator[list[Row]]:
    """Measure the corruptions whose name contains a text, at severity 3, and yield the rows of each, baseline first."""
    target = require(device)
    for side in _SIDES:
        for name in list_corruptions():
            if only not in (work := f"{name}, {side}x{side}"):
                continue
            cases = _cases(name, side, target, quick)
            if BASELINE in cases:  # frost needs photographs
                yield compare(work, cases, baseline=BASELINE, repeats=3 if quick else 10, warmup=1 if quick else 3)


def _cases(name: str, side: int, device: torch.device, quick: bool) -> dict[str, Case]:
    count = 2 if quick else max(8, _VALUES // (3 * side * side))
    images = natural_like(count, side)
    images_nhwc = images.permute(0, 2, 3, 1).contiguous().numpy()
    cases = attempt(f"{name}, {BASELINE}", lambda: Case(partial(corrupt, images_nhwc, name), count))
    cases |= attempt(f"{name}, tensors, CPU", lambda: Case(partial(corrupt, images, name), count))
    if device.type == "cuda":
        on_gpu = natural_like(count if quick else 8 * count, side).to(device)
        call = partial(corrupt, on_gpu, name)
        cases |= attempt(f"{name}, tensors, GPU", lambda: Case(call, len(on_gpu), device))
        if name in TENSOR_CORRUPTIONS:
            cases |= attempt(f"{name}, tensors, GPU, CUDA graph", lambda: Case(capture(call), len(on_gpu), device))
        if name in _TORCHVISION and find_spec("torchvision"):
            cases |= attempt(f"{name}, torchvision, GPU", lambda: _torchvision_case(name, on_gpu.float() / 255))
    return {label.removeprefix(f"{name}, "): case for label, case in cases.items()}


def _torchvision_case(name: str, images: Tensor) -> Case:
    functional = import_module("torchvision.transforms.v2.functional")
    return Case(lambda: _TORCHVISION[name](functional, images), len(images), images.device)
