"""Accuracy against the number of parameters."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from asrnorm.reporting.figure import canvas
from asrnorm.reporting.figures.base import (
    FIGURES,
    PAPER_LINE,
    NothingToDrawError,
    look,
    origin_handles,
)
from asrnorm.reporting.figures.label import Box, place_labels
from asrnorm.studies import Row
from asrnorm.studies.collect import Collected

Point = tuple[float, float, float]  # parameters, accuracy, deviation


@FIGURES.register("complexity")
def complexity(collected: Collected, _out: Path) -> Any:
    """Accuracy by parameters: ours filled, with a bar of one deviation; the paper's hollow, with a thin line between.

    Each row has its label beside its own marker.
    """
    points = {row.label: (_ours(collected, row), _paper(row)) for row in collected.study.rows}
    points = {label: pair for label, pair in points.items() if any(pair)}
    if not points:
        raise NothingToDrawError("no row has both an accuracy and a number of parameters")
    with canvas(8.6, 4.8) as (figure, axes):
        anchors, colors, obstacles = {}, {}, []
        for index, (label, (ours, paper)) in enumerate(points.items()):
            color, marker = look(index)
            if ours and paper:
                axes.plot([ours[0], paper[0]], [ours[1], paper[1]], color=color, linewidth=0.7, alpha=0.6)
            if paper:
                axes.plot(*paper[:2], color=color, marker=marker, markersize=7, label=label, **PAPER_LINE)
            if ours:
                axes.errorbar(*ours[:2], yerr=ours[2], color=color, capsize=2.5, linewidth=1)
                axes.plot(*ours[:2], color=color, marker=marker, markersize=6, linestyle="", label=label)
            text = label.replace(" (", "\n(")
            anchors[text], colors[text] = (ours or paper or (0.0, 0.0, 0.0))[:2], color
            obstacles.append(_extent([point for point in (ours, paper) if point]))
        axes.set_xlabel("parameters (millions)")
        axes.set_ylabel("accuracy (%)")
        axes.margins(0.12, 0.1)
        axes.grid()
        some = [any(pair[side] for pair in points.values()) for side in (0, 1)]
        figure.legend(handles=origin_handles(*some), loc="outside upper right", ncols=2, fontsize=9)
        place_labels(axes, anchors, colors, obstacles)
        return figure


def _extent(points: Sequence[Point]) -> Box:
    """What the markers of a row, their bars and the line between them take up."""
    ends = [y + sign * deviation for _, y, deviation in points for sign in (-1, 1)]
    places = [x for x, _, _ in points]
    return min(places), min(ends), max(places), max(ends)


def _columns(row: Row) -> tuple[str | None, str | None]:
    """Columns of parameters (a count, not a share of the baseline's) and of accuracy."""
    count = [c for c, cell in row.cells.items() if cell.measure.quantity == "parameters" and _counts(cell.measure.unit)]
    share = [column for column, cell in row.cells.items() if cell.measure.quantity == "accuracy"]
    return (count[0] if count else None), (share[0] if share else None)


def _counts(unit: str) -> bool:
    return unit == "millions"


def _ours(collected: Collected, row: Row) -> Point | None:
    count, share = (collected.cells.get((row.label, column or "")) for column in _columns(row))
    return (count.mean, share.mean, share.deviation or 0.0) if count and share else None


def _paper(row: Row) -> Point | None:
    count, share = (row.cells[column].printed if column else None for column in _columns(row))
    return (count.value, share.value, share.deviation or 0.0) if count and share else None
