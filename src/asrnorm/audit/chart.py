"""Geometry of the charts of an audit; `audit.html` draws them in the colors of the page."""

from collections.abc import Sequence
from dataclasses import dataclass

from asrnorm.core.errors import count_of

_LEFT, _RIGHT, _TOP, _BOTTOM = 30, 12, 8, 34  # margins


@dataclass(frozen=True)
class Line:
    """One curve of fractions, one per tick; `None` leaves a gap, and `color` is an index of the page's colors."""

    name: str
    values: Sequence[float | None]
    color: int = 0
    dashed: bool = False


class Chart:
    """Shapes in pixels, counted from the top left."""

    def __init__(self, width: int, height: int, description: str, color: int = 0) -> None:
        self.width, self.height, self.description, self.color = width, height, description, color
        self.left, self.right, self.top, self.bottom = _LEFT, width - _RIGHT, _TOP, height - _BOTTOM
        # Color, dashed, and points; rectangle and opacity; each with the text shown on hover.
        self.lines: list[tuple[int, bool, list[tuple[float, float, str]]]] = []
        self.bars: list[tuple[float, float, float, float, float, str]] = []
        self.rules = [self.to_y(share) for share in (0, 0.25, 0.5, 0.75, 1)]  # heights of the horizontal lines
        self.texts: list[tuple[float, float, str, str]]  # position, anchor and words of labels
        self.texts = [(_LEFT - 5, self.to_y(share) + 4, "end", f"{100 * share:.0f}") for share in (0, 0.5, 1)]

    def to_x(self, share: float) -> float:
        """Return the horizontal position of a fraction of the axis."""
        return self.left + share * (self.right - self.left)

    def to_y(self, share: float) -> float:
        """Return the height of a fraction."""
        return self.top + (1 - share) * (self.bottom - self.top)

    def label(self, ticks: Sequence[tuple[float, str]], title: str) -> None:
        """Write ticks, each at a fraction of the axis, and the title of the axis."""
        self.texts += [(self.to_x(share), self.bottom + 15, "middle", tick) for share, tick in ticks]
        self.texts += [(self.to_x(0.5), self.height - 3, "middle", title)] if title else []


def curves(
    lines: Sequence[Line],
    ticks: Sequence[str],
    description: str,
    *,
    positions: Sequence[float] | None = None,
    size: tuple[int, int] = (440, 220),
    title: str = "",
) -> Chart:
    """Return curves of fractions over ticks, at `positions` along the axis or evenly spaced."""
    chart = Chart(*size, description)
    at = positions if positions is not None else range(len(ticks))
    shares = [(position - at[0]) / ((at[-1] - at[0]) or 1) for position in at]
    chart.label(list(zip(shares, ticks, strict=True)), title)
    for line in lines:
        points = [
            (chart.to_x(share), chart.to_y(value), f"{line.name}, {tick}: {100 * value:.1f} %")
            for share, tick, value in zip(shares, ticks, line.values, strict=True)
            if value is not None
        ]
        chart.lines.append((line.color, line.dashed, points))
    return chart


def reliability(bins: Sequence[Sequence[float]], description: str, color: int = 0) -> Chart:
    """Return accuracy against confidence, one bar per bin; the more images in a bin, the fuller its color.

    A bin has its number of images, of right ones, and the mean confidence.
    """
    chart = Chart(200, 190, description, color)
    chart.label([(0, "0"), (0.5, "50"), (1, "100")], "confidence (%)")
    most = max(count for count, _, _ in bins) or 1
    width = (chart.right - chart.left) / len(bins)
    for index, (count, right, confidence) in enumerate(bins):
        if count:
            accuracy = right / count
            said = f"{count_of(int(count), 'image')}, confidence {100 * confidence:.1f} %, right {100 * accuracy:.1f} %"
            height = max(1.5, chart.bottom - chart.to_y(accuracy))
            opacity = 0.25 + 0.7 * (count / most) ** 0.5
            x = chart.to_x(index / len(bins)) + 1
            chart.bars.append((x, chart.to_y(accuracy), width - 2, height, opacity, said))
    return chart
