"""Accuracy against the number of parameters, each row labelled beside its own marker."""

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from asrnorm.reporting.figures.base import FIGURES, PAPER_LINE, NothingToDrawError, canvas, look, origin_handles
from asrnorm.studies import Row
from asrnorm.studies.collect import Collected

Model = tuple[float, float, float]  # parameters, accuracy, deviation
Point = tuple[float, float]
Box = tuple[float, float, float, float]  # left, bottom, right, top

_GAP = 8.0  # points between a marker and its label
_LEADER = 20.0  # points from which on a line leads from the label to its marker
_LOOKS = 50  # along such a line, for what it goes through


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


def _extent(points: Sequence[Model]) -> Box:
    """What the markers of a row, their bars and the line between them take up."""
    ends = [y + sign * deviation for _, y, deviation in points for sign in (-1, 1)]
    parameters = [x for x, _, _ in points]
    return min(parameters), min(ends), max(parameters), max(ends)


def _columns(row: Row) -> tuple[str | None, str | None]:
    """Columns of parameters (a count, not a share of the baseline's) and of accuracy."""
    kinds = {column: (cell.measure.quantity, cell.measure.unit) for column, cell in row.cells.items()}
    count = next((column for column, kind in kinds.items() if kind == ("parameters", "millions")), None)
    return count, next((column for column, (quantity, _) in kinds.items() if quantity == "accuracy"), None)


def _ours(collected: Collected, row: Row) -> Model | None:
    count, share = (collected.cells.get((row.label, column or "")) for column in _columns(row))
    return (count.mean, share.mean, share.deviation or 0.0) if count and share else None


def _paper(row: Row) -> Model | None:
    count, share = (row.cells[column].printed if column else None for column in _columns(row))
    return (count.value, share.value, share.deviation or 0.0) if count and share else None


def place_labels(axes: Any, anchors: Mapping[str, Point], colors: Mapping[str, str], obstacles: Sequence[Box]) -> None:
    """Write a label at each anchor, as near as it finds room.

    Args:
        axes: with their limits set; what is drawn on them later is not known here.
        anchors: the place of each label's marker, in data coordinates.
        colors: of the lines that lead to labels that had to go further away.
        obstacles: what no label may cover, in data coordinates.
    """
    figure = axes.figure
    figure.draw_without_rendering()  # settles the layout: only then is known where a point lies
    scale = figure.dpi / 72
    frame = axes.get_window_extent()
    inside: Box = (frame.x0, frame.y0, frame.x1, frame.y1)
    taken = [_on_screen(axes, box) for box in obstacles]
    written: list[Box] = []
    for text, anchor in anchors.items():
        style = {"textcoords": "offset points", "fontsize": 8, "ha": "center", "va": "center", "linespacing": 1.05}
        trial = axes.annotate(text, anchor, (0, 0), **style)
        size = trial.get_window_extent()
        trial.remove()
        half = (size.width / 2, size.height / 2)
        in_points = (half[0] / scale, half[1] / scale)
        x, y = axes.transData.transform(anchor)

        def cost(move: Point, x: float = x, y: float = y, half: Point = half) -> float:
            box = _around(x + move[0] * scale, y + move[1] * scale, half)
            struck = sum(strikes((x, y), box, other) for other in written) * half[0] * half[1]
            return _cost(box, taken, inside) + struck

        # Of those that cover the least, the nearest; among these the first.
        nearest = sorted(offsets(in_points), key=partial(_distance, half=in_points))
        best = min(nearest, key=cost)
        if _distance(best, in_points) > _LEADER:
            style["arrowprops"] = {
                "arrowstyle": "-",
                "color": colors[text],
                "linewidth": 0.7,
                "shrinkA": 1,
                "shrinkB": 4,
            }
        axes.annotate(text, anchor, best, **style)
        written.append(_around(x + best[0] * scale, y + best[1] * scale, half))
        taken.append(written[-1])


def offsets(half: Point) -> Iterator[Point]:
    """Yield places of a label's middle around its marker, in points, the nearest first; the right side goes before.

    Args:
        half: of its width and height.

    Example:
        >>> next(offsets((20.0, 5.0)))
        (28.0, 0.0)
    """
    for ring in range(8):
        gap = _GAP + 10 * ring
        for turn in (0, 180, 45, -45, 135, -135, 90, -90):
            along, up = math.cos(math.radians(turn)), math.sin(math.radians(turn))
            yield round(along, 6) * (half[0] + gap), round(up, 6) * (half[1] + gap)


def overlap(one: Box, other: Box) -> float:
    """Return the area that two boxes share.

    Example:
        >>> overlap((0, 0, 2, 2), (1, 1, 3, 3)), overlap((0, 0, 1, 1), (1, 0, 2, 1))
        (1, 0)
    """
    width = min(one[2], other[2]) - max(one[0], other[0])
    height = min(one[3], other[3]) - max(one[1], other[1])
    return max(0, width) * max(0, height)


def _cost(box: Box, taken: Sequence[Box], inside: Box) -> float:
    """Area that is covered or cut off."""
    area = (box[2] - box[0]) * (box[3] - box[1])
    return sum(overlap(box, other) for other in taken) + area - overlap(box, inside)


def strikes(point: Point, box: Box, other: Box) -> bool:
    """Tell whether the line from a point to the middle of a label goes through another label.

    Example:
        >>> [strikes((0, 0), (8, 8, 10, 10), other) for other in ((4, 4, 5, 5), (4, 0, 5, 1))]
        [True, False]
    """
    middle = ((box[0] + box[2]) / 2, (box[1] + box[3]) / 2)
    shares = [step / _LOOKS for step in range(_LOOKS + 1)]
    line = [tuple(a + share * (b - a) for a, b in zip(point, middle, strict=True)) for share in shares]
    return any(other[0] <= x <= other[2] and other[1] <= y <= other[3] for x, y in line)


def _distance(move: Point, half: Point) -> int:
    """From the marker to the edge of the label, in whole points, so that equal gaps are equal."""
    return round(math.hypot(max(0.0, abs(move[0]) - half[0]), max(0.0, abs(move[1]) - half[1])))


def _around(x: float, y: float, half: Point) -> Box:
    return x - half[0], y - half[1], x + half[0], y + half[1]


def _on_screen(axes: Any, box: Box) -> Box:
    """A box of data as pixels, with half a marker around it."""
    (left, bottom), (right, top) = axes.transData.transform([box[:2], box[2:]])
    half = 5 * axes.figure.dpi / 72
    return left - half, bottom - half, right + half, top + half
