"""Writes the tables of results on docs pages from the kept results; a test checks that the pages are up to date.

`python -m tools.result_tables` rewrites what stands between these comments on any page under `docs/` and in the README:

| comment | up to | shows |
| --- | --- | --- |
| `<!-- results: demo.jsonl -->` | `<!-- end results -->` | one file of results |
| `<!-- study: table3 -->` | `<!-- end study -->` | a study, ours beside the paper's, with tests and figures |
| `<!-- study: table3 short -->` | `<!-- end study -->` | the same at another scale than the paper's |
| `<!-- overview: table3 -->` | `<!-- end overview -->` | the table of a study alone |
| `<!-- progress -->` | `<!-- end progress -->` | which studies have results |
| `<!-- remaining -->` | `<!-- end remaining -->` | which runs are missing, and what they take |
"""

import json
import os
import re
import statistics
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast, get_args

from asrnorm.core.config import Scale
from asrnorm.core.errors import UnknownNameError, describe_unknown
from asrnorm.reporting.markdown import comparisons, legend, overview
from asrnorm.reporting.sheet import Sheet, build_sheet
from asrnorm.studies import Collected, collect, get_study, list_studies
from asrnorm.studies.store import find_results
from tools.remaining_runs import render_remaining

_SCALES: tuple[Scale, ...] = ("paper", "short")
_STUDY = re.compile(r"(<!-- study: (\S+)(?: (\S+))? -->\n).*?(<!-- end study -->)", re.DOTALL)
_OVERVIEW = re.compile(r"(<!-- overview: (\S+) -->\n).*?(<!-- end overview -->)", re.DOTALL)
_PROGRESS = re.compile(r"(<!-- progress -->\n).*?(<!-- end progress -->)", re.DOTALL)
_REMAINING = re.compile(r"(<!-- remaining -->\n).*?(<!-- end remaining -->)", re.DOTALL)
_BLOCK = re.compile(r"(<!-- results: (\S+) -->\n).*?(<!-- end results -->)", re.DOTALL)


def render(results: Iterable[dict[str, Any]]) -> str:
    """Return mean and deviation (n - 1) of the accuracy on every domain, a row for each recipe and scale.

    Example:
        >>> domain = {"name": "uci", "accuracy": 0.5}
        >>> common = {"recipe": "x", "scale": "paper", "selection": "last", "commit": "abc", "steps": 9}
        >>> result = {**common, "source": {"name": "mnist", "accuracy": 0.9}, "domains": [domain]}
        >>> result["average_accuracy"] = 0.5
        >>> print(render([result, result]))
        | recipe | n | mnist (source) | uci | unseen, average |
        | --- | ---: | ---: | ---: | ---: |
        | `x` | 2 | 90.0 ± 0.0 | 50.0 ± 0.0 | 50.0 ± 0.0 |
        <BLANKLINE>
        Accuracy in %, mean ± standard deviation (n - 1); paper scale, 9 steps, selection `last`; commit abc.
    """
    rows: dict[str, list[dict[str, Any]]] = {}
    everything = list(results)
    for result in everything:
        rows.setdefault(result["recipe"], []).append(result)
    first = everything[0]
    names = [f"{first['source']['name']} (source)", *(domain["name"] for domain in first["domains"]), "unseen, average"]
    lines = ["| recipe | n | " + " | ".join(names) + " |", "| --- |" + " ---: |" * (len(names) + 1)]
    for recipe, runs in rows.items():
        columns = zip(*(_accuracies(run) for run in runs), strict=True)
        lines.append(f"| `{recipe}` | {len(runs)} | " + " | ".join(map(_mean, columns)) + " |")
    facts = [f"{_joined(everything, 'scale')} scale", f"{_joined(everything, 'steps')} steps"]
    commits = _joined(everything, "commit", 12)
    lines += [
        "",
        f"Accuracy in %, mean ± standard deviation (n - 1); {', '.join(facts)}, selection "
        f"`{_joined(everything, 'selection')}`; commit{'s' * (', ' in commits)} {commits}.",
    ]
    return "\n".join(lines)


def _accuracies(result: dict[str, Any]) -> list[float]:
    return [result["source"]["accuracy"], *(d["accuracy"] for d in result["domains"]), result["average_accuracy"]]


def _mean(values: tuple[float, ...]) -> str:
    spread = f" ± {100 * statistics.stdev(values):.1f}" if len(values) > 1 else ""
    return f"{100 * statistics.mean(values):.1f}{spread}"


def _joined(results: list[dict[str, Any]], key: str, most: int | None = None) -> str:
    return ", ".join(dict.fromkeys(str(result[key])[:most] for result in results))


def render_study(name: str, folder: Path, scale: str = "paper", page: Path | None = None) -> str:
    """Return a study from kept results alone: the table, the paper's numbers in brackets, the tests with n and p.

    Without kept results, the text says so at the paper's scale and is empty at others.

    Args:
        name: of the study.
        folder: of the kept results.
        scale: of the runs.
        page: the file that shows it, from which links to sources and figures start; without it there are none.
    """
    if scale not in get_args(Scale):
        raise UnknownNameError(describe_unknown("scale", scale, get_args(Scale)))
    scale = cast(Scale, scale)
    found = _collect_kept(name, folder, scale)
    if not found.cells and not found.diverged:
        asked = f"`asrnorm reproduce {name}`, then `asrnorm report {name} --keep`"
        return f"No results are kept at the paper's scale yet; run {asked}." if scale == "paper" else ""
    sheet = _build_sheet(found)
    parts = [] if scale == "paper" else [f"### At {scale} scale"]
    parts += [overview(sheet, counts=True), legend(sheet, with_tests=True)]
    parts += [link_sources(found, folder, page)] if page is not None and found.cells else []
    parts += [f"**Warning:** {text}." for text in found.warnings]
    if page is not None:
        from tools.result_figures import show_figures  # needs NumPy, which the environment of `make docs` lacks

        parts += show_figures(found, scale, folder, page)
    if found.tests:
        parts.append(comparisons(sheet))
    return "\n\n".join(parts)


def render_overview(name: str, folder: Path, page: Path | None = None) -> str:
    """Return a study's table at the paper's scale and where its numbers come from, without the rows that lack ours.

    Args:
        name: of the study.
        folder: of the kept results.
        page: the file that shows it, from which links start; without it there are none.
    """
    found = _collect_kept(name, folder, "paper")
    measured = {label for label, _ in found.cells}
    sheet = _build_sheet(found)
    cells = {key: cell for key, cell in sheet.cells.items() if cell.row.label in measured}
    sheet = replace(sheet, rows=tuple(row for row in sheet.rows if row.label in measured), cells=cells)
    # If all cells have the same number of seeds, the line on provenance says it.
    counts = len({cell.n for cell in found.cells.values()}) > 1
    links = f"\n\n{link_sources(found, folder, page)}" if page is not None and found.cells else ""
    return f"{overview(sheet, counts=counts)}\n\n{legend(sheet)}{links}"


def _collect_kept(name: str, folder: Path, scale: Scale) -> Collected:
    # A folder that does not exist: the docs show kept results alone, not what is in `runs/`.
    return collect(get_study(name), runs=folder / "no-runs", kept=folder, scale=scale)


def _build_sheet(found: Collected) -> Sheet:
    """Return the sheet without the study's own notes, which are on its page already."""
    sheet = build_sheet(found)
    return replace(sheet, notes=tuple(note for note in sheet.notes if note not in found.study.footnotes))


def link_sources(collected: Collected, kept: Path, page: Path) -> str:
    """Return Markdown links from a docs page to the recipes and to the files that hold the results.

    Args:
        collected: a study from kept results alone.
        kept: the folder of kept results, in the source tree.
        page: the file with the links.
    """
    hashes = {f'"{record.result.config_hash}"' for cell in collected.cells.values() for record in cell.records}
    texts = {path: path.read_text(encoding="utf-8") for path in sorted(kept.glob("*.jsonl"))}
    files = [path for path, text in texts.items() if any(identity in text for identity in hashes)]
    if not files:
        return ""
    results = ", ".join(f"[`{path.name}`]({_relate(path, page)})" for path in files)
    return f"Settings: [recipes]({_relate(kept.parent / 'docs' / 'recipes.md', page)}). Results: {results}."


def _relate(path: Path, page: Path) -> str:
    return Path(os.path.relpath(path, page.parent)).as_posix()


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


def rewrite(text: str, folder: Path, page: Path | None = None) -> str:
    """Return the text of a page with every table rewritten from the kept results.

    Args:
        text: of the page.
        folder: of the kept results.
        page: its file, from which links start.
    """

    def block(match: re.Match[str]) -> str:
        lines = (folder / match.group(2)).read_text(encoding="utf-8").splitlines()
        return f"{match.group(1)}{render([json.loads(line) for line in lines])}\n{match.group(3)}"

    def study(match: re.Match[str]) -> str:
        body = render_study(match.group(2), folder, match.group(3) or "paper", page)
        return f"{match.group(1)}{body}{chr(10) if body else ''}{match.group(4)}"

    def table(match: re.Match[str]) -> str:
        return f"{match.group(1)}{render_overview(match.group(2), folder, page)}\n{match.group(3)}"

    def progress(match: re.Match[str]) -> str:
        return f"{match.group(1)}{render_progress(folder)}\n{match.group(2)}"

    def remaining(match: re.Match[str]) -> str:
        return f"{match.group(1)}{render_remaining(folder)}\n{match.group(2)}"

    parts = ((_BLOCK, block), (_STUDY, study), (_OVERVIEW, table), (_PROGRESS, progress), (_REMAINING, remaining))
    for pattern, write in parts:
        text = pattern.sub(write, text)
    return text


def main(root: Path) -> int:
    """Rewrite the pages of a source tree; return how many changed."""
    changed = 0
    for page in sorted([*root.glob("docs/**/*.md"), root / "README.md"]):
        text = page.read_text()
        new = rewrite(text, root / "results", page)
        if new != text:
            page.write_text(new)
            changed += 1
    return changed


if __name__ == "__main__":
    sys.stdout.write(f"{main(Path(sys.argv[1] if len(sys.argv) > 1 else '.'))} pages changed\n")
