"""A user's own loop: a network after `asrnorm.convert` in plain eager steps, beside its own `torch.nn.BatchNorm2d`.

Measured are training steps with SGD, forward passes in evaluation, the time that one layer takes the host, and the
first step of a process, which compiles the kernels. All ratios are those of medians over interleaved repeats.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import NamedTuple

import torch
from torch import Tensor, nn

from asrnorm.bench.device import attempt, environment, forget_compiled, require
from asrnorm.bench.harness import Case, Row, compare, select
from asrnorm.bench.step import Net, Part
from asrnorm.conversion import convert
from asrnorm.models.base import MODELS
from asrnorm.norms import NORMS

BASELINE = "bn"
REPEATS = 3
FIRST = "first step of a process, ResNet-50 at 224"
LAYER = "host time of one layer (128,64,32,32)"
_HOST_LAYERS = (BASELINE, "asr", "in", "gn", "ln")
_CALLS = 100  # of a layer between two waits for the GPU
_ROUND_S = 0.4  # least seconds that a case is timed for in a round

NETS = (
    Net("WRN-40-4 at 32", "wrn_40_4", 128, 32, 10),
    Net("ResNet-18 at 224", "torchvision:resnet18", 128, 224, 7),
    Net("ResNet-50 at 224", "torchvision:resnet50", 128, 224, 7),
    Net("MobileNetV3-L at 224", "torchvision:mobilenet_v3_large", 128, 224, 7),
)
QUICK_NETS = (Net("WRN-16-4 at 16", "wrn_16_4", 2, 16, 10),)


def build(net: Net, layers: str | list[str] | None) -> nn.Module:
    """Return a network with PyTorch's BatchNorm, whose named layers are converted to ASR-Norm."""
    library, _, name = net.model.rpartition(":")
    if library:
        model: nn.Module = import_module(f"{library}.models").get_model(name, num_classes=net.classes)
    else:
        model = MODELS[name](norm_layer=nn.BatchNorm2d, num_classes=net.classes)
    return model if layers is None else convert(model, "asr", layers=layers)


class Work(NamedTuple):
    """What is measured, by its label."""

    label: str
    measure: Callable[[], Iterator[list[Row]]]


def run(
    device: str | None = "cpu", *, quick: bool = False, only: str = "", repeats: int = REPEATS, compiled: bool = True
) -> Iterator[list[Row]]:
    """Measure what has `only` in its label: the networks, one layer, the first step; yield the rows of each.

    `compiled` adds ResNet-18 under `torch.compile(mode="reduce-overhead")`, which takes minutes.
    """
    target = require(device)
    rounds = 1 if quick else repeats
    nets = NETS if target.type == "cuda" and not quick else QUICK_NETS
    works = [Work(net.label, partial(_network, net, target, rounds, compiled)) for net in nets]
    works.append(Work(LAYER, partial(_host_time, target, rounds, quick)))
    works.append(Work(FIRST, partial(_first_steps, target, quick)))
    for work in select(works, only):
        yield from work.measure()


def _network(net: Net, device: torch.device, repeats: int, compiled: bool) -> Iterator[list[Row]]:
    compare_parts = partial(_compare, net, device, repeats)
    yield from compare_parts("eager training step", Part.step)
    for batch in (net.batch, 1):
        yield from compare_parts(f"eager evaluation, batch {batch}", Part.forward, batch=batch)
    if compiled and "ResNet-18" in net.label:
        yield from compare_parts("reduce-overhead training step", Part.step, mode="reduce-overhead")


def _compare(
    net: Net, device: torch.device, repeats: int, what: str, call: Callable[[Part], object], *, batch: int = 0,
    mode: str | None = None,
) -> Iterator[list[Row]]:  # fmt: skip
    forget_compiled()
    work = f"{what}, {net.label}"
    net = net._replace(batch=batch or net.batch)

    def case(layers: str | None) -> Case:
        part = Part(net, layers, device, compiled=mode is not None, build=build, mode=mode)
        part.model.train("evaluation" not in what)
        return Case(lambda: call(part), net.batch, device)

    cases: dict[str, Case] = {}
    for name, layers in ((BASELINE, None), ("asr", "all")):
        cases |= attempt(f"{work}: {name}", partial(case, layers))
    cases = {name.rpartition(": ")[2]: one for name, one in cases.items()}
    if BASELINE in cases:  # torchvision may be missing
        rows = compare(work, cases, baseline=BASELINE, repeats=repeats, warmup=5, least_s=_ROUND_S)
        yield [replace(row, extra=row.times(net.batch)) for row in rows]


def _host_time(device: torch.device, repeats: int, quick: bool) -> Iterator[list[Row]]:
    """Yield the rows of one layer, forward and backward; the GPU is faster than the host here."""
    calls = 3 if quick else _CALLS
    x = torch.randn(2 if quick else 128, 64, 32, 32, device=device)
    if device.type == "cuda":
        x = x.bfloat16().contiguous(memory_format=torch.channels_last)
    dy = torch.randn_like(x)
    cases = {name: Case(_layer_call(_layer(name, device), x, dy, calls), calls) for name in _HOST_LAYERS}
    rows = compare(LAYER, cases, baseline=BASELINE, repeats=repeats, warmup=3, least_s=_ROUND_S)
    yield [replace(row, extra={**row.times(1), "host_us": 1e6 / row.per_second}) for row in rows]


def _layer(name: str, device: torch.device) -> nn.Module:
    return (nn.BatchNorm2d(64) if name == BASELINE else NORMS[name](64)).to(device)


def _layer_call(layer: nn.Module, x: Tensor, dy: Tensor, calls: int) -> Callable[[], None]:
    x = x.detach().requires_grad_()
    leaves = [x, *layer.parameters()]

    def run() -> None:
        for _ in range(calls):
            for leaf in leaves:
                leaf.grad = None
            layer(x).backward(dy)
        if x.is_cuda:
            torch.cuda.synchronize()

    return run


def first_step(layers: str | None, device: str, quick: bool) -> None:
    """Print the seconds of the first training step of this process, after the model is on the device."""
    net = QUICK_NETS[0] if quick else next(net for net in NETS if "ResNet-50" in net.label)
    part = Part(net, layers, torch.device(device), build=build)
    start = time.perf_counter()
    part.step()
    if part.cuda:
        torch.cuda.synchronize()
    sys.stdout.write(f"\n{time.perf_counter() - start}\n")


def _first_steps(device: torch.device, quick: bool) -> Iterator[list[Row]]:
    """Yield the rows of first steps in processes of their own, with an empty and with a filled Triton cache."""
    seconds = {}
    with tempfile.TemporaryDirectory() as folder, environment({"TRITON_CACHE_DIR": folder}):
        # The first process reads the libraries from the disk; the second one's time replaces its own.
        for name, layers in (
            (BASELINE, None),
            (BASELINE, None),
            ("asr, empty cache", "all"),
            ("asr, filled cache", "all"),
        ):
            arguments = layers, str(device), quick
            code = f"from asrnorm.bench.eager import first_step; first_step(*{arguments!r})"
            command = [sys.executable, "-c", code]
            done = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ)
            seconds[name] = float(done.stdout.split()[-1])
    base = seconds[BASELINE]
    yield [
        Row(FIRST, name, 1 / s, 1 / s, 1 / s, base / s, BASELINE, 1,
            {"ms": 1e3 * s, "times_baseline": s / base, "more_s": s - base})
        for name, s in seconds.items()
    ]  # fmt: skip
