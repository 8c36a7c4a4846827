"""Accuracy against the level of corruption, one line per row."""

import re
from pathlib import Path
from typing import Any

from asrnorm.reporting.figure import canvas
from asrnorm.reporting.figures.base import (
    FIGURES,
    PAPER_LINE,
    NothingToDrawError,
    legend_beside,
    look,
    origin_handles,
)
from asrnorm.studies import Cell, Row
from asrnorm.studies.collect import Collected

_AXIS = {"accuracy": "accuracy (%)", "brier": "Brier score", "ece": "expected calibration error", "nll": "NLL"}


@FIGURES.register("levels")
def levels(collected: Collected, _out: Path) -> Any:
    """By level of corruption: ours with a band of one deviation, the paper's dashed and hollow."""
    columns = {column: level for row in collected.study.rows for column, level in _levels(row).items()}
    if not columns:
        raise NothingToDrawError("no column of this study is a level of corruption")
    rows = [row for row in collected.study.rows if any(_has_number(collected, row, column) for column in columns)]
    if not rows:
        raise NothingToDrawError("no run is finished, and the paper prints no number")
    with canvas(8.6, max(4.0, 0.25 * len(rows) + 1.2)) as (figure, axes):
        handles, with_ours, with_paper = [], False, False
        for index, row in enumerate(rows):
            color, marker = look(index)
            ours = _ours(collected, row, columns)
            paper = [(columns[c], row.cells[c].printed.value) for c in _printed(row, columns)]  # type: ignore[union-attr]
            if paper:
                (line,) = axes.plot(
                    *zip(*paper, strict=True), color=color, marker=marker, markersize=7, label=row.label, **PAPER_LINE
                )
                with_paper = True
            if ours:
                x, mean, spread = zip(*ours, strict=True)
                axes.fill_between(
                    x,
                    [m - s for m, s in zip(mean, spread, strict=True)],
                    [m + s for m, s in zip(mean, spread, strict=True)],
                    color=color,
                    alpha=0.18,
                    linewidth=0,
                )
                (line,) = axes.plot(x, mean, color=color, marker=marker, markersize=5, linewidth=1.7, label=row.label)
                with_ours = True
            handles.append(line)
        quantity = next(cell.measure.quantity for row in rows for cell in row.cells.values())
        axes.set_xticks(sorted(set(columns.values())))
        axes.set_xlabel("level of corruption")
        axes.set_ylabel(_AXIS.get(quantity, quantity))
        axes.grid(axis="y")
        legend_beside(figure, [*handles, *origin_handles(with_ours and with_paper, with_paper)])
        return figure


def _levels(row: Row) -> dict[str, int]:
    return {column: level for column, cell in row.cells.items() if (level := _level(cell)) is not None}


def _level(cell: Cell) -> int | None:
    found = [re.fullmatch(r"\*/(\d)", pattern) for pattern in cell.measure.domains]
    return int(found[0].group(1)) if len(found) == 1 and found[0] else None


def _has_number(collected: Collected, row: Row, column: str) -> bool:
    return (row.label, column) in collected.cells or bool(_printed(row, {column: 0}))


def _printed(row: Row, columns: dict[str, int]) -> list[str]:
    return [column for column in columns if column in row.cells and row.cells[column].printed is not None]


def _ours(collected: Collected, row: Row, columns: dict[str, int]) -> list[tuple[int, float, float]]:
    found = [(level, collected.cells.get((row.label, column))) for column, level in columns.items()]
    return [(level, measured.mean, measured.deviation or 0.0) for level, measured in found if measured is not None]
