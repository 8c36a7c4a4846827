"""Accuracy against the number of parameters."""

from pathlib import Path
from typing import Any

from asrnorm.reporting.figures.base import (
    FIGURES,
    PAPER_LINE,
    NothingToDrawError,
    canvas,
    legend_beside,
    look,
    origin_handles,
)
from asrnorm.studies import Row
from asrnorm.studies.collect import Collected

Model = tuple[float, float, float]  # parameters, accuracy, deviation


@FIGURES.register("complexity")
def complexity(collected: Collected, _out: Path) -> Any:
    """Accuracy by parameters: ours filled, with a bar of one deviation; the paper's hollow, joined by a thin line."""
    points = {row.label: pair for row in collected.study.rows if any(pair := (_ours(collected, row), _paper(row)))}
    if not points:
        raise NothingToDrawError("no row has both an accuracy and a number of parameters")
    with canvas(8.6, 4.8) as (figure, axes):
        handles = []
        for index, (label, (ours, paper)) in enumerate(points.items()):
            color, marker = look(index)
            if ours and paper:
                axes.plot([ours[0], paper[0]], [ours[1], paper[1]], color=color, linewidth=0.7, alpha=0.6)
            if paper:
                handle = axes.plot(*paper[:2], color=color, marker=marker, markersize=7, label=label, **PAPER_LINE)
            if ours:
                axes.errorbar(*ours[:2], yerr=ours[2], color=color, capsize=2.5, linewidth=1)
                handle = axes.plot(*ours[:2], color=color, marker=marker, markersize=6, linestyle="", label=label)
            handles += handle
        axes.set_xlabel("parameters (millions)")
        axes.set_ylabel("accuracy (%)")
        axes.margins(0.12, 0.1)
        axes.grid()
        some = [any(pair[side] for pair in points.values()) for side in (0, 1)]
        legend_beside(figure, [*origin_handles(*some), *handles])
        return figure


def _columns(row: Row) -> tuple[str | None, str | None]:
    """Return the columns of parameters (as a count, not a share of the baseline's) and of accuracy."""
    kinds = {column: (cell.measure.quantity, cell.measure.unit) for column, cell in row.cells.items()}
    count = next((column for column, kind in kinds.items() if kind == ("parameters", "millions")), None)
    return count, next((column for column, (quantity, _) in kinds.items() if quantity == "accuracy"), None)


def _ours(collected: Collected, row: Row) -> Model | None:
    count, share = (collected.cells.get((row.label, column or "")) for column in _columns(row))
    return (count.mean, share.mean, share.deviation or 0.0) if count and share else None


def _paper(row: Row) -> Model | None:
    count, share = (row.cells[column].printed if column else None for column in _columns(row))
    return (count.value, share.value, share.deviation or 0.0) if count and share else None
