"""Training step and forward pass in evaluation: ASR-Norm beside the fastest BatchNorm.

All cases share network, input, loss and optimizer (SGD, fused on a GPU). BatchNorm runs eagerly, in a CUDA graph, by
`asrnorm.capture` as in a user's own loop, and compiled in a CUDA graph that includes the optimizer, unlike
`reduce-overhead`; the fastest of them is the baseline.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from asrnorm.bench.device import attempt, capture, forget_compiled, has_fused, on_backend, peak_bytes, require
from asrnorm.bench.harness import Case, Row, compare, megabytes, rebase, select
from asrnorm.conversion import convert
from asrnorm.core.captured_step import capture as capture_step
from asrnorm.models import create_model
from asrnorm.norms.dispatch import Backend


class Net(NamedTuple):
    """A network at one input size; `layers` names which of its norms become ASR-Norm."""

    label: str
    model: str
    batch: int
    side: int
    classes: int
    layers: tuple[str, ...] = ("all",)
    gated: bool = False


GPU_NETS = (
    Net("WRN-40-4, batch 128", "wrn_40_4", 128, 32, 10),
    Net("WRN-40-4, batch 512", "wrn_40_4", 512, 32, 10),
    Net("ResNet-18 at 224, batch 128", "resnet18", 128, 224, 7, ("resnet-12", "all"), gated=True),
)
CPU_NETS = (Net("demo ConvNet, batch 32", "digits_convnet", 32, 32, 10),)
QUICK_NETS = (
    Net("demo ConvNet, batch 4", "digits_convnet", 4, 32, 10),
    Net("ResNet-18 at 32, batch 2", "resnet18", 2, 32, 7, ("resnet-12",), gated=True),
)

_OPTIONS: dict[str, dict[str, Any]] = {"digits_convnet": {"channels": (24, 48), "hidden": 192}}


def build_model(net: Net, layers: str | list[str] | None) -> nn.Module:
    """Return the network with BatchNorm, or with ASR-Norm in the named layers, as the recipes build it."""
    options: dict[str, Any] = {"num_classes": net.classes, **_OPTIONS.get(net.model, {})}
    if layers == "all":
        return create_model(net.model, norm="asr", norm_options={"gated_rescale": net.gated}, **options)
    model = create_model(net.model, norm="bn", **options)
    if layers is not None:
        convert(model, "asr", layers=layers, gated_rescale=net.gated)
    return model


class Part:
    """One model with its optimizer and input; a GPU trains in bfloat16 and channels-last."""

    def __init__(
        self,
        net: Net,
        layers: str | list[str] | None,
        device: torch.device,
        *,
        compiled: bool = False,
        mode: str | None = None,
        build: Callable[[Net, str | list[str] | None], nn.Module] = build_model,
    ) -> None:
        torch.manual_seed(0)
        self.cuda = device.type == "cuda"
        order = torch.channels_last if self.cuda else torch.contiguous_format
        self.model = build(net, layers).to(device).to(memory_format=order)  # type: ignore[call-overload]
        self.called: Callable[[Tensor], Tensor] = torch.compile(self.model, mode=mode) if compiled else self.model
        self.optimizer = torch.optim.SGD(
            self.model.parameters(), lr=0.01, momentum=0.9, nesterov=True, weight_decay=5e-4, fused=self.cuda or None
        )
        images = torch.rand(net.batch, 3, net.side, net.side, device=device)
        self.images = images.contiguous(memory_format=order)
        self.labels = torch.randint(net.classes, (net.batch,), device=device)

    def _logits(self) -> Tensor:
        # A graph replays the casts, so cached casts would be those of the weights at capture.
        with torch.autocast(self.images.device.type, torch.bfloat16, enabled=self.cuda, cache_enabled=False):
            return self.called(self.images)

    def _backward(self) -> None:
        F.cross_entropy(self._logits().float(), self.labels).backward()

    def step(self) -> None:
        """Do one update."""
        self.optimizer.zero_grad(set_to_none=True)
        self._backward()
        self.optimizer.step()

    def forward(self) -> Tensor:
        """Return the logits in evaluation."""
        with torch.no_grad():
            return self._logits()

    def through_capture(self) -> Callable[[], Tensor | None]:
        """Return the step, or in evaluation mode the forward pass, through `asrnorm.capture`."""

        def call(images: Tensor, labels: Tensor) -> Tensor | None:
            self.images, self.labels = images, labels  # in a graph its own tensors
            return self.step() if self.model.training else self.forward()  # type: ignore[func-returns-value]

        batch = self.images, self.labels
        return partial(capture_step(call, *batch, model=self.model, optimizer=self.optimizer), *batch)

    def activations(self) -> int | None:
        """Return the peak memory of a step without parameters, gradients and the optimizer's state."""
        self.step()  # its gradients stay allocated, so they are not counted
        return peak_bytes(self._backward, self.images.device)


def run(
    device: str | None = "cpu", *, quick: bool = False, only: str = "", repeats: int = 20, compiled: bool = True
) -> Iterator[list[Row]]:
    """Measure the training step of every network and the forward pass of the first model; yield rows by work.

    `only` chooses the networks whose label contains it; `compiled` adds rows with `torch.compile`, which take minutes.
    """
    target = require(device)
    nets = QUICK_NETS if quick else GPU_NETS if target.type == "cuda" else CPU_NETS
    chosen = select({net.label: net for net in nets}, only)
    rounds = 2 if quick else repeats
    for net in chosen:
        yield measure(net, target, rounds, compiled and not quick)
    yield measure_forward(chosen[0], target, rounds, compiled and not quick)


def measure(net: Net, device: torch.device, repeats: int, compiled: bool) -> list[Row]:
    """Return the rows of one network's training step, against the fastest step with BatchNorm."""
    forget_compiled()
    cases: dict[str, Case] = {}
    memory: dict[str, int | None] = {}
    for prefix, layers, backend in _variants(net.layers, device):
        with on_backend(backend):
            memory[prefix] = Part(net, layers, device).activations() if device.type == "cuda" else None
        make = partial(_make, net, device, layers, backend, training=True)
        cases |= _try_ways(prefix, make, device, training=True, compiled=compiled and backend == "auto")
    names = [name for name in cases if name.startswith("bn, ")]
    rows = compare(f"training step, {net.label}", cases, baseline=names[0], repeats=repeats, warmup=3)
    return [replace(row, extra=_extra(row, net, memory)) for row in rebase(rows, names)]


def measure_forward(net: Net, device: torch.device, repeats: int, compiled: bool) -> list[Row]:
    """Return the rows of a forward pass in evaluation, against BatchNorm's in the same kind of graph."""
    forget_compiled()
    cases: dict[str, Case] = {}
    for prefix, layers, backend in _variants(net.layers[:1], device):
        make = partial(_make, net, device, layers, backend, training=False)
        cases |= _try_ways(prefix, make, device, training=False, compiled=compiled and layers is None)
    baseline = "bn, CUDA graph" if device.type == "cuda" else "bn, eager"
    rows = compare(f"forward in evaluation, {net.label}", cases, baseline=baseline, repeats=repeats, warmup=3)
    return [replace(row, extra=_extra(row, net, {})) for row in rows]


def _variants(layers: Sequence[str], device: torch.device) -> Iterator[tuple[str, str | None, Backend]]:
    """Yield the name, the converted layers and the backend of every model."""
    yield "bn", None, "auto"
    for chosen in layers:
        if has_fused(device):
            yield f"asr {chosen}, fused", chosen, "auto"
        elif device.type == "cpu":
            yield f"asr {chosen}", chosen, "auto"
        yield f"asr {chosen}, reference", chosen, "reference"


def _try_ways(
    prefix: str, make: Callable[..., Case], device: torch.device, *, training: bool, compiled: bool
) -> dict[str, Case]:
    """Return the cases that can be built of one model: eager, in CUDA graphs, and compiled."""
    cuda = device.type == "cuda"
    ways: dict[str, dict[str, bool]] = {} if cuda and not training else {"eager": {}}
    if cuda:
        ways["CUDA graph"] = {"captured": True}
    if cuda and training:
        ways["asrnorm.capture"] = {"through_capture": True}
    if compiled:
        ways["compiled, CUDA graph" if cuda else "compiled"] = {"captured": cuda, "compiled": True}
    found: dict[str, Case] = {}
    for way, options in ways.items():
        found |= attempt(f"{prefix}, {way}", partial(make, **options))
    return found


def _make(
    net: Net,
    device: torch.device,
    layers: str | None,
    backend: Backend,
    *,
    training: bool,
    captured: bool = False,
    compiled: bool = False,
    through_capture: bool = False,
) -> Case:
    """Return the case of a training step or of a forward pass in evaluation, in a CUDA graph if captured."""
    part = Part(net, layers, device, compiled=compiled)
    part.model.train(training)
    call: Callable[[], object] = part.through_capture() if through_capture else part.step if training else part.forward

    def run() -> object:
        with on_backend(backend):
            return call()

    return Case(capture(run) if captured else run, net.batch, device)


def _extra(row: Row, net: Net, memory: dict[str, int | None]) -> dict[str, float | None]:
    own = next((memory[prefix] for prefix in memory if row.path.startswith(f"{prefix}, ")), None)
    base = memory.get("bn")
    return {
        **row.times(net.batch),
        "activation_mb": megabytes(own),
        "memory_ratio": None if own is None or not base else own / base,
    }
