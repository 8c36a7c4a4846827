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
_LEADER = 20.0  # points beyond which a line leads from the label to its marker
_LINE_SAMPLES = 50  # points at which such a line is tested for crossing a label


@FIGURES.register("complexity")
def complexity(collected: Collected, _out: Path) -> Any:
    """Accuracy by parameters: ours filled, with a bar of one deviation; the paper's hollow, joined by a thin line."""
    points = {row.label: pair for row in collected.study.rows if any(pair := (_ours(collected, row), _paper(row)))}
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
    """Return the box around the markers of a row, their bars and the line between them."""
    ends = [y + sign * deviation for _, y, deviation in points for sign in (-1, 1)]
    parameters = [x for x, _, _ in points]
    return min(parameters), min(ends), max(parameters), max(ends)


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


def place_labels(axes: Any, anchors: Mapping[str, Point], colors: Mapping[str, str], obstacles: Sequence[Box]) -> None:
    """Write each label near its anchor, where it covers neither an obstacle nor another label, all in data coordinates.

    The limits of the axes must be set, and everything drawn that affects the layout.
    """
    figure = axes.figure
    figure.draw_without_rendering()  # runs the layout, which determines where points are on the canvas
    scale = figure.dpi / 72
    frame = axes.get_window_extent()
    taken = [_to_pixels(axes, box) for box in obstacles]
    written: list[Box] = []
    for text, anchor in anchors.items():
        style = {"textcoords": "offset points", "fontsize": 8, "ha": "center", "va": "center", "linespacing": 1.05}
        trial = axes.annotate(text, anchor, (0, 0), **style)
        size = trial.get_window_extent()
        trial.remove()
        half = (size.width / 2, size.height / 2)
        in_points = (half[0] / scale, half[1] / scale)
        x, y = axes.transData.transform(anchor)
        # Of the offsets that cover the least area the nearest, and of these the first.
        nearest = sorted(offsets(in_points), key=partial(_distance, half=in_points))
        centers = [(x + right * scale, y + up * scale) for right, up in nearest]
        boxes = [(a - half[0], b - half[1], a + half[0], b + half[1]) for a, b in centers]
        crossing = half[0] * half[1]  # costs as much as a quarter of the label
        costs = []
        for box in boxes:  # the area that covers others or is outside the frame
            area = sum(overlap(box, other) for other in taken) + overlap(box, box) - overlap(box, frame.extents)
            costs.append(area + crossing * _crossings((x, y), box, written))
        best = costs.index(min(costs))
        if _distance(nearest[best], in_points) > _LEADER:
            line = {"arrowstyle": "-", "color": colors[text], "linewidth": 0.7, "shrinkA": 1, "shrinkB": 4}
            style["arrowprops"] = line
        axes.annotate(text, anchor, nearest[best], **style)
        written.append(boxes[best])
        taken.append(boxes[best])


def offsets(half: Point) -> Iterator[Point]:
    """Yield offsets of a label's center from its marker, in points, in eight directions and growing distance."""
    for gap in (_GAP + 10 * ring for ring in range(8)):
        for turn in (0, 180, 45, -45, 135, -135, 90, -90):
            along, up = math.cos(math.radians(turn)), math.sin(math.radians(turn))
            yield round(along, 6) * (half[0] + gap), round(up, 6) * (half[1] + gap)


def overlap(one: Box, other: Box) -> float:
    """Return the area that two boxes share."""
    width = min(one[2], other[2]) - max(one[0], other[0])
    height = min(one[3], other[3]) - max(one[1], other[1])
    return max(0, width) * max(0, height)


def _crossings(point: Point, box: Box, labels: Sequence[Box]) -> int:
    """Return how many labels the line from a point to the center of a box crosses.

    Example:
        >>> _crossings((0, 0), (8, 8, 10, 10), [(4, 4, 5, 5), (4, 0, 5, 1)])
        1
    """
    center = ((box[0] + box[2]) / 2, (box[1] + box[3]) / 2)
    shares = [step / _LINE_SAMPLES for step in range(_LINE_SAMPLES + 1)]
    line = [tuple(a + share * (b - a) for a, b in zip(point, center, strict=True)) for share in shares]
    return sum(any(left <= x <= right and low <= y <= high for x, y in line) for left, low, right, high in labels)


def _distance(move: Point, half: Point) -> int:
    """Return the distance from a marker to the edge of its label, in whole points, so that equal gaps are equal."""
    return round(math.hypot(max(0.0, abs(move[0]) - half[0]), max(0.0, abs(move[1]) - half[1])))


def _to_pixels(axes: Any, box: Box) -> Box:
    """Return a box of data coordinates in pixels, with half a marker around it."""
    (left, bottom), (right, top) = axes.transData.transform([box[:2], box[2:]])
    half = 5 * axes.figure.dpi / 72
    return left - half, bottom - half, right + half, top + half
