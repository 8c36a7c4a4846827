"""Accuracy by type of corruption, in the four groups of Hendrycks and Dietterich: a dot plot."""

from collections.abc import Iterable
from pathlib import Path
from statistics import mean
from typing import Any

from asrnorm.core.results import RunResult
from asrnorm.reporting.figure import canvas
from asrnorm.reporting.figures.base import FIGURES, NothingToDrawError, legend_beside, look, records_of
from asrnorm.studies import Study
from asrnorm.studies.collect import Collected


@FIGURES.register("corruptions")
def corruptions(collected: Collected, _out: Path) -> Any:
    """One dot per row and type of corruption, the mean over levels and seeds; the mean of each group is above it."""
    scores = {row.label: by_type(r.result for r in records_of(collected, row)) for row in collected.study.rows}
    scores = {label: values for label, values in scores.items() if values}
    if not scores:
        raise NothingToDrawError("no run on CIFAR-10-C is finished")
    groups = _find_groups(collected.study)
    lines = [(group, name) for group, names in groups.items() for name in (None, *names)]
    with canvas(8.2, 0.27 * len(lines) + 1.0) as (figure, axes):
        handles = []
        for index, (label, values) in enumerate(scores.items()):
            color, marker = look(index)
            shift = (index - (len(scores) - 1) / 2) * 0.5 / len(scores)
            places, dots = [], []
            for place, (group, name) in enumerate(lines):
                names = groups[group] if name is None else (name,)
                found = [values[one] for one in names if one in values]
                if found:
                    places.append(place + shift)
                    dots.append(100 * mean(found))
            handles.append(
                axes.plot(dots, places, color=color, marker=marker, markersize=5.5, linestyle="", label=label)[0]
            )
        axes.set_yticks(range(len(lines)), [name.replace("_", " ") if name else group for group, name in lines])
        for tick, (_, name) in zip(axes.get_yticklabels(), lines, strict=True):
            tick.set_fontweight("normal" if name else "bold")
        for place, (_, name) in enumerate(lines):
            if name is None:
                axes.axhspan(place - 0.5, place + 0.5, color="#8C8C8C", alpha=0.16, linewidth=0)
            axes.axhline(place + 0.5, color="#8C8C8C", linewidth=0.5, alpha=0.3)
        axes.set_ylim(len(lines) - 0.5, -0.5)
        axes.set_xlabel("accuracy (%), mean over levels and seeds; shaded lines are the means of the groups")
        axes.grid(axis="x")
        axes.tick_params(axis="y", length=0)
        legend_beside(figure, handles)
        return figure


def _find_groups(study: Study) -> dict[str, tuple[str, ...]]:
    """Return the types of corruption in each column that averages over several."""
    domains = {column: cell.measure.domains for column, cell in study.rows[0].cells.items()}
    return {
        column: tuple(name.removesuffix("/*") for name in names) for column, names in domains.items() if len(names) > 1
    }


def by_type(results: Iterable[RunResult]) -> dict[str, float]:
    """Return the mean accuracy of each type of corruption over levels and runs."""
    found: dict[str, list[float]] = {}
    for result in results:
        for domain in result.domains:
            name, slash, _ = domain.name.partition("/")
            if slash:
                found.setdefault(name, []).append(domain.accuracy)
    return {name: mean(values) for name, values in found.items()}
