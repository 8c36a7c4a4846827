"""Which studies have results, and over how many seeds: a table for the docs."""

from collections.abc import Sequence
from pathlib import Path

from asrnorm.core.config import Scale
from asrnorm.studies import Collected, collect, get_study, list_studies
from asrnorm.studies.store import find_results

_SCALES: tuple[Scale, ...] = ("paper", "short")


def render_progress(folder: Path, names: Sequence[str] | None = None) -> str:
    """Return a table of studies by scale: how many of the rows that are run have a number, and over how many seeds.

    Args:
        folder: of the kept results.
        names: of the studies; all that have rows by default.

    Example:
        >>> print(render_progress(Path("nowhere"), ["table5"]))
        | study | rows that are run | at the paper's scale | short |
        | --- | ---: | --- | --- |
        | [`table5`](studies/table5.md) | 9 | none | none |
    """
    nowhere = folder / "no-runs"
    store = find_results(nowhere, folder)
    lines = ["| study | rows that are run | at the paper's scale | short |", "| --- | ---: | --- | --- |"]
    for name in list_studies() if names is None else names:
        study = get_study(name)
        run = {row.label for row in study.rows if any(cell.runs for cell in row.cells.values())}
        if run:
            parts = (collect(study, runs=nowhere, scale=scale, store=store) for scale in _SCALES)
            words = " | ".join(_describe(found, len(run)) for found in parts)
            lines.append(f"| [`{name}`](studies/{name}.md) | {len(run)} | {words} |")
    return "\n".join(lines)


def _describe(found: Collected, run: int) -> str:
    """Say "all, n 5" or "3 of them, n 1 to 2", or "none"."""
    done = {row for row, _ in (*found.cells, *found.diverged)}
    if not done:
        return "none"
    counts = [cell.n for cell in found.cells.values()] + [len(seeds) for seeds in found.diverged.values()]
    seeds = str(min(counts)) if min(counts) == max(counts) else f"{min(counts)} to {max(counts)}"
    return f"{'all' if len(done) == run else f'{len(done)} of them'}, n {seeds}"
