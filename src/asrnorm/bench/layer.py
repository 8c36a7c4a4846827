"""One norm layer, forward and backward: ASR-Norm and its variants beside BatchNorm, GroupNorm and a memory floor.

The floor is the time of the minimal memory traffic at the bandwidth of a copy measured in the same run: forward reads x
and writes y, backward reads x and dy and writes dx.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn

from asrnorm.bench.device import (
    attempt,
    capture,
    copy_bandwidth,
    forget_compiled,
    has_fused,
    on_backend,
    peak_bytes,
    require,
    saved_bytes,
)
from asrnorm.bench.harness import Case, Row, compare, megabytes, select
from asrnorm.norms import NORMS
from asrnorm.norms.dispatch import Backend

BASELINE = "bn"
GROUP_NORM = "gn, torch"
TRAFFIC = 5  # tensors of x's size: two forward, three backward

# Caches hold tens of megabytes: a step rotates among enough inputs that none is still cached.
_ROTATION = 1 << 28
_MOST_TURNS = 16


class Shape(NamedTuple):
    """An input: size, dtype, memory format, and the layer it occurs in."""

    where: str
    n: int
    c: int
    h: int
    w: int
    dtype: torch.dtype = torch.bfloat16
    channels_last: bool = True

    @property
    def label(self) -> str:
        """Name of the input in a table."""
        order = "channels-last" if self.channels_last else "NCHW"
        kind = str(self.dtype).removeprefix("torch.")
        return f"{self.where} ({self.n},{self.c},{self.h},{self.w}) {kind} {order}"

    @property
    def bytes(self) -> int:
        """Return the bytes of one such tensor."""
        return self.n * self.c * self.h * self.w * self.dtype.itemsize


GPU_SHAPES = (
    Shape("ResNet-18 stem", 128, 64, 112, 112),
    Shape("ResNet-18 stem", 128, 64, 112, 112, channels_last=False),
    Shape("WRN-40-4 group 1", 128, 64, 32, 32),
    Shape("WRN-40-4 group 2", 128, 128, 16, 16),
    Shape("WRN-40-4 group 3", 128, 256, 8, 8),
    Shape("ResNet-18 layer 1", 128, 64, 56, 56),
    Shape("ResNet-18 layer 2", 128, 128, 28, 28),
    Shape("ResNet-18 layer 3", 128, 256, 14, 14),
    Shape("ResNet-18 layer 4", 128, 512, 7, 7),
    Shape("Digits conv 1", 32, 64, 28, 28, torch.float32),
    Shape("Digits conv 2", 32, 128, 10, 10, torch.float32),
)
_CPU_SIZES = (
    ("demo conv 1", 32, 24, 28),
    ("demo conv 2", 32, 48, 10),
    ("demo conv 2", 64, 48, 10),
    ("ResNet-18 layer 1", 16, 64, 56),
    ("ResNet-18 layer 2", 16, 128, 28),
    ("ResNet-18 layer 3", 16, 256, 14),
    ("ResNet-18 layer 4", 16, 512, 7),
)
CPU_SHAPES = tuple(Shape(where, n, c, side, side, torch.float32, False) for where, n, c, side in _CPU_SIZES)


class Way(NamedTuple):
    """One layer to time: its constructor and its backend."""

    name: str
    make: Callable[[Shape], nn.Module]
    backend: Backend = "auto"
    compiled: bool = False


def _registered(name: str, shape: Shape, **options: str) -> nn.Module:
    return NORMS[name](shape.c, **options)


def _batch_norm_relu(shape: Shape) -> nn.Module:
    return nn.Sequential(_registered(BASELINE, shape), nn.ReLU())


def _torch_group_norm(shape: Shape) -> nn.Module:
    # In the input's dtype: PyTorch's kernel takes no wider parameters.
    return nn.GroupNorm(math.gcd(32, shape.c), shape.c, dtype=shape.dtype)


def ways(cuda: bool, fused: bool) -> tuple[Way, ...]:
    """Return the layers to time, as far as the device and its backends have them."""
    asr = [Way("asr, reference", partial(_registered, "asr"), "reference")]
    if not cuda:
        asr = [Way("asr", partial(_registered, "asr")), *asr]
    if fused and cuda:
        relu = partial(_registered, "asr", activation="relu")
        asr = [Way("asr, fused", partial(_registered, "asr")), Way("asr+relu, fused", relu), *asr]
    if not cuda:
        asr.append(Way("asr, compiled", partial(_registered, "asr"), "reference", compiled=True))
    kin = ("as", "ar", "in", "gn", "ilm", "sn_in_ln") if cuda else ("in", "gn")
    return (
        Way(BASELINE, partial(_registered, "bn")),
        Way("bn, then relu", _batch_norm_relu),
        *asr,
        Way(GROUP_NORM, _torch_group_norm),
        *(Way(name, partial(_registered, name)) for name in kin),
    )


def run(device: str | None = "cpu", *, quick: bool = False, only: str = "", repeats: int = 20) -> Iterator[list[Row]]:
    """Measure every layer on every shape and yield the rows of a shape, BatchNorm first.

    On CUDA each layer's passes are captured in a graph; on the CPU they run eagerly. `only` chooses the shapes whose
    label contains it.
    """
    target = require(device)
    cuda = target.type == "cuda"
    chosen = select({shape.label: shape for shape in (GPU_SHAPES if cuda else CPU_SHAPES)}, only)
    if quick:
        chosen = [shape._replace(n=2, h=min(shape.h, 8), w=min(shape.w, 8)) for shape in chosen[-2:]]
    bandwidth = copy_bandwidth(target, quick=quick)
    for shape in chosen:
        yield measure(shape, target, bandwidth, ways(cuda, has_fused(target)), quick=quick, repeats=repeats)


def measure(
    shape: Shape, device: torch.device, bandwidth: float, layers: Sequence[Way], *, quick: bool, repeats: int
) -> list[Row]:
    """Return a row for each layer on one shape, with its ratios to the floor and to GroupNorm and its memory."""
    forget_compiled()
    turns = 1 if quick else max(1, min(_MOST_TURNS, _ROTATION // (TRAFFIC * shape.bytes)))
    inputs = [_draw(shape, device, seed) for seed in range(2 * turns)]
    pairs = list(zip(inputs[::2], inputs[1::2], strict=True))
    cases: dict[str, Case] = {}
    memory: dict[str, tuple[int, int | None]] = {}
    for way in layers:
        if not (quick and way.compiled):
            cases |= attempt(way.name, partial(_case, way, shape, pairs, device, memory))
    rows = compare(shape.label, cases, baseline=BASELINE, repeats=3 if quick else repeats, warmup=1 if quick else 3)
    floor_ms = 1e3 * TRAFFIC * shape.bytes / bandwidth
    group_ms = next((row.milliseconds(shape.n) for row in rows if row.path == GROUP_NORM), None)
    base_saved, base_peak = memory[BASELINE]

    def describe(row: Row) -> dict[str, float | None]:
        ms = row.milliseconds(shape.n)
        saved, peak = memory[row.path]
        return {
            "ms": ms,
            "floor_ms": floor_ms,
            "times_floor": ms / floor_ms,
            "times_baseline": 1 / row.ratio,
            "times_group_norm": ms / group_ms if group_ms else None,
            "saved_mb": saved / 1e6,
            "peak_mb": megabytes(peak),
            "memory_ratio": saved / base_saved if peak is None or not base_peak else peak / base_peak,
        }

    return [replace(row, extra=describe(row)) for row in rows]


def _draw(shape: Shape, device: torch.device, seed: int) -> Tensor:
    generator = torch.Generator(device).manual_seed(seed)
    x = torch.randn((shape.n, shape.c, shape.h, shape.w), device=device, generator=generator) * 2 + 0.5
    order = torch.channels_last if shape.channels_last else torch.contiguous_format
    return x.to(shape.dtype).contiguous(memory_format=order)


def passes(layer: nn.Module, x: Tensor, dy: Tensor) -> tuple[Tensor, ...]:
    """Return the gradients of the input and of the parameters: one forward and one backward pass."""
    x = x.detach().requires_grad_()
    return torch.autograd.grad(layer(x), (x, *layer.parameters()), dy, allow_unused=True)


def _case(
    way: Way,
    shape: Shape,
    pairs: list[tuple[Tensor, Tensor]],
    device: torch.device,
    memory: dict[str, tuple[int, int | None]],
) -> Case:
    layer = way.make(shape).to(device).train()
    x, dy = pairs[0]
    leaf = x.detach().requires_grad_()
    with on_backend(way.backend):
        passes(layer, x, dy)  # allocates persistent workspaces, which are not counted
        saved = saved_bytes(lambda: layer(leaf), kept=(*layer.parameters(), *layer.buffers()))
        memory[way.name] = saved, peak_bytes(lambda: passes(layer, x, dy), device)
    # Timed on a fresh layer: autograd of one that was called before stays on the stream of that call.
    fresh = way.make(shape).to(device).train()
    called = torch.compile(fresh) if way.compiled else fresh

    def run_all() -> None:
        with on_backend(way.backend):
            for x, dy in pairs:
                passes(called, x, dy)  # type: ignore[arg-type]

    run = capture(run_all) if device.type == "cuda" else run_all
    return Case(run, len(pairs) * pairs[0][0].shape[0], device)
