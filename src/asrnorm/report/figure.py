"""Figures as SVG text: readable in print, safe for color-blind readers, on light and dark pages."""

import io
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

from asrnorm.errors import MissingDependencyError

# Okabe and Ito's palette, without the yellow that is lost on paper.
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#8C8C8C")
_STYLE = {
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "svg.fonttype": "path",
    "svg.hashsalt": "asrnorm",  # the same figure is the same text
    "figure.constrained_layout.use": True,
}
_GRAY = "#808080"  # for axes and letters: legible on white and on black


def bar_chart(groups: Sequence[str], series: Mapping[str, Sequence[float]], label: str) -> str:
    """Return bars in groups, the values written above them.

    Args:
        groups: names along the axis.
        series: name to a fraction for each group.
        label: of the vertical axis, in percent.

    Example:
        >>> bar_chart(["a"], {"x": [0.5]}, "accuracy").lstrip().startswith("<svg")
        True
    """
    pyplot = _pyplot()
    with pyplot.rc_context(_STYLE):
        figure, axes = pyplot.subplots(figsize=(max(6.0, 1.1 * len(groups) * len(series) ** 0.5 + 2), 3.4))
        width = 0.8 / len(series)
        for index, (name, values) in enumerate(series.items()):
            places = [group + (index - (len(series) - 1) / 2) * width for group in range(len(groups))]
            percent = [100 * value for value in values]
            bars = axes.bar(places, percent, width * 0.94, color=PALETTE[index % len(PALETTE)], label=name)
            axes.bar_label(bars, fmt="%.0f", fontsize=8, color=_GRAY, padding=1)
        axes.set_xticks(range(len(groups)), groups)
        axes.set_ylim(0, 108)
        axes.set_ylabel(f"{label} (%)")
        axes.legend(frameon=False, ncols=len(series), loc="lower center", bbox_to_anchor=(0.5, 1.0), labelcolor=_GRAY)
        return _to_svg(figure, axes)


def line_chart(lines: Mapping[str, Sequence[tuple[float, float]]], x_label: str, y_label: str) -> str:
    """Return one curve a name.

    Example:
        >>> line_chart({"run": [(0, 1.0), (1, 0.5)]}, "step", "loss").lstrip().startswith("<svg")
        True
    """
    pyplot = _pyplot()
    with pyplot.rc_context(_STYLE):
        figure, axes = pyplot.subplots(figsize=(6.4, 3.0))
        for index, (name, points) in enumerate(lines.items()):
            axes.plot(*zip(*points, strict=True), color=PALETTE[index % len(PALETTE)], label=name, linewidth=1.6)
        axes.set_xlabel(x_label)
        axes.set_ylabel(y_label)
        axes.legend(frameon=False, labelcolor=_GRAY)
        return _to_svg(figure, axes)


def _to_svg(figure: Any, axes: Any) -> str:
    for part in (axes.xaxis, axes.yaxis):
        part.label.set_color(_GRAY)
    axes.tick_params(colors=_GRAY)
    for spine in axes.spines.values():
        spine.set_color(_GRAY)
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    import_module("matplotlib.pyplot").close(figure)
    text = buffer.getvalue()
    return text[text.index("<svg") :]


def _pyplot() -> Any:
    try:
        matplotlib = import_module("matplotlib")
    except ImportError:
        raise MissingDependencyError("figures need matplotlib: pip install 'asrnorm[data]'") from None
    matplotlib.use("Agg")
    return import_module("matplotlib.pyplot")
