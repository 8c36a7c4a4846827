"""Drawing with matplotlib: one look for print and screen, safe for color-blind readers, readable in gray."""

import io
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from asrnorm.core.errors import MissingDependencyError
from asrnorm.core.files import write_whole

# Okabe and Ito's palette, without the yellow that is lost on paper; markers and dashes tell lines apart without color.
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#8C8C8C")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
DASHES: tuple[Any, ...] = ("-", (0, (6, 2)), (0, (4, 1, 1, 1)), (0, (8, 2, 2, 2)), (0, (2, 1)))
INK = "#1b1b1c"  # of axes and letters; a color that nothing else has, so that a page can put its own in its place
_BLUE = PALETTE[0].lower()  # too dark on a dark page, which has a lighter one
# What reads on white and on black, in place of what does not.
ANY_GROUND = {INK: "#808080", "#6b6b6b": "#808080", _BLUE: "#2c88c8"}
FORMATS = ("svg", "pdf", "png")
_STYLE = {
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "axes.titlesize": 10,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "legend.frameon": False,
    "grid.color": "#8C8C8C",
    "grid.alpha": 0.3,
    "grid.linewidth": 0.6,
    "svg.fonttype": "path",
    "svg.hashsalt": "asrnorm",  # the same figure is the same text
    "pdf.fonttype": 42,  # letters stay letters, as journals ask
    "figure.constrained_layout.use": True,
}


@contextmanager
def canvas(width: float, height: float, **grid: Any) -> Iterator[tuple[Any, Any]]:
    """Give a figure and its axes in the house style; draw and save inside the block.

    Args:
        width: in inches.
        height: in inches.
        **grid: as `matplotlib.figure.Figure.subplots` takes it: `nrows`, `ncols`, `sharey`.
    """
    matplotlib = _matplotlib()
    with matplotlib.rc_context(_STYLE):
        figure = import_module("matplotlib.figure").Figure(figsize=(width, height))
        yield figure, figure.subplots(**grid)


def to_svg(figure: Any, dpi: float = 100) -> str:
    """Return a figure as the text of an SVG element, with a transparent ground.

    Args:
        figure: of matplotlib.
        dpi: of those parts that are set to be drawn as pixels.
    """
    buffer = io.StringIO()
    with _matplotlib().rc_context(_STYLE):
        figure.savefig(buffer, format="svg", dpi=dpi, transparent=True, metadata={"Date": None})
    text = buffer.getvalue()
    return text[text.index("<svg") :].rstrip()


def for_page(svg: str, prefix: str) -> str:
    """Return an SVG for a page: letters in the page's own color, names that no other figure of the page has.

    Example:
        >>> for_page('<path id="a" style="fill: #1b1b1c"/><use href="#a"/>', "f1")
        '<path id="f1-a" style="fill: currentColor"/><use href="#f1-a"/>'
    """
    svg = svg.replace(INK, "currentColor").replace(_BLUE, f"var(--blue, {_BLUE})")
    svg = re.sub(r'\bid="', f'id="{prefix}-', svg)
    return re.sub(r'(href="#|url\(#)', rf"\g<1>{prefix}-", svg)


def for_image(svg: str) -> str:
    """Return an SVG for a file that pages show as an image: it reads on any ground, since it cannot ask for the page's.

    Places are rounded to a hundredth of a point.

    Example:
        >>> for_image('<path d="M 1.23456 7" style="stroke: #1b1b1c"/>')
        '<path d="M 1.23 7" style="stroke: #808080"/>'
    """
    for color, other in ANY_GROUND.items():
        svg = svg.replace(color, other)
    places = re.compile(r'(?<= )(?:d|x|y)="[^"]*"')
    return places.sub(lambda match: re.sub(r"(\.\d\d)\d+", r"\1", match.group()), svg)


def save(figure: Any, folder: Path, name: str) -> list[Path]:
    """Write a figure as SVG, PDF and PNG and return the files; the same figure gives the same bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for form in FORMATS:
        buffer = io.BytesIO()
        # PDF and PNG carry a date or a version of the program unless told not to.
        metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None, "Producer": None}, "png": {"Software": None}}
        with _matplotlib().rc_context(_STYLE):
            figure.savefig(buffer, format=form, dpi=200, facecolor="white", metadata=metadata[form])
        paths.append(folder / f"{name}.{form}")
        write_whole(paths[-1], buffer.getvalue())
    return paths


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
    with canvas(max(6.0, 1.1 * len(groups) * len(series) ** 0.5 + 2), 3.4) as (figure, axes):
        width = 0.8 / len(series)
        for index, (name, values) in enumerate(series.items()):
            places = [group + (index - (len(series) - 1) / 2) * width for group in range(len(groups))]
            percent = [100 * value for value in values]
            bars = axes.bar(places, percent, width * 0.94, color=PALETTE[index % len(PALETTE)], label=name)
            axes.bar_label(bars, fmt="%.0f", fontsize=8, padding=1)
        axes.set_xticks(range(len(groups)), groups)
        axes.set_ylim(0, 108)
        axes.set_ylabel(f"{label} (%)")
        axes.legend(ncols=len(series), loc="lower center", bbox_to_anchor=(0.5, 1.0))
        return for_page(to_svg(figure), "bars")


def line_chart(lines: Mapping[str, Sequence[tuple[float, float]]], x_label: str, y_label: str) -> str:
    """Return one curve per name.

    Example:
        >>> line_chart({"run": [(0, 1.0), (1, 0.5)]}, "step", "loss").lstrip().startswith("<svg")
        True
    """
    with canvas(6.4, 3.0) as (figure, axes):
        for index, (name, points) in enumerate(lines.items()):
            axes.plot(*zip(*points, strict=True), color=PALETTE[index % len(PALETTE)], label=name, linewidth=1.6)
        axes.set_xlabel(x_label)
        axes.set_ylabel(y_label)
        axes.legend()
        return for_page(to_svg(figure), "lines")


def _matplotlib() -> Any:
    try:
        matplotlib = import_module("matplotlib")
    except ImportError:
        raise MissingDependencyError("figures need matplotlib: pip install 'asrnorm[data]'") from None
    matplotlib.use("Agg")
    return matplotlib
