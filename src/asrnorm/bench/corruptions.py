"""Images per second of every corruption: the NumPy reference on one core and on all, tensors on the CPU and on a GPU.

Torchvision's nearest operation has a row where there is one; it is not the same corruption.
"""

from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from torch import Tensor

from asrnorm.bench.data import natural_like
from asrnorm.bench.device import attempt, capture, require
from asrnorm.bench.harness import Case, Row, compare, select
from asrnorm.core.settings import count_cores
from asrnorm.data.corruptions import corrupt, list_corruptions
from asrnorm.data.corruptions.tensors import TENSOR_CORRUPTIONS
from asrnorm.data.corruptions.worker_pool import corrupt_chunks, worker_pool

BASELINE, ALL_CORES = "numpy, one core", "numpy, all cores"
_SIDES = (32, 224)
# Of torchvision.transforms.v2.functional, with the parameters of severity 3 at 224x224; its JPEG takes no GPU tensor.
_TORCHVISION: dict[str, Callable[[Any, Tensor], Tensor]] = {
    "brightness": lambda v2, images: v2.adjust_brightness(images, 1.3),
    "contrast": lambda v2, images: v2.adjust_contrast(images, 0.2),
    "elastic_transform": lambda v2, images: v2.elastic(images, 0.05 * torch.randn_like(images[:1, :2]).movedim(1, 3)),
    "gaussian_blur": lambda v2, images: v2.gaussian_blur(images, [25, 25], [3.0, 3.0]),
    "gaussian_noise": lambda v2, images: v2.gaussian_noise(images, sigma=0.18),
    "pixelate": lambda v2, images: v2.resize(v2.resize(images, [89, 89]), list(images.shape[2:])),
    "saturate": lambda v2, images: v2.adjust_saturation(images, 2.0),
}
_VALUES = 2**21  # of a batch on the CPU; a GPU and all cores get eight times as many


def run(device: str | None = "cpu", *, quick: bool = False, only: str = "", repeats: int = 10) -> Iterator[list[Row]]:
    """Measure the corruptions whose name contains a text, at severity 3, and yield the rows of each, baseline first."""
    target = require(device)
    works = {f"{name}, {side}x{side}": (name, side) for side in _SIDES for name in list_corruptions()}
    with worker_pool(1 if quick else count_cores()) as run_jobs:
        for name, side in select(works, only):
            cases = _cases(name, side, target, quick, run_jobs)
            if BASELINE in cases:  # frost needs photographs
                yield compare(
                    f"{name}, {side}x{side}", cases, baseline=BASELINE, repeats=2 if quick else repeats, warmup=1
                )


def _cases(name: str, side: int, device: torch.device, quick: bool, run_jobs: Callable[..., Any]) -> dict[str, Case]:
    count = 2 if quick else max(8, _VALUES // (3 * side * side))
    images = natural_like(count, side)
    images_nhwc = images.permute(0, 2, 3, 1).contiguous().numpy()
    many = images_nhwc if quick else np.tile(images_nhwc, (8, 1, 1, 1))
    jobs = partial(corrupt_chunks, many, -(-len(many) // (4 * count_cores())), name, 3)
    cases = attempt(f"{name}, {BASELINE}", lambda: Case(partial(corrupt, images_nhwc, name), count))
    cases |= attempt(f"{name}, {ALL_CORES}", lambda: Case(lambda: deque(run_jobs(jobs()), maxlen=0), len(many)))
    cases |= attempt(f"{name}, tensors, CPU", lambda: Case(partial(corrupt, images, name), count))
    if device.type == "cuda":
        on_gpu = natural_like(len(many), side).to(device)
        call = partial(corrupt, on_gpu, name)
        cases |= attempt(f"{name}, tensors, GPU", lambda: Case(call, len(on_gpu), device))
        if name in TENSOR_CORRUPTIONS:
            cases |= attempt(f"{name}, tensors, GPU, CUDA graph", lambda: Case(capture(call), len(on_gpu), device))
        if name in _TORCHVISION and find_spec("torchvision"):
            nearest = partial(_TORCHVISION[name], import_module("torchvision.transforms.v2.functional"), on_gpu / 255)
            cases |= attempt(f"{name}, torchvision, GPU", lambda: Case(nearest, len(on_gpu), device))
    return {label.removeprefix(f"{name}, "): case for label, case in cases.items()}
