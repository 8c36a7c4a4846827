"""Steps of ADA's gradient ascent on images (25 per generated image): ASR-Norm beside BatchNorm.

The settings are the trainer's: bfloat16 and channels-last on a GPU, captured and eager. The plain reference has rows of
its own.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from asrnorm.bench.device import attempt, forget_compiled, has_fused, is_cuda, on_backend, require
from asrnorm.bench.harness import Case, Row, compare, rebase
from asrnorm.bench.step import CPU_NETS, GPU_NETS, QUICK_NETS, Net, Part
from asrnorm.methods.ascent import Ascent
from asrnorm.norms.dispatch import Backend

_STEPS = 5  # of an ascent; its setup takes a sixth of the time or less


def run(device: str | None = "cpu", *, quick: bool = False, repeats: int = 10) -> Iterator[list[Row]]:
    """Measure the ascent on one network; yield its rows."""
    target = require(device)
    net = QUICK_NETS[0] if quick else GPU_NETS[1] if is_cuda(target) else CPU_NETS[0]
    yield measure(net, target, 2 if quick else repeats)


def measure(net: Net, device: torch.device, repeats: int) -> list[Row]:
    """Return the rows of one network, against the fastest ascent with BatchNorm."""
    forget_compiled()
    cuda = is_cuda(device)
    norms: list[tuple[str, str | None, Backend]] = [("bn", None, "auto"), ("asr, reference", "all", "reference")]
    if has_fused(device):
        norms.insert(1, ("asr, fused", "all", "auto"))
    cases: dict[str, Case] = {}
    for name, layers, backend in norms:
        for way in ("CUDA graph", "eager") if cuda else ("eager",):
            make = partial(_make, net, layers, device, backend, captured=way == "CUDA graph")
            cases |= attempt(f"{name}, {way}", make)
    rows = compare(f"step of an ascent, {net.label}", cases, baseline=next(iter(cases)), repeats=repeats, warmup=2)
    rows = rebase(rows, [name for name in cases if name.startswith("bn, ")])
    return [replace(row, extra=row.times(net.batch)) for row in rows]


def _make(net: Net, layers: str | None, device: torch.device, backend: Backend, *, captured: bool) -> Case:
    part = Part(net, layers, device)
    ascend = Ascent(steps=_STEPS, batch=net.batch).prepare(part.model, captured=captured)

    def ascend_once() -> Tensor:
        with on_backend(backend), torch.autocast(device.type, torch.bfloat16, enabled=is_cuda(device)):
            return ascend(part.images, part.labels)

    return Case(ascend_once, net.batch * _STEPS, device)
