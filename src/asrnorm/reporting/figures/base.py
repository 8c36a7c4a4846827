"""The registry of figures, and what they share: a look for each row, the paper's numbers apart from ours."""

from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from asrnorm.core.config import content_hash, run_name
from asrnorm.core.errors import AsrnormError
from asrnorm.core.registry import Registry
from asrnorm.reporting.figure import MARKERS, PALETTE
from asrnorm.studies import Row
from asrnorm.studies.collect import Collected, RunRecord

# From what was collected and the folder of the report, which only `samples` looks into, to a matplotlib figure.
FIGURES: Registry[Callable[[Collected, Path], Any]] = Registry("figure")
# The paper's numbers everywhere: hollow markers on a dashed line.
PAPER_LINE: dict[str, Any] = {"linestyle": (0, (3, 2)), "linewidth": 1.0, "markerfacecolor": "none", "alpha": 0.9}


class NothingToDrawError(AsrnormError):
    """A figure whose numbers are not there yet; the line says which."""


def look(index: int) -> tuple[str, str]:
    """Return color and marker of a row, a pair that does not come again before the fiftieth.

    Example:
        >>> look(0), look(7)
        (('#0072B2', 'o'), ('#0072B2', 's'))
    """
    return PALETTE[index % len(PALETTE)], MARKERS[(index + index // len(PALETTE)) % len(MARKERS)]


def records_of(collected: Collected, row: Row) -> Iterator[RunRecord]:
    """Yield the runs behind a row, each once."""
    seen = set()
    for column in row.cells:
        measured = collected.cells.get((row.label, column))
        for record in measured.records if measured else ():
            if record.config_hash not in seen:
                seen.add(record.config_hash)
                yield record


def diverged_folders(collected: Collected, row: Row) -> Iterator[Path]:
    """Yield the folders of the runs of a row that broke, or of what is kept of them."""
    for column, cell in row.cells.items():
        for seed in collected.diverged.get((row.label, column), ()):
            for spec in cell.runs:
                config = spec.config(seed, collected.scale)  # type: ignore[arg-type]
                here = collected.runs / run_name(config) if collected.runs else None
                kept = collected.details.get(content_hash(config))
                if folder := here if here and here.is_dir() else kept:
                    yield folder


def legend_beside(figure: Any, handles: list[Any], marker_scale: float = 1.0) -> None:
    """Put the legend right of the axes, where it covers nothing."""
    labels = [handle.get_label() for handle in handles]
    figure.legend(handles, labels, loc="outside right upper", fontsize=9, markerscale=marker_scale)


def origin_handles(ours: bool = True, paper: bool = True) -> list[Any]:
    """Return the entries of a legend that tell our numbers from the paper's."""
    line = import_module("matplotlib.lines").Line2D
    gray = "#6b6b6b"
    handles = []
    if ours:
        handles.append(line([], [], color=gray, marker="o", markersize=5, label="ours"))
    if paper:
        handles.append(line([], [], color=gray, marker="o", markersize=5, label="paper", **PAPER_LINE))
    return handles
