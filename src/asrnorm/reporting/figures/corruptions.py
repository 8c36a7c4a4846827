"""Accuracy under corruptions: by level, and by type in the four groups of Hendrycks and Dietterich."""

import re
from collections.abc import Iterable
from pathlib import Path
from statistics import mean
from typing import Any

from asrnorm.core.results import RunResult
from asrnorm.reporting.figures.base import (
    FIGURES,
    PAPER_LINE,
    NothingToDrawError,
    canvas,
    legend_beside,
    literal,
    look,
    origin_handles,
    records_of,
)
from asrnorm.studies import Cell, Row
from asrnorm.studies.collect import Collected

_AXIS = {"accuracy": "accuracy (%)", "brier": "Brier score", "ece": "expected calibration error", "nll": "NLL"}


@FIGURES.register("levels")
def levels(collected: Collected, _out: Path) -> Any:
    """By level of corruption: ours with a band of one deviation, the paper's dashed and hollow."""
    cells = [item for row in collected.study.rows for item in row.cells.items()]
    columns = {column: level for column, cell in cells if (level := _level(cell)) is not None}
    if not columns:
        raise NothingToDrawError("no column of this study is a level of corruption")
    found = {row.label: (_ours(collected, row, columns), _paper(row, columns)) for row in collected.study.rows}
    found = {label: lines for label, lines in found.items() if any(lines)}
    if not found:
        raise NothingToDrawError("no run is finished, and the paper prints no number")
    with canvas(8.6, max(4.0, 0.25 * len(found) + 1.2)) as (figure, axes):
        handles = []
        for index, (name, (ours, paper)) in enumerate(found.items()):
            color, marker = look(index)
            label = literal(name)
            if paper:
                (line,) = axes.plot(
                    *zip(*paper, strict=True), color=color, marker=marker, markersize=7, label=label, **PAPER_LINE
                )
            if ours:
                x, middle, spread = zip(*ours, strict=True)
                low, high = ([m + sign * s for m, s in zip(middle, spread, strict=True)] for sign in (-1, 1))
                axes.fill_between(x, low, high, color=color, alpha=0.18, linewidth=0)
                (line,) = axes.plot(x, middle, color=color, marker=marker, markersize=5, linewidth=1.7, label=label)
            handles.append(line)
        quantity = next(
            cell.measure.quantity for row in collected.study.rows if row.label in found for cell in row.cells.values()
        )
        axes.set_xticks(sorted(set(columns.values())))
        axes.set_xlabel("level of corruption")
        axes.set_ylabel(_AXIS.get(quantity, quantity))
        axes.grid(axis="y")
        with_ours, with_paper = (any(lines[side] for lines in found.values()) for side in (0, 1))
        legend_beside(figure, [*handles, *origin_handles(with_ours and with_paper, with_paper)])
        return figure


def _level(cell: Cell) -> int | None:
    found = [re.fullmatch(r"\*/(\d)", pattern) for pattern in cell.measure.domains]
    return int(found[0].group(1)) if len(found) == 1 and found[0] else None


def _paper(row: Row, columns: dict[str, int]) -> list[tuple[int, float]]:
    cells = [(level, row.cells.get(column)) for column, level in columns.items()]
    return [(level, cell.printed.value) for level, cell in cells if cell is not None and cell.printed is not None]


def _ours(collected: Collected, row: Row, columns: dict[str, int]) -> list[tuple[int, float, float]]:
    found = [(level, collected.cells.get((row.label, column))) for column, level in columns.items()]
    return [(level, measured.mean, measured.deviation or 0.0) for level, measured in found if measured is not None]


@FIGURES.register("corruptions")
def corruptions(collected: Collected, _out: Path) -> Any:
    """One dot per row and type of corruption, the mean over levels and seeds; the mean of each group is above it."""
    scores = {row.label: by_type(r.result for r in records_of(collected, row)) for row in collected.study.rows}
    scores = {label: values for label, values in scores.items() if values}
    if not scores:
        raise NothingToDrawError("no run on CIFAR-10-C is finished")
    # The columns that average over several types of corruption.
    domains = {column: cell.measure.domains for column, cell in collected.study.rows[0].cells.items()}
    several = {column: names for column, names in domains.items() if len(names) > 1}
    groups = {column: [name.removesuffix("/*") for name in names] for column, names in several.items()}
    lines = [(group, name) for group, names in groups.items() for name in (None, *names)]
    with canvas(8.2, 0.27 * len(lines) + 1.0) as (figure, axes):
        handles = []
        for index, (label, values) in enumerate(scores.items()):
            color, marker = look(index)
            shift = (index - (len(scores) - 1) / 2) * 0.5 / len(scores)
            heights, dots = [], []
            for height, (group, name) in enumerate(lines):
                found = [values[one] for one in (groups[group] if name is None else [name]) if one in values]
                if found:
                    heights.append(height + shift)
                    dots.append(100 * mean(found))
            handles.append(
                axes.plot(dots, heights, color=color, marker=marker, markersize=5.5, linestyle="", label=label)[0]
            )
        axes.set_yticks(range(len(lines)), [name.replace("_", " ") if name else group for group, name in lines])
        for tick, (_, name) in zip(axes.get_yticklabels(), lines, strict=True):
            tick.set_fontweight("normal" if name else "bold")
        for height, (_, name) in enumerate(lines):
            if name is None:
                axes.axhspan(height - 0.5, height + 0.5, color="#8C8C8C", alpha=0.16, linewidth=0)
            axes.axhline(height + 0.5, color="#8C8C8C", linewidth=0.5, alpha=0.3)
        axes.set_ylim(len(lines) - 0.5, -0.5)
        axes.set_xlabel("accuracy (%), mean over levels and seeds; shaded lines are the means of the groups")
        axes.grid(axis="x")
        axes.tick_params(axis="y", length=0)
        legend_beside(figure, handles)
        return figure


def by_type(results: Iterable[RunResult]) -> dict[str, float]:
    """Return the mean accuracy of each type of corruption over levels and runs."""
    found: dict[str, list[float]] = {}
    for result in results:
        for domain in result.domains:
            name, slash, _ = domain.name.partition("/")
            if slash:
                found.setdefault(name, []).append(domain.accuracy)
    return {name: mean(values) for name, values in found.items()}
