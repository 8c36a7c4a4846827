"""Timing: warm-up, interleaved repeats, median with p20 and p80, metadata, one JSON file.

All cases of a comparison do the same work in the same process and are reported as ratios to the baseline, losses
included. Their repeats are interleaved, so a load on the machine slows all of them. GPU work is timed with CUDA events,
host work with a clock.
"""

import json
import os
import platform
import re
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import PIL
import torch

from asrnorm import __version__
from asrnorm.core.errors import InputError, UnknownNameError
from asrnorm.core.settings import find_commit

SCHEMA = 1
T = TypeVar("T")


@dataclass(frozen=True)
class Case:
    """One implementation of the work: `run` does it once, for a number of images, samples or steps."""

    run: Callable[[], object]
    items: int
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))


@dataclass(frozen=True)
class Row:
    """One row of a table: items per second of a case and its ratio to the baseline.

    `p20` and `p80` are quantiles of the rate over the repeats; `extra` holds further measurements of a suite.
    """

    work: str
    path: str
    per_second: float
    p20: float
    p80: float
    ratio: float
    baseline: str
    repeats: int
    extra: dict[str, Any] = field(default_factory=dict)

    def milliseconds(self, items: int) -> float:
        """Return the time for this many items."""
        return 1e3 * items / self.per_second

    def times(self, items: int) -> dict[str, float | None]:
        """Return the time for this many items, alone and as a multiple of the baseline's."""
        return {"ms": self.milliseconds(items), "times_baseline": 1 / self.ratio}


def compare(
    work: str, cases: Mapping[str, Case], *, baseline: str, repeats: int = 10, warmup: int = 2, least_s: float = 0.05
) -> list[Row]:
    """Time every case and return a row for each, the baseline's with ratio 1.

    Each case is called `warmup` times, then timed once in each of the rounds (`repeats`). A case that takes less than
    `least_s` seconds is called several times within a round.
    """
    if baseline not in cases:
        raise InputError(f"{work}: the baseline {baseline!r} is not among the cases {', '.join(cases)}")
    calls = {}
    for name, case in cases.items():
        for _ in range(warmup - 1):
            case.run()
        calls[name] = max(1, round(least_s / max(_time(case, 1), 1e-7)))
    seconds: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(repeats):
        for name, case in cases.items():
            seconds[name].append(_time(case, calls[name]) / calls[name])
    reference = cases[baseline].items / statistics.median(seconds[baseline])
    rows = []
    for name, case in cases.items():
        slow, median, fast = rates(seconds[name], case.items)
        rows.append(Row(work, name, median, slow, fast, median / reference, baseline, repeats))
    return rows


def rebase(rows: Sequence[Row], candidates: Sequence[str]) -> list[Row]:
    """Return the rows with the fastest of the candidate paths as the baseline."""
    best = max((row for row in rows if row.path in candidates), key=lambda row: row.per_second)
    return [replace(row, baseline=best.path, ratio=row.per_second / best.per_second) for row in rows]


def select(known: Mapping[str, T], text: str) -> list[T]:
    """Return the items whose label contains a text."""
    found = [item for label, item in known.items() if text in label]
    if not found:
        raise UnknownNameError(f"--only {text!r} fits none of: {'; '.join(known)}")
    return found


def _time(case: Case, calls: int) -> float:
    """Return the seconds that `calls` runs take."""
    if case.device.type != "cuda":
        began = time.perf_counter()
        for _ in range(calls):
            case.run()
        return time.perf_counter() - began
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda.synchronize()
    start.record()
    for _ in range(calls):
        case.run()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) / 1e3


def rates(seconds: Sequence[float], items: int = 1) -> list[float]:
    """Return the rates p20, p50 and p80 of calls that took these seconds."""
    return [items / float(np.quantile(seconds, share)) for share in (0.8, 0.5, 0.2)]


def megabytes(size: int | None) -> float | None:
    """Return bytes in MB, or `None` where they were not measured."""
    return None if size is None else size / 1e6


def metadata() -> dict[str, Any]:
    """Return versions, processors, threads, load, commit and time of a measurement."""
    cuda = torch.cuda.is_available()
    return {
        "asrnorm": __version__,
        "commit": find_commit(),
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "pillow": PIL.__version__,
        "platform": platform.platform(),
        "cpu": _cpu_name(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "load": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        "gpu": torch.cuda.get_device_name() if cuda else None,
        "cuda": torch.version.cuda if cuda else None,
    }


def _cpu_name() -> str:
    with suppress(OSError):
        if named := re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE):
            return named[1]
    return platform.processor() or platform.machine()


def describe(suite: str, rows: Sequence[Row]) -> str:
    """Return rows and metadata as JSON."""
    content = {"schema": SCHEMA, "suite": suite, "machine": metadata(), "rows": [asdict(row) for row in rows]}
    return json.dumps(content, indent=2) + "\n"
