"""A user's own loop: a network after `asrnorm.convert` in plain eager steps, beside its own `torch.nn.BatchNorm2d`.

Measured are training steps with SGD, forward passes in evaluation, and the time that one layer takes the host. All
ratios are those of medians over interleaved repeats.
"""

import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from importlib import import_module

import torch
from torch import Tensor, nn

from asrnorm.bench.device import attempt, forget_compiled, require
from asrnorm.bench.harness import Case, Row, compare, select
from asrnorm.bench.step import Net, Part
from asrnorm.conversion import convert
from asrnorm.models.base import MODELS
from asrnorm.norms import NORMS

BASELINE = "bn"
LAYER = "host time of one layer (128,64,32,32), gradients cleared"
COMPILED = "training step by reduce-overhead"
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
    if layers is not None:
        logging.disable(logging.INFO)  # the summary of the conversion
        convert(model, "asr", layers=layers)
        logging.disable(logging.NOTSET)
    return model


def run(device: str | None = "cpu", *, quick: bool = False, only: str = "", repeats: int = 3) -> Iterator[list[Row]]:
    """Measure what has `only` in its label, of the networks and of one layer; yield the rows of each."""
    target = require(device)
    rounds = 1 if quick else repeats
    works: dict[str, Callable[[], list[Row]]] = {}
    for net in NETS if target.type == "cuda" and not quick else QUICK_NETS:
        for batch in (0, net.batch, 1):
            what = f"evaluation, batch {batch}" if batch else "training step"
            work = f"eager {what}, {net.label}"
            works[work] = partial(_network, work, net._replace(batch=batch or net.batch), target, rounds)
    if target.type == "cuda" and not quick:
        works |= {f"{COMPILED}, {net.label}": partial(_compiled, net, target, rounds) for net in NETS[1:2]}
    works[LAYER] = partial(_host_time, target, rounds, quick)
    for measure in select(works, only):
        if rows := measure():
            yield rows


def _network(work: str, net: Net, device: torch.device, repeats: int) -> list[Row]:
    def case(layers: str | None, captured: bool) -> Case:
        part = Part(net, layers, device, build=build)
        part.model.train("training" in work)
        call = part.step if "training" in work else part.forward
        return Case(part.through_capture() if captured else call, net.batch, device)

    cases = attempt(BASELINE, partial(case, None, False)) | attempt("asr", partial(case, "all", False))
    if device.type == "cuda":
        cases |= attempt("asrnorm.capture of asr", partial(case, "all", True))
    if BASELINE not in cases:  # torchvision may be missing
        return []
    rows = compare(work, cases, baseline=BASELINE, repeats=repeats, warmup=5, least_s=_ROUND_S)
    return [replace(row, extra=row.times(net.batch)) for row in rows]


def _compiled(net: Net, device: torch.device, repeats: int) -> list[Row]:
    """Return the rows of a step whose model is compiled with `mode="reduce-overhead"`; the optimizer stays outside."""

    def case(layers: str | None) -> Case:
        part = Part(net, layers, device, compiled=True, mode="reduce-overhead", build=build)
        part.model.train()
        return Case(part.step, net.batch, device)

    forget_compiled()
    cases = attempt(BASELINE, partial(case, None)) | attempt("asr", partial(case, "all"))
    if BASELINE not in cases:  # torchvision may be missing
        return []
    work = f"{COMPILED}, {net.label}"
    rows = compare(work, cases, baseline=BASELINE, repeats=repeats, warmup=5, least_s=_ROUND_S)
    return [replace(row, extra=row.times(net.batch)) for row in rows]


def _host_time(device: torch.device, repeats: int, quick: bool) -> list[Row]:
    """Return the rows of one layer, forward and backward; the GPU is faster than the host here."""
    calls = 3 if quick else _CALLS
    x = torch.randn(2 if quick else 128, 64, 32, 32, device=device)
    if device.type == "cuda":
        x = x.bfloat16().contiguous(memory_format=torch.channels_last)
    layers = {BASELINE: nn.BatchNorm2d(64)} | {name: NORMS[name](64) for name in ("asr", "in", "gn", "ln")}
    cases = {name: Case(layer_call(layer.to(device), x, calls), calls) for name, layer in layers.items()}
    rows = compare(LAYER, cases, baseline=BASELINE, repeats=repeats, warmup=3, least_s=_ROUND_S)
    return [replace(row, extra={**row.times(1), "host_us": 1e6 / row.per_second}) for row in rows]


def layer_call(layer: nn.Module, x: Tensor, calls: int) -> Callable[[], None]:
    """Return a function that calls a layer forward and backward, and clears the gradients as optimizers do."""
    x, dy = x.detach().requires_grad_(), torch.ones_like(x)
    leaves = [x, *layer.parameters()]

    def run() -> None:
        for _ in range(calls):
            for leaf in leaves:
                leaf.grad = None
            layer(x).backward(dy)
        if x.is_cuda:
            torch.cuda.synchronize()

    return run
