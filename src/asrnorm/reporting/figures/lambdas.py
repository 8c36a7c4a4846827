"""The lambdas of ASR-Norm over training, beside what weight decay alone would make of them."""

import textwrap
from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from asrnorm.reporting.figure import DASHES, INK, canvas
from asrnorm.reporting.figures.base import FIGURES, NothingToDrawError, look, records_of
from asrnorm.reporting.log import Points, lambda_curves, thin
from asrnorm.reporting.run_section import identify
from asrnorm.studies import Row
from asrnorm.studies.collect import Collected, RunRecord
from asrnorm.studies.decay import START, decay_curve
from asrnorm.studies.store import read_log

_TITLES = {f"lambda_{name}": rf"$\lambda_\{name}$" for name in ("mu", "sigma", "beta", "gamma")}
_POINTS, _POINTS_BEHIND = 400, 100  # of a line; a network has dozens behind the named ones
_SEEN = 0.1  # a lambda that moves less than this is a flat line on an axis from 0 to 1

Curves = dict[str, dict[str, Points]]  # by lambda and layer


@FIGURES.register("lambdas")
def lambdas(collected: Collected, _out: Path) -> Any:
    """Every lambda over the steps: first, middle and last layer, the mean of all, and the curve of weight decay alone.

    The seeds of a run are averaged. A row with several runs, as one a source, shows the first that has curves. All rows
    share the axis of a kind of lambda, from 0 to 1 unless it moves too little to be seen there.
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
                handles |= _draw(axes, curves[label].get(name, {}), _decay(runs[0][0], name))
                axes.grid(axis="y")
            line[0].set_ylabel(f"{_wrap(label)}\n{_describe([record for record, _ in runs])}", fontsize=9)
        for column, name in zip(panels.T, names, strict=True):
            column[0].set_title(_TITLES.get(name, name) + ", axis enlarged" * _is_still(column))
            if not _is_still(column):
                column[0].set_ylim(-0.02, 1.02)
            column[-1].set_xlabel("step")
        columns = len(handles) if len(names) > 3 else 3
        figure.legend(handles=list(handles.values()), loc="outside upper center", ncols=columns, fontsize=9)
        return figure


def _is_still(column: Sequence[Any]) -> bool:
    """Whether all lines of the panels stay so near to each other that an axis from 0 to 1 would show one."""
    values = [value for axes in column for line in axes.get_lines() for value in line.get_ydata()]
    return bool(max(values) - min(values) < _SEEN)


def _draw(axes: Any, layers: dict[str, Points], decay: Points) -> dict[str, Any]:
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
    # The named lines first, then what stands behind them.
    return {key: handles[key] for key in (*named, "mean", "decay", "other") if key in handles}


def _decay(record: RunRecord, name: str) -> Points:
    """The curve without any gradient of the loss; none for a lambda of a layer of the user's own."""
    config = record.spec.config(record.seed, record.scale)  # type: ignore[arg-type]
    if name not in START:
        return []
    steps = sorted({round(i * config.steps / 100) for i in range(101)})
    return list(zip(steps, decay_curve(config, name, steps), strict=True))


def _first_run(collected: Collected, row: Row) -> list[tuple[RunRecord, Curves]]:
    """The seeds of one run, those with curves."""
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
    steps, values = zip(*thin(points, most), strict=True)
    return steps, values


def _describe(records: Sequence[RunRecord]) -> str:
    """Source and seeds: rows may have been kept of different ones."""
    source = str(records[0].spec.options.get("source", "")).replace("_", " ")
    seeds = ", ".join(str(record.seed) for record in records)
    return f"{source}{', ' * bool(source)}{'seed' if len(records) == 1 else 'mean of seeds'} {seeds}"


def _wrap(text: str) -> str:
    return "\n".join(textwrap.wrap(text, 26))
