"""The lambdas of ASR-Norm over training, beside what weight decay alone would make of them."""

import textwrap
from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from asrnorm.report.figure import DASHES, INK, canvas
from asrnorm.report.figures.base import FIGURES, NothingToDrawError, legend_beside, look, records_of
from asrnorm.report.log import Points, lambda_curves, read_log, thin
from asrnorm.report.run_section import identify
from asrnorm.studies import Row
from asrnorm.studies.collect import Collected, RunRecord
from asrnorm.studies.decay import START, decay_curve

_TITLES = {f"lambda_{name}": rf"$\lambda_\{name}$" for name in ("mu", "sigma", "beta", "gamma")}
_MOST_LAYERS = 12  # thin lines behind the named ones


@FIGURES.register("lambdas")
def lambdas(collected: Collected, out: Path) -> Any:  # noqa: ARG001
    """Every lambda over the steps: first, middle and last layer, the mean of all, and the curve of weight decay alone.

    The seeds of a run are averaged. A row with several runs, as one a source, shows its first.
    """
    chosen = {row.label: _first_run(collected, row) for row in collected.study.rows}
    curves = {label: _average([lambda_curves(read_log(r.folder)) for r in runs]) for label, runs in chosen.items()}
    curves = {label: found for label, found in curves.items() if found}
    if not curves:
        raise NothingToDrawError("no run with a log that has lambdas is done")
    names = list(dict.fromkeys(name for found in curves.values() for name in found))
    grid = {"nrows": len(curves), "ncols": len(names), "sharey": True, "squeeze": False}
    with canvas(2.9 * len(names) + 2.2, 2.5 * len(curves) + 0.4, **grid) as (figure, panels):
        handles: dict[str, Any] = {}
        for line, (label, found) in zip(panels, curves.items(), strict=True):
            for axes, name in zip(line, names, strict=True):
                handles |= _draw(axes, found.get(name, {}), _decay(chosen[label][0], name))
                axes.set_ylim(-0.02, 1.02)
                axes.grid(axis="y")
            line[0].set_ylabel(_wrap(label + _options(chosen[label][0])), fontsize=9)
        for axes, name in zip(panels[0], names, strict=True):
            axes.set_title(_TITLES.get(name, name))
        for axes in panels[-1]:
            axes.set_xlabel("step")
        legend_beside(figure, list(handles.values()))
        return figure


def _draw(axes: Any, layers: dict[str, Points], decay: Points) -> dict[str, Any]:
    names = list(layers)
    if not names:
        return {}
    handles: dict[str, Any] = {}
    for name in names[:: max(1, len(names) // _MOST_LAYERS)]:
        (thin_line,) = axes.plot(
            *_columns(layers[name]), color="#8C8C8C", linewidth=0.6, alpha=0.6, label="other layers"
        )
        handles["other"] = thin_line
    named = {"first layer": names[0], "middle layer": names[len(names) // 2], "last layer": names[-1]}
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


def _first_run(collected: Collected, row: Row) -> list[RunRecord]:
    records = list(records_of(collected, row))
    return [record for record in records if identify(record.spec) == identify(records[0].spec)]


def _average(seeds: Sequence[dict[str, dict[str, Points]]]) -> dict[str, dict[str, Points]]:
    full = [one for one in seeds if one]
    if not full:
        return {}
    return {
        name: {
            layer: _mean_curve([one[name][layer] for one in full if layer in one.get(name, {})])
            for layer in full[0][name]
        }
        for name in full[0]
    }


def _mean_curve(curves: Sequence[Points]) -> Points:
    values: dict[float, list[float]] = {}
    for points in curves:
        for step, value in points:
            values.setdefault(step, []).append(value)
    return [(step, mean(some)) for step, some in sorted(values.items())]


def _columns(points: Points) -> tuple[tuple[float, ...], tuple[float, ...]]:
    steps, values = zip(*thin(points, 400), strict=True)
    return steps, values


def _options(record: RunRecord) -> str:
    source = record.spec.options.get("source")
    return f" ({source})" if source else ""


def _wrap(text: str) -> str:
    return "\n".join(textwrap.wrap(text, 26))
