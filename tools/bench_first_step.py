"""The first training step of a process, which compiles the kernels: ResNet-50 with ASR-Norm beside BatchNorm.

`python -m tools.bench_first_step --json bench/results/eager-first--h200.json` measures processes of their own, with an
empty and with a filled Triton cache.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from asrnorm.bench.device import environment, require
from asrnorm.bench.eager import BASELINE, NETS, QUICK_NETS, build
from asrnorm.bench.harness import Row, describe
from asrnorm.bench.step import Part

WORK = "first step of a process, ResNet-50 at 224"


def first_step(layers: str | None, device: str, quick: bool) -> None:
    """Print the seconds of the first training step of this process, after the model is on the device."""
    net = QUICK_NETS[0] if quick else next(net for net in NETS if "ResNet-50" in net.label)
    part = Part(net, layers, torch.device(device), build=build)
    start = time.perf_counter()
    part.step()
    if part.cuda:
        torch.cuda.synchronize()
    sys.stdout.write(f"\n{time.perf_counter() - start}\n")


def run(device: str | None = None, *, quick: bool = False) -> list[Row]:
    """Return the rows of first steps."""
    seconds = {}
    # The first process reads the libraries from the disk; the second one's time replaces its own.
    kinds = ((BASELINE, None), (BASELINE, None), ("asr, empty cache", "all"), ("asr, filled cache", "all"))
    with tempfile.TemporaryDirectory() as folder, environment({"TRITON_CACHE_DIR": folder}):
        for name, layers in kinds:
            arguments = layers, str(require(device)), quick
            code = f"from tools.bench_first_step import first_step; first_step(*{arguments!r})"
            command = [sys.executable, "-c", code]
            done = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ)
            seconds[name] = float(done.stdout.split()[-1])
    rows = []
    for name, s in seconds.items():
        row = Row(WORK, name, 1 / s, 1 / s, 1 / s, seconds[BASELINE] / s, BASELINE, 1)
        rows.append(replace(row, extra={**row.times(1), "more_s": s - seconds[BASELINE]}))
    return rows


def main(arguments: Sequence[str]) -> int:
    """Measure, and write or print the rows."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", type=Path)
    parser.add_argument("--device")
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args(arguments)
    text = describe("eager", run(given.device, quick=given.quick))
    if given.json:
        given.json.write_text(text)
    sys.stdout.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
