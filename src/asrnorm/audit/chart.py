"""Curves and reliability plots as SVG that takes its colors from the page, so that they turn dark with it."""

import html
from collections.abc import Sequence
from dataclasses import dataclass

_LEFT, _RIGHT, _TOP, _BOTTOM = 30, 12, 8, 34


@dataclass(frozen=True)
class Line:
    """One curve: fractions at places along the axis.

    Attributes:
        name: for the legend and for those who hover.
        values: one a tick; `None` leaves a gap.
        color: which of the page's colors, from 0.
        dashed: to tell two curves of one color apart.
    """

    name: str
    values: Sequence[float | None]
    color: int = 0
    dashed: bool = False


def curves(
    lines: Sequence[Line],
    ticks: Sequence[str],
    description: str,
    *,
    places: Sequence[float] | None = None,
    size: tuple[int, int] = (440, 220),
    label: str = "",
) -> str:
    """Return curves of fractions over ticks, 0 to 100 %.

    Args:
        lines: one value a tick each.
        ticks: what stands under the axis.
        description: for those who cannot see it.
        places: where the ticks stand; evenly spaced where `None`.
        size: width and height of the drawing, which scales to its place.
        label: of the axis.

    Example:
        >>> curves([Line("a", [1.0, 0.5])], ["clean", "1"], "accuracy").count("<circle")
        2
    """
    width, height = size
    inner_width, inner_height = width - _LEFT - _RIGHT, height - _TOP - _BOTTOM
    where = list(places) if places is not None else list(range(len(ticks)))
    across = [_LEFT + inner_width * (place - where[0]) / ((where[-1] - where[0]) or 1) for place in where]
    parts = _grid(width, inner_height)
    for x, tick in zip(across, ticks, strict=True):
        parts.append(_text(x, height - _BOTTOM + 15, tick, "middle"))
    if label:
        parts.append(_text(_LEFT + inner_width / 2, height - 3, label, "middle"))
    for line in lines:
        points = [
            (across[index], _TOP + inner_height * (1 - value), value, ticks[index])
            for index, value in enumerate(line.values)
            if value is not None
        ]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y, _, _ in points)
        dash = ' stroke-dasharray="5 4"' if line.dashed else ""
        parts.append(f'<polyline class="line c{line.color}" points="{path}"{dash}/>')
        for x, y, value, tick in points:
            title = html.escape(f"{line.name}, {tick}: {100 * value:.1f} %")
            parts.append(
                f'<circle class="dot c{line.color}" cx="{x:.1f}" cy="{y:.1f}" r="3"><title>{title}</title></circle>'
            )
    return _svg(width, height, parts, description)


def reliability(bins: Sequence[Sequence[float]], description: str, color: int = 0) -> str:
    """Return accuracy against confidence, a bar a bin; the fuller the bin, the fuller the color.

    Args:
        bins: images, right ones and mean confidence of each bin.
        description: for those who cannot see it.
        color: which of the page's colors.

    Example:
        >>> reliability([[0, 0, 0.0], [4, 3, 0.9]], "clean").count("<rect")
        1
    """
    width, height = 200, 190
    inner_width, inner_height = width - _LEFT - _RIGHT, height - _TOP - _BOTTOM
    parts = _grid(width, inner_height)
    most = max((count for count, _, _ in bins), default=1) or 1
    bar = inner_width / len(bins)
    for index, (count, right, confidence) in enumerate(bins):
        if not count:
            continue
        accuracy = right / count
        x, y = _LEFT + index * bar + 1, _TOP + inner_height * (1 - accuracy)
        title = html.escape(f"{count:.0f} images, confidence {100 * confidence:.1f} %, right {100 * accuracy:.1f} %")
        parts.append(
            f'<rect class="bar c{color}" x="{x:.1f}" y="{y:.1f}" '
            f'width="{bar - 2:.1f}" height="{max(1.5, inner_height * accuracy):.1f}" '
            f'fill-opacity="{0.25 + 0.7 * (count / most) ** 0.5:.2f}"><title>{title}</title></rect>'
        )
    right_edge, bottom = _LEFT + inner_width, _TOP + inner_height
    parts.append(f'<line class="ideal" x1="{_LEFT}" y1="{bottom}" x2="{right_edge}" y2="{_TOP}"/>')
    parts += [_text(_LEFT + share * inner_width, bottom + 15, f"{100 * share:.0f}", "middle") for share in (0, 0.5, 1)]
    parts.append(_text(_LEFT + inner_width / 2, height - 3, "confidence (%)", "middle"))
    return _svg(width, height, parts, description)


def legend(lines: Sequence[Line]) -> str:
    """Return the names of curves beside their colors."""
    entries = (
        f'<span><i class="key c{line.color}{" dashed" if line.dashed else ""}"></i>{html.escape(line.name)}</span>'
        for line in lines
    )
    return f'<p class="legend">{"".join(entries)}</p>'


def _grid(width: int, inner_height: int) -> list[str]:
    parts = []
    for share in (0, 0.25, 0.5, 0.75, 1):
        y = _TOP + inner_height * (1 - share)
        parts.append(f'<line class="rule" x1="{_LEFT}" y1="{y:.1f}" x2="{width - _RIGHT}" y2="{y:.1f}"/>')
        if share in (0, 0.5, 1):
            parts.append(_text(_LEFT - 5, y + 4, f"{100 * share:.0f}", "end"))
    return parts


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{html.escape(text)}</text>'


def _svg(width: int, height: int, parts: Sequence[str], description: str) -> str:
    return (
        f'<svg class="chart" viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="{html.escape(description)}">{"".join(parts)}</svg>'
    )
