"""Images per second of every corruption: the NumPy reference on one core, tensors on the CPU, and on a GPU."""

from collections.abc import Iterator
from functools import partial

import torch

from asrnorm.bench.data import natural_like
from asrnorm.bench.device import attempt, capture, require
from asrnorm.bench.harness import Case, Row, compare
from asrnorm.data.corruptions import corrupt, list_corruptions
from asrnorm.data.corruptions.tensors import TENSOR_CORRUPTIONS

BASELINE = "numpy, one core"
_SIDES = (32, 224)
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
    return {label.removeprefix(f"{name}, "): case for label, case in cases.items()}
