"""Draws the figures of results on docs pages from the kept results: `python -m tools.result_figures`.

A figure carries a hash of all that it was drawn from. A test compares it with the hash of the results that are kept
now, instead of drawing again: another matplotlib gives other bytes.
"""

import hashlib
import json
import os
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module
from itertools import product
from pathlib import Path
from typing import Any

from asrnorm.core.config import Scale
from asrnorm.core.files import write_whole
from asrnorm.core.results import to_plain
from asrnorm.reporting.figures import FIGURES, NothingToDrawError
from asrnorm.reporting.figures.base import INK, PALETTE, diverged_folders, records_of, to_svg
from asrnorm.reporting.text import format_seeds
from asrnorm.studies import Collected, Study, collect, get_study, list_studies
from asrnorm.studies.plan import iterate_specs
from asrnorm.studies.store import find_details

# Colors that are legible on white and on black, for those that are not.
ANY_BACKGROUND = {INK: "#808080", "#6b6b6b": "#808080", PALETTE[0].lower(): "#2c88c8"}
SCALES: tuple[Scale, ...] = ("paper", "short")  # those that pages show results of
FOLDER = Path("docs", "assets", "studies")  # from the root of the source tree
_SEED = re.compile(r"--s(\d+)--")  # in the name of a run
_DPI = 144  # of what is rasterized
_MOST_DOTS = 100  # of one kind; more are rasterized, since as text they would take hundreds of kilobytes


def draw(name: str, kept: Path, out: Path) -> list[Path]:
    """Draw the figures of a study, for each scale of which results are kept, and return the files.

    The file of a figure that can no longer be drawn is removed.

    Args:
        name: of the study.
        kept: the folder of kept results.
        out: the folder of figures.

    Raises:
        MissingDependencyError: a figure needs matplotlib or scikit-learn.
        StorageError: a file cannot be written.
    """
    study = get_study(name)
    paths = []
    for scale, figure_name in product(SCALES, study.figures):
        path = out / file_name(name, figure_name, scale)
        found = collect_kept(study, kept, scale)
        figure = try_figure(figure_name, found)
        if figure is None:
            path.unlink(missing_ok=True)
            continue
        svg = for_image(to_svg(rasterize_dots(figure), dpi=_DPI))
        write_whole(path, f"<!-- drawn from {fingerprint(found)} -->\n{svg}\n")
        paths.append(path)
    return paths


def try_figure(name: str, found: Collected) -> Any | None:
    """Return a figure, or `None` if the kept results do not suffice for it."""
    if not found.cells and not found.diverged:
        return None  # the paper's numbers alone are no result
    try:
        return FIGURES[name](found, FOLDER)
    except NothingToDrawError:
        return None


def collect_kept(study: Study, kept: Path, scale: Scale = "paper") -> Collected:
    """Return what is kept of a study at a scale.

    Where a figure is drawn from details of runs, such as curves, all seeds that details are kept of count: a run whose
    result was kept before any figure asked for its curves has none.
    """
    seeds = set(range(study.seeds))
    if _needs_details(study):
        seeds |= {int(match.group(1)) for path in find_details(kept).values() if (match := _SEED.search(path.name))}
    return collect(study, runs=kept / "no-runs", kept=kept, scale=scale, seeds=sorted(seeds))


def _needs_details(study: Study) -> bool:
    return study.needs_logs or any(spec.analyses for spec in iterate_specs(study))


def fingerprint(found: Collected) -> str:
    """Return twelve hex digits over all that a figure of a study may show: rows, printed numbers, results, details."""
    facts: list[Any] = [row.label for row in found.study.rows]
    facts += [[*place, number.value, number.deviation] for place, number in sorted(found.printed.items())]
    records = {record.result.config_hash: record for row in found.study.rows for record in records_of(found, row)}
    facts += [to_plain(replace(records[identity].result, origin={})) for identity in sorted(records)]
    folders = {record.folder for record in records.values() if record.folder is not None}
    folders |= {folder for row in found.study.rows for folder in diverged_folders(found, row)}
    for path in sorted(file for folder in folders for file in folder.rglob("*") if file.is_file()):
        facts.append([path.parent.name, path.name, hashlib.sha256(path.read_bytes()).hexdigest()])
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:12]


def file_name(study: str, figure: str, scale: Scale = "paper") -> str:
    """Return the name of a picture.

    Example:
        >>> file_name("fig-lambda-pacs", "lambdas"), file_name("fig-levels", "levels", "short")
        ('fig-lambda-pacs--lambdas.svg', 'fig-levels--levels--short.svg')
    """
    return f"{study}--{figure}{'' if scale == 'paper' else f'--{scale}'}.svg"


def show_figures(found: Collected, scale: Scale, kept: Path, page: Path) -> Iterator[str]:
    """Yield the figures of a study as Markdown for a page: each that exists, and what it shows.

    Args:
        found: what the table on that page is of.
        scale: of its runs.
        kept: the folder of kept results, in the source tree whose figures are shown.
        page: the file that links to them.
    """
    study = found.study
    for figure in study.figures:
        path = kept.parent / FOLDER / file_name(study.name, figure, scale)
        if path.is_file():
            link = Path(os.path.relpath(path, page.parent)).as_posix()
            yield f"![{study.title}]({link})"
            yield f"*{FIGURES.summary(figure)}{_tell_seeds(found, scale, kept)}*"


def _tell_seeds(found: Collected, scale: Scale, kept: Path) -> str:
    """Say where a figure may be of other seeds than the table."""
    if not _needs_details(found.study):
        return ""
    table = {seed for cell in found.cells.values() for seed in cell.seeds}
    drawn = collect_kept(found.study, kept, scale)
    records = [record for row in found.study.rows for record in records_of(drawn, row)]
    if {record.seed for record in records if record.folder is not None} == table:
        return ""
    return f" The figure shows the seeds named in it; the table shows {format_seeds(table)}."


def rasterize_dots(figure: Any) -> Any:
    """Rasterize the dots of a figure that has hundreds of them, in the colors of images, and return the figure."""
    to_hex = import_module("matplotlib.colors").to_hex
    for dots in figure.findobj(import_module("matplotlib.collections").PathCollection):
        if len(dots.get_offsets()) > _MOST_DOTS:
            color = to_hex(dots.get_facecolor()[0])
            dots.set_facecolor(ANY_BACKGROUND.get(color, color))
            dots.set_rasterized(True)
    return figure


def for_image(svg: str) -> str:
    """Return an SVG for a file shown by `<img>`, which cannot use the page's colors: legible on white and black.

    Coordinates are rounded to a hundredth of a point.
    """
    for color, other in ANY_BACKGROUND.items():
        svg = svg.replace(color, other)
    coordinates = re.compile(r'(?<= )(?:d|x|y)="[^"]*"')
    return coordinates.sub(lambda match: re.sub(r"(\.\d\d)\d+", r"\1", match.group()), svg)


def main(root: Path) -> int:
    """Draw all figures of a source tree, remove those of studies that are gone, and return how many there are."""
    out = root / FOLDER
    paths = [path for name in list_studies() for path in draw(name, root / "results", out)]
    for old in set(out.glob("*.svg")) - set(paths):
        old.unlink()
    return len(paths)


if __name__ == "__main__":
    sys.stdout.write(f"{main(Path(sys.argv[1] if len(sys.argv) > 1 else '.'))} figures drawn\n")
