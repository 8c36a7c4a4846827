"""Scaling of ASR-Norm: time and memory against channels, positions, samples and the number of layers.

One size varies at a time around a middle shape. `python -m tools.bench_growth --json bench/results/growth--h200.json`
measures; `tools.bench_plot` draws the figure.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from asrnorm.bench import layer as layers
from asrnorm.bench import step
from asrnorm.bench.device import capture, copy_bandwidth, has_fused, require
from asrnorm.bench.harness import Case, Row, compare, describe, megabytes
from asrnorm.bench.layer import Shape, Way

MIDDLE = Shape("growth", 128, 128, 32, 32)
AXES: dict[str, tuple[int, ...]] = {
    "C": (16, 32, 64, 128, 256, 512, 1024),
    "HW": (49, 196, 1024, 3136, 12544),
    "N": (1, 8, 32, 128, 512),
}
NETWORK_AXIS = "layers"
COUNTS = (0, 1, 5, 13, 25, 37)
QUICK_AXES: dict[str, tuple[int, ...]] = {"C": (4, 8), "HW": (4, 16), "N": (1, 2)}

_KEEP = ("asr, fused", "asr, reference", layers.BASELINE, layers.GROUP_NORM)


def run(device: str | None = "cpu", *, quick: bool = False, only: str = "", repeats: int = 10) -> Iterator[list[Row]]:
    """Measure one layer along every axis, then a WRN-40-4 step with more and more ASR layers; yield rows by point.

    `only` chooses one of the axes `C`, `HW`, `N` and `layers`.
    """
    target = require(device)
    bandwidth = copy_bandwidth(target, quick=quick)
    ways = tuple(way for way in layers.ways(target.type == "cuda", has_fused(target)) if way.name in _KEEP)
    for axis, values in (QUICK_AXES if quick else AXES).items():
        for value in values if only in ("", axis) else ():
            yield _point(axis, value, target, bandwidth, ways, quick, repeats)
    for count in ((1,) if quick else COUNTS) if only in ("", NETWORK_AXIS) else ():
        yield _network(count, target, quick, repeats)


def shape_at(axis: str, value: int, middle: Shape = MIDDLE) -> Shape:
    """Return the middle shape with one size changed; HW is a square number."""
    if axis == "HW":
        side = round(value**0.5)
        return middle._replace(h=side, w=side)
    return middle._replace(c=value) if axis == "C" else middle._replace(n=value)


def _point(
    axis: str, value: int, device: torch.device, bandwidth: float, ways: tuple[Way, ...], quick: bool, repeats: int
) -> list[Row]:
    middle = MIDDLE._replace(n=2, c=8, h=4, w=4) if quick else MIDDLE
    if device.type != "cuda":
        middle = middle._replace(dtype=torch.float32, channels_last=False)
    rows = layers.measure(shape_at(axis, value, middle), device, bandwidth, ways, quick=quick, repeats=repeats)
    return [replace(row, work=f"{axis} = {value}", extra={**row.extra, "axis": axis, "value": value}) for row in rows]


def norm_names(model: torch.nn.Module, count: int) -> list[str]:
    """Return the names of a network's first norm layers."""
    names = [name for name, module in model.named_modules() if isinstance(module, torch.nn.BatchNorm2d)]
    return names[:count]


def _network(count: int, device: torch.device, quick: bool, repeats: int) -> list[Row]:
    """Compare a training step of WRN-40-4 whose first `count` norms are ASR-Norm with one of BatchNorm alone."""
    net = step.Net("WRN-40-4", "wrn_16_4" if quick else "wrn_40_4", 2 if quick else 128, 32, 10)
    cases: dict[str, Case] = {}
    memory: dict[str, int | None] = {}
    first_norms = norm_names(step.build_model(net, None), count)
    for name, converted in (("bn", None), ("asr", first_norms or None)):
        part = step.Part(net, converted, device)
        part.model.train()
        memory[name] = part.activations() if part.cuda else None
        cases[name] = Case(capture(part.step) if part.cuda else part.step, net.batch, device)
    rows = compare(f"ASR layers = {count}", cases, baseline="bn", repeats=2 if quick else repeats, warmup=1)
    extra = {"axis": NETWORK_AXIS, "value": count}
    return [
        replace(row, extra={**extra, **row.times(net.batch), "peak_mb": megabytes(memory[row.path])}) for row in rows
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and write the file, after every point anew."""
    parser = argparse.ArgumentParser(prog="python -m tools.bench_growth", description=__doc__)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--device", help="cpu or cuda; cuda where there is one by default")
    parser.add_argument("--only", default="", choices=(*AXES, NETWORK_AXIS), help="one axis alone")
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args(arguments)
    rows: list[Row] = []
    for part in run(given.device, quick=given.quick, only=given.only):
        rows += part
        sys.stdout.write("  ".join([part[0].work, *(f"{row.path}: {row.extra['ms']:.3f} ms" for row in part)]) + "\n")
        given.json.write_text(describe("growth", rows))


if __name__ == "__main__":
    main()
