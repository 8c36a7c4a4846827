"""Curves over training: the lambdas of ASR-Norm beside weight decay alone, and losses that end in NaN."""

import math
import textwrap
from collections.abc import Sequence
from importlib import import_module
from itertools import takewhile
from pathlib import Path
from statistics import mean
from typing import Any

from asrnorm.reporting.figures.base import (
    DASHES,
    FIGURES,
    INK,
    NothingToDrawError,
    canvas,
    diverged_folders,
    look,
    records_of,
)
from asrnorm.reporting.runs import Points, curve, identify, lambda_curves
from asrnorm.studies import Row
from asrnorm.studies.collect import Collected, RunRecord
from asrnorm.studies.decay import START, decay_curve
from asrnorm.studies.store import read_log, subsample

_TITLES = {f"lambda_{name}": rf"$\lambda_\{name}$" for name in ("mu", "sigma", "beta", "gamma")}
_POINTS, _POINTS_BEHIND = 400, 100  # of a line; a network has dozens behind the named ones
_SEEN = 0.1  # a lambda that moves less than this is a flat line on an axis from 0 to 1

Curves = dict[str, dict[str, Points]]  # by lambda and layer


@FIGURES.register("lambdas")
def lambdas(collected: Collected, _out: Path) -> Any:
    """Every lambda over the steps: first, middle and last layer, the mean of all, and the curve of weight decay alone.

    The seeds of a run are averaged. A row with several runs, such as one per source, shows the first that has curves.
    Rows share the axis of each kind of lambda, from 0 to 1 unless it moves too little to be seen there.
    """
    chosen = {row.label: runs for row in collected.study.rows if (runs := _first_run(collected, row))}
    if not chosen:
        raise NothingToDrawError("no finished run has a log with lambdas")
    curves = {label: _average([found for _, found in runs]) for label, runs in chosen.items()}
    names = list(dict.fromkeys(name for found in curves.values() for name in found))
    grid = {"nrows": len(curves), "ncols": len(names), "sharey": "col", "squeeze": False}
    with canvas(2.5 * len(names) + 0.5, 2.3 * len(curves) + 0.8, **grid) as (figure, panels):
        handles: dict[str, Any] = {}
        for line, (label, runs) in zip(panels, chosen.items(), strict=True):
            for axes, name in zip(line, names, strict=True):
                handles |= _draw_lambdas(axes, curves[label].get(name, {}), _decay(runs[0][0], name))
                axes.grid(axis="y")
            line[0].set_ylabel(f"{textwrap.fill(label, 26)}\n{_describe([record for record, _ in runs])}", fontsize=9)
        for column, name in zip(panels.T, names, strict=True):
            column[0].set_title(_TITLES.get(name, name) + ", axis enlarged" * _is_still(column))
            if not _is_still(column):
                column[0].set_ylim(-0.02, 1.02)
            column[-1].set_xlabel("step")
        columns = len(handles) if len(names) > 3 else 3
        figure.legend(handles=list(handles.values()), loc="outside upper center", ncols=columns, fontsize=9)
        return figure


def _is_still(column: Sequence[Any]) -> bool:
    """Return whether the lines of all panels would be one flat line on an axis from 0 to 1."""
    values = [value for axes in column for line in axes.get_lines() for value in line.get_ydata()]
    return bool(max(values) - min(values) < _SEEN)


def _draw_lambdas(axes: Any, layers: dict[str, Points], decay: Points) -> dict[str, Any]:
    names = list(layers)
    if not names:
        return {}
    handles: dict[str, Any] = {}
    named = {"first layer": names[0], "middle layer": names[len(names) // 2], "last layer": names[-1]}
    for name in (name for name in names if name not in named.values()):
        points = _columns(layers[name], _POINTS_BEHIND)
        handles["other"] = axes.plot(*points, color="#8C8C8C", linewidth=0.6, alpha=0.6, label="other layers")[0]
    for index, (label, name) in enumerate(named.items()):
        color, marker = look((0, 2, 3)[index])
        handles[label] = axes.plot(
            *_columns(layers[name]), color=color, marker=marker, markersize=4, markevery=0.2, linewidth=1.6, label=label
        )[0]
    middle = _mean_curve(list(layers.values()))
    handles["mean"] = axes.plot(*_columns(middle), color=INK, linewidth=2, label="mean of all layers")[0]
    if decay:
        handles["decay"] = axes.plot(
            *_columns(decay), color="#CC79A7", linestyle=DASHES[1], linewidth=1.8, label="weight decay alone"
        )[0]
    # In the order of the legend.
    return {key: handles[key] for key in (*named, "mean", "decay", "other") if key in handles}


def _decay(record: RunRecord, name: str) -> Points:
    """Return the curve without any gradient of the loss; empty for a lambda of the user's own layer."""
    config = record.spec.config(record.seed, record.result.scale)  # type: ignore[arg-type]
    if name not in START:
        return []
    steps = sorted({round(i * config.steps / 100) for i in range(101)})
    return list(zip(steps, decay_curve(config, name, steps), strict=True))


def _first_run(collected: Collected, row: Row) -> list[tuple[RunRecord, Curves]]:
    """Return the seeds with curves of the first run of a row that has any."""
    chosen: list[tuple[RunRecord, Curves]] = []
    for record in records_of(collected, row):
        if chosen and identify(record.spec) != identify(chosen[0][0].spec):
            continue
        if curves := lambda_curves(read_log(record.folder)):
            chosen.append((record, curves))
    return chosen


def _average(seeds: Sequence[Curves]) -> Curves:
    return {
        name: {
            layer: _mean_curve([one[name][layer] for one in seeds if layer in one.get(name, {})])
            for layer in seeds[0][name]
        }
        for name in seeds[0]
    }


def _mean_curve(curves: Sequence[Points]) -> Points:
    values: dict[float, list[float]] = {}
    for points in curves:
        for step, value in points:
            values.setdefault(step, []).append(value)
    return [(step, mean(some)) for step, some in sorted(values.items())]


def _columns(points: Points, most: int = _POINTS) -> tuple[tuple[float, ...], tuple[float, ...]]:
    steps, values = zip(*subsample(points, most), strict=True)
    return steps, values


def _describe(records: Sequence[RunRecord]) -> str:
    """Return source and seeds, in which rows may differ."""
    source = str(records[0].spec.options.get("source", "")).replace("_", " ")
    seeds = f"seed {records[0].seed}" if len(records) == 1 else f"mean of {len(records)} seeds"
    return f"{source}{', ' * bool(source)}{seeds}"


@FIGURES.register("residual")
def residual(collected: Collected, _out: Path) -> Any:
    """Loss over the steps, one panel per comparison, one line per seed; a cross marks a loss that is no longer finite.

    A comparison needs runs on both sides to have a panel.
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
            _draw_losses(axes, {label.removeprefix(title).strip(", ") or "as it is": losses[label] for label in pair})
            axes.set_title(title, fontsize=9)
        panels[0][0].set_ylabel("loss")
        return figure


def _draw_losses(axes: Any, lines: dict[str, list[tuple[Points, bool]]]) -> None:
    for index, (label, seeds) in enumerate(lines.items()):
        color, _ = look((0, 3, 2, 1, 4, 5, 6)[index % 7])
        for number, (points, broken) in enumerate(seeds):
            finite = subsample([point for point in points if math.isfinite(point[1]) and point[1] > 0], 300)
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
    """Return the curve of every seed, and whether it diverged."""
    folders: dict[Path, bool] = {}
    for record in records_of(collected, row):
        if record.folder is not None:
            folders[record.folder] = False
    folders |= dict.fromkeys(diverged_folders(collected, row), True)
    found = [(curve(read_log(folder), "loss"), broken) for folder, broken in folders.items()]
    kept = [(points, broken) for points, broken in found if points or broken]
    return [(points, broken or not math.isfinite(points[-1][1])) for points, broken in kept]


def _shared(labels: Sequence[str]) -> str:
    """Return what all labels of a panel begin with."""
    same = takewhile(lambda letters: len(set(letters)) == 1, zip(*labels, strict=False))
    return "".join(letters[0] for letters in same).rstrip(", ") or labels[0]
