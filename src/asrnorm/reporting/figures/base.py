"""The registry of figures and what they share: one look for print and screen, safe for color-blind readers."""

import io
import re
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from asrnorm.core.config import content_hash, run_name
from asrnorm.core.errors import AsrnormError, import_extra, printable
from asrnorm.core.files import write_whole
from asrnorm.core.registry import Registry
from asrnorm.studies import Row
from asrnorm.studies.collect import Collected, RunRecord

# A figure takes a collected study and the folder of its report, and returns a matplotlib figure.
FIGURES: Registry[Callable[[Collected, Path], Any]] = Registry("figure")
# The paper's numbers, in every figure: hollow markers on a dashed line.
PAPER_LINE: dict[str, Any] = {"linestyle": (0, (3, 2)), "linewidth": 1.0, "markerfacecolor": "none", "alpha": 0.9}
# Okabe and Ito's palette, without the yellow that is lost on paper; markers and dashes tell lines apart without color.
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#8C8C8C")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
DASHES: tuple[Any, ...] = ("-", (0, (6, 2)), (0, (4, 1, 1, 1)), (0, (8, 2, 2, 2)), (0, (2, 1)))
INK = "#1b1b1c"  # color of axes and letters that nothing else has, so that a page can replace it by its own
_BLUE = PALETTE[0].lower()  # too dark on a dark page, which has a lighter one
FORMATS = ("svg", "pdf", "png")
_LONGEST_LABEL = 60
_STYLE = {
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 10,
    **dict.fromkeys(("axes.edgecolor", "axes.labelcolor", "axes.titlecolor"), INK),
    **dict.fromkeys(("text.color", "xtick.color", "ytick.color"), INK),
    "legend.frameon": False,
    "grid.color": "#8C8C8C",
    "grid.alpha": 0.3,
    "grid.linewidth": 0.6,
    "svg.fonttype": "path",
    "svg.hashsalt": "asrnorm",  # the same figure is the same text
    "pdf.fonttype": 42,  # letters stay letters, as journals ask
    "figure.constrained_layout.use": True,
}


class NothingToDrawError(AsrnormError):
    """A figure lacks the numbers to draw; the message says which."""


def look(index: int) -> tuple[str, str]:
    """Return color and marker of a row; the first 49 rows have different pairs."""
    return PALETTE[index % len(PALETTE)], MARKERS[(index + index // len(PALETTE)) % len(MARKERS)]


def records_of(collected: Collected, row: Row) -> Iterator[RunRecord]:
    """Yield the runs behind a row, each once."""
    found: dict[str, RunRecord] = {}
    for column in row.cells:
        measured = collected.cells.get((row.label, column))
        for record in measured.records if measured else ():
            found.setdefault(record.result.config_hash, record)
    yield from found.values()


def diverged_folders(collected: Collected, row: Row) -> Iterator[Path]:
    """Yield the folders of the diverged runs of a row, or of what is kept of them."""
    for column, cell in row.cells.items():
        for seed in collected.diverged.get((row.label, column), ()):
            for spec in cell.runs:
                config = spec.config(seed, collected.scale)  # type: ignore[arg-type]
                here = collected.runs / run_name(config) if collected.runs else None
                kept = collected.details.get(content_hash(config))
                if folder := here if here and here.is_dir() else kept:
                    yield folder


def literal(text: str) -> str:
    r"""Return a label for matplotlib that is drawn as it is, without formulas, and shortened to fit a legend.

    Example:
        >>> literal("a$b$")
        'a\\$b\\$'
    """
    text = printable(text)
    short = text if len(text) <= _LONGEST_LABEL else f"{text[: _LONGEST_LABEL - 1]}\N{HORIZONTAL ELLIPSIS}"
    return short.replace("$", r"\$")


def legend_beside(figure: Any, handles: list[Any], marker_scale: float = 1.0) -> None:
    """Put the legend right of the axes, where it covers nothing."""
    labels = [handle.get_label() for handle in handles]
    figure.legend(handles, labels, loc="outside right upper", fontsize=9, markerscale=marker_scale)


def origin_handles(ours: bool = True, paper: bool = True) -> list[Any]:
    """Return the entries of a legend that tell our numbers from the paper's."""
    line = partial(import_module("matplotlib.lines").Line2D, [], [], color="#6b6b6b", marker="o", markersize=5)
    return [*([line(label="ours")] if ours else []), *([line(label="paper", **PAPER_LINE)] if paper else [])]


@contextmanager
def canvas(width: float, height: float, **grid: Any) -> Iterator[tuple[Any, Any]]:
    """Yield a figure and its axes in the style of all figures; draw and save inside the block.

    Sizes are in inches; `grid` is what `matplotlib.figure.Figure.subplots` takes.
    """
    matplotlib = _matplotlib()
    with matplotlib.rc_context(_STYLE):
        figure = import_module("matplotlib.figure").Figure(figsize=(width, height))
        yield figure, figure.subplots(**grid)


def to_svg(figure: Any, dpi: float = 100) -> str:
    """Return a matplotlib figure as an SVG element with a transparent background; `dpi` is of its rasterized parts."""
    buffer = io.StringIO()
    with _matplotlib().rc_context(_STYLE):
        figure.savefig(buffer, format="svg", dpi=dpi, transparent=True, metadata={"Date": None})
    text = buffer.getvalue()
    return text[text.index("<svg") :].rstrip()


def for_page(svg: str, prefix: str) -> str:
    """Return an SVG to put into a page: letters in the page's color, ids prefixed so that figures do not clash."""
    svg = svg.replace(INK, "currentColor").replace(_BLUE, f"var(--blue, {_BLUE})")
    svg = re.sub(r'\bid="', f'id="{prefix}-', svg)
    return re.sub(r'(href="#|url\(#)', rf"\g<1>{prefix}-", svg)


def save(figure: Any, folder: Path, name: str) -> list[Path]:
    """Write a figure as SVG, PDF and PNG and return the files; the same figure gives the same bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for form in FORMATS:
        buffer = io.BytesIO()
        # By default PDF and PNG carry a date or the version of matplotlib.
        metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None, "Producer": None}, "png": {"Software": None}}
        with _matplotlib().rc_context(_STYLE):
            figure.savefig(buffer, format=form, dpi=200, facecolor="white", metadata=metadata[form])
        paths.append(folder / f"{name}.{form}")
        write_whole(paths[-1], buffer.getvalue())
    return paths


def _matplotlib() -> Any:
    matplotlib = import_extra("matplotlib", "a figure", "matplotlib", "data")
    matplotlib.use("Agg")
    return matplotlib


def bar_chart(groups: Sequence[str], series: Mapping[str, Sequence[Sequence[float]]], label: str) -> str:
    """Return an SVG of horizontal bars in groups, narrow enough for a phone.

    A bar has one value per seed, all fractions: their mean stands in percent behind it, a line joins least and largest.
    """
    with canvas(4.6, 0.16 * len(groups) * (len(series) + 1) + 1) as (figure, axes):
        height = 0.84 / len(series)
        for index, (name, values) in enumerate(series.items()):
            positions = [group + (index - (len(series) - 1) / 2) * height for group in range(len(groups))]
            means = [100 * statistics.fmean(seeds) for seeds in values]
            ranges = [[100 * min(seeds), 100 * max(seeds)] for seeds in values]
            color = PALETTE[index % len(PALETTE)]
            axes.barh(positions, means, height * 0.94, color=color, label=name)
            for y, value, (low, high) in zip(positions, means, ranges, strict=True):
                axes.plot([low, high], [y, y], color=INK, linewidth=1.2)
                axes.text(max(value, high) + 1.5, y, f"{value:.0f}", fontsize=8, va="center")
        axes.set_yticks(range(len(groups)), groups)
        axes.invert_yaxis()
        axes.set_xlim(0, 108)
        axes.set_xlabel(f"{label} (%)")
        axes.legend(ncols=2, loc="lower center", bbox_to_anchor=(0.4, 1.0), fontsize=8)
        return for_page(to_svg(figure), "bars")
