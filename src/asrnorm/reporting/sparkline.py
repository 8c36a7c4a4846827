"""Small curves as plain SVG, a few hundred bytes each: a page holds hundreds of runs."""

import html
import math
from collections.abc import Sequence

from asrnorm.reporting.log import Points, thin

_WIDTH, _HEIGHT, _LEFT, _TOP, _BOTTOM = 300, 110, 40, 8, 22


def sparkline(curves: Sequence[Points], label: str) -> str:
    """Return one line per curve over a shared axis; a point that is not finite is marked with a cross on the top edge.

    Args:
        curves: steps and values.
        label: what the values are.

    Example:
        >>> sparkline([[(0, 2.0), (100, 0.5)]], "loss").startswith("<svg")
        True
    """
    finite = [point for points in curves for point in points if math.isfinite(point[1])]
    if not finite:
        return ""
    last = max(step for points in curves for step, _ in points)
    first = min(step for step, _ in finite)
    low, high = min(value for _, value in finite), max(value for _, value in finite)

    def place(step: float, value: float) -> str:
        x = _LEFT + (step - first) / max(last - first, 1) * (_WIDTH - _LEFT - 8)
        y = _TOP + (high - value) / ((high - low) or 1) * (_HEIGHT - _TOP - _BOTTOM)
        return f"{x:.1f},{y:.1f}"

    parts = []
    for points in curves:
        drawn = [(step, value) for step, value in thin(points) if math.isfinite(value)]
        if drawn:
            parts.append(f'<polyline points="{" ".join(place(*point) for point in drawn)}"/>')
        broken = next((step for step, value in points if not math.isfinite(value)), None)
        if broken is not None:
            x, y = place(broken, high).split(",")
            parts.append(f'<text class="broken" x="{x}" y="{float(y) + 4}" text-anchor="middle">&times; NaN</text>')
    base = _HEIGHT - _BOTTOM
    words = (
        f'<text x="{_LEFT - 5}" y="{_TOP + 8}" text-anchor="end">{high:.3g}</text>'
        f'<text x="{_LEFT - 5}" y="{base}" text-anchor="end">{low:.3g}</text>'
        f'<text x="{_LEFT}" y="{_HEIGHT - 6}">{first:,}</text>'
        f'<text x="{_WIDTH - 8}" y="{_HEIGHT - 6}" text-anchor="end">step {last:,}</text>'
        f'<text x="{(_WIDTH + _LEFT) / 2}" y="{_HEIGHT - 6}" text-anchor="middle">{html.escape(label)}</text>'
    )
    axes = f'<path d="M{_LEFT} {_TOP}V{base}H{_WIDTH - 8}"/>'
    return (
        f'<svg class="spark" viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" height="{_HEIGHT}" role="img" '
        f'aria-label="{html.escape(label)} over {last:,} steps">{axes}{"".join(parts)}{words}</svg>'
    )
