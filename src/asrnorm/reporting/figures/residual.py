"""Loss with and without the residual terms: what ends in NaN, and where."""

import math
from collections.abc import Sequence
from importlib import import_module
from itertools import takewhile
from pathlib import Path
from typing import Any

from asrnorm.reporting.figure import DASHES, canvas
from asrnorm.reporting.figures.base import FIGURES, NothingToDrawError, diverged_folders, look, records_of
from asrnorm.reporting.log import Points, curve, thin
from asrnorm.studies import Row
from asrnorm.studies.collect import Collected
from asrnorm.studies.store import read_log


@FIGURES.register("residual")
def residual(collected: Collected, _out: Path) -> Any:
    """Loss over the steps, one panel per comparison, one line per seed; a cross marks a loss that is no longer finite.

    A comparison with one of its sides alone has no panel.
    """
    rows = {row.label: row for row in collected.study.rows}
    pairs: list[tuple[str, ...]] = [(pair.row, pair.against) for pair in collected.study.comparisons] or [tuple(rows)]
    losses = {label: _losses(collected, row) for label, row in rows.items()}
    pairs = [pair for pair in pairs if all(losses[label] for label in pair)]
    if not pairs:
        raise NothingToDrawError("no comparison has runs with logs on both sides")
    with canvas(3.5 * len(pairs) + 0.6, 3.4, ncols=len(pairs), squeeze=False) as (figure, panels):
        for axes, pair in zip(panels[0], pairs, strict=True):
            title = _shared(pair)
            _draw(axes, {label.removeprefix(title).strip(", ") or "as it is": losses[label] for label in pair})
            axes.set_title(title, fontsize=9)
        panels[0][0].set_ylabel("loss")
        return figure


def _draw(axes: Any, lines: dict[str, list[tuple[Points, bool]]]) -> None:
    for index, (label, seeds) in enumerate(lines.items()):
        color, _ = look((0, 3, 2, 1, 4, 5, 6)[index % 7])
        for number, (points, broken) in enumerate(seeds):
            finite = thin([point for point in points if math.isfinite(point[1]) and point[1] > 0], 300)
            if not finite:
                if broken and number == 0:
                    axes.plot([], [], color=color, marker="X", linestyle="", label=f"{label}: NaN at once")
                continue
            x, y = zip(*finite, strict=True)
            name = label if number == 0 else None
            axes.plot(x, y, color=color, linestyle=DASHES[index % 2], linewidth=1.2, alpha=0.85, label=name)
            if broken:
                axes.plot(x[-1], y[-1], color=color, marker="X", markersize=10, markeredgecolor="white", linestyle="")
                if name:
                    axes.annotate("NaN", (x[-1], y[-1]), (7, 7), textcoords="offset points", color=color)
    axes.set_yscale("log")
    ticker = import_module("matplotlib.ticker")
    axes.xaxis.set_major_locator(ticker.MaxNLocator(4, integer=True))
    low, high = axes.get_ylim()
    if high < 5 * low:
        axes.yaxis.set_major_locator(ticker.MaxNLocator(4))
    elif high < 1000 * low:
        axes.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
    else:
        axes.yaxis.set_major_locator(ticker.LogLocator(numticks=6))
    axes.yaxis.set_major_formatter(ticker.FormatStrFormatter("%g"))
    axes.yaxis.set_minor_locator(ticker.NullLocator())
    axes.set_xlabel("step")
    axes.grid(axis="y")
    axes.legend(fontsize=8, ncols=2, loc="upper center", bbox_to_anchor=(0.5, -0.18))


def _losses(collected: Collected, row: Row) -> list[tuple[Points, bool]]:
    """Curve of every seed, and whether it broke."""
    folders: dict[Path, bool] = {}
    for record in records_of(collected, row):
        if record.folder is not None:
            folders[record.folder] = False
    folders |= dict.fromkeys(diverged_folders(collected, row), True)
    found = [(curve(read_log(folder), "loss"), broken) for folder, broken in folders.items()]
    kept = [(points, broken) for points, broken in found if points or broken]
    return [(points, broken or not math.isfinite(points[-1][1])) for points, broken in kept]


def _shared(labels: Sequence[str]) -> str:
    """What the labels of a panel begin with.

    Example:
        >>> _shared(["Digits, ASR", "Digits, ASR, no residual"])
        'Digits, ASR'
    """
    same = takewhile(lambda letters: len(set(letters)) == 1, zip(*labels, strict=False))
    return "".join(letters[0] for letters in same).rstrip(", ") or labels[0]
