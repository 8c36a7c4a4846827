"""Writes the tables of results on docs pages from the kept results; a test checks that the pages are up to date.

`python -m tools.result_tables` rewrites what stands between these comments on any page under `docs/` and in the README:

| comment | up to | shows |
| --- | --- | --- |
| `<!-- results: demo.jsonl -->` | `<!-- end results -->` | one file of results |
| `<!-- study: table3 -->` | `<!-- end study -->` | a study, ours beside the paper's, with tests and figures |
| `<!-- study: table3 short -->` | `<!-- end study -->` | the same at another scale than the paper's |
| `<!-- averages -->` | `<!-- end averages -->` | averages of all suites by norm, and the best recipes' |
| `<!-- glance -->` | `<!-- end glance -->` | a line for each study: its main comparison, its best row, n |
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
from asrnorm.reporting.markdown import comparisons, escape, legend, overview
from asrnorm.reporting.sheet import Sheet, SheetTest, build_sheet
from asrnorm.reporting.text import MINUS, format_range, format_signed
from asrnorm.studies import Collected, Study, collect, get_study, list_studies
from asrnorm.studies.store import find_results
from tools.remaining_runs import render_remaining

_SCALES: tuple[Scale, ...] = ("paper", "short")
_STUDY = re.compile(r"(<!-- study: (\S+)(?: (\S+))? -->\n).*?(<!-- end study -->)", re.DOTALL)
_AVERAGES = re.compile(r"(<!-- averages -->\n).*?(<!-- end averages -->)", re.DOTALL)
_GLANCE = re.compile(r"(<!-- glance -->\n).*?(<!-- end glance -->)", re.DOTALL)
_REMAINING = re.compile(r"(<!-- remaining -->\n).*?(<!-- end remaining -->)", re.DOTALL)
_MAIN_COLUMNS = ("Avg.", "Unseen", "15 types", "Score")  # the first that a study has sums it up
_BLOCK = re.compile(r"(<!-- results: (\S+) -->\n).*?(<!-- end results -->)", re.DOTALL)
# The table of averages: what is trained, its study, rows of BN, IN and ASR-Norm, scales.
_BEST_ROWS = ("BN", "IN", "ASR-Norm")
_ROWS: tuple[tuple[str, str, tuple[str, str, str], tuple[Scale, ...]], ...] = (
    ("PACS, ERM", "pacs-stated", ("ERM", "ERM + IN", "ERM + ASR-Norm"), ("paper",)),
    ("PACS, RSC", "pacs-stated", ("RSC", "RSC + IN", "RSC + ASR-Norm"), ("paper",)),
    ("**PACS, best recipe**", "pacs-best", _BEST_ROWS, ("paper",)),
    ("CIFAR-10-C, ERM", "cifar-erm", ("ERM + BN", "ERM + IN", "ERM + ASR-Norm"), _SCALES),
    ("CIFAR-10-C, ADA", "table5", ("ADA + BN", "ADA + IN", "ADA + ASR-Norm"), ("paper",)),
    ("**CIFAR-10-C, best recipe**", "cifar-best", _BEST_ROWS, ("paper",)),
    ("Digits, RSDA", "table9", ("RSDA + BN", "RSDA + IN", "RSDA + ASR-Norm"), _SCALES),
    ("**Digits, best recipe**", "digits-best", _BEST_ROWS, ("paper",)),
)
_PER_SCALE = {"paper": "", "short": ", a fifth of the steps"}


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
        Accuracy in %, mean ± standard deviation (n - 1); 9 steps, selection `last`; commit abc.
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
    scales = _joined(everything, "scale")
    facts = [*([f"{scales} scale"] if scales != "paper" else []), f"{_joined(everything, 'steps')} steps"]
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
    signs, *rest = legend(sheet, with_tests=True).split("\n\n")
    counts = len({cell.n for cell in found.cells.values()}) > 1
    parts = [describe_result(sheet), overview(sheet, counts=counts), signs]
    if page is not None:
        from tools.result_figures import show_figures  # needs NumPy, which the environment of `make docs` lacks

        parts += show_figures(found, scale, folder, page)
    rest += [link_sources(found, folder, page)] if page is not None and found.cells else []
    rest += [f"**Warning:** {text}." for text in found.warnings]
    parts.append(fold("Where these numbers come from", "\n\n".join(filter(None, rest))))
    if found.tests:
        parts.append(fold("Tests of these differences", comparisons(sheet)))
    text = "\n\n".join(filter(None, parts))
    if scale == "paper":
        return text
    is_alone = not _collect_kept(name, folder, "paper").cells
    return fold(f"At {scale} scale, with less training", text, is_open=is_alone)


def fold(summary: str, body: str, *, is_open: bool = False) -> str:
    """Return Markdown that the reader unfolds; it works on the code host and on the site.

    Example:
        >>> print(fold("More", "Text."))
        <details markdown="1">
        <summary>More</summary>
        <BLANKLINE>
        Text.
        <BLANKLINE>
        </details>
    """
    state = " open" * is_open
    return f'<details markdown="1"{state}>\n<summary>{summary}</summary>\n\n{body}\n\n</details>' if body else ""


def describe_result(sheet: Sheet) -> str:
    """Return what a study's main column says in two sentences; "" where no comparison or best row is known.

    The first sentence is on the study's first comparison, the second on instance norm, if it is compared with, or else
    on the best row.
    """
    column = find_main_column(sheet.columns)
    tests = [test for test in sheet.tests if test.result.column == column]
    lines = [_describe_test(sheet, test) for test in tests[:1]]
    lines += [_describe_test(sheet, test) for test in tests[1:] if "IN" in re.split(r"\W+", test.result.against)][:1]
    best = [cell for key, cell in sheet.cells.items() if key[1] == column and cell.best]
    if len(lines) < 2 and best:
        names = " and ".join(escape(cell.row.label) for cell in best)
        lines.append(f"Best of our rows: {names}, {best[0].ours} {_say_column(column)}.")
    return " ".join(lines)


def _describe_test(sheet: Sheet, test: SheetTest) -> str:
    result = test.result
    row, other = (sheet.cells[label, result.column] for label in (result.row, result.against))
    p = f"p {'' if '<' in test.texts['pooled'] else '= '}{test.texts['pooled']}, " if result.pooled is not None else ""
    quantity = {"brier": "Brier score ", "ece": "calibration error "}.get(row.row.cells[result.column].measure.quantity)
    text = f"**{escape(result.row)}: {quantity or ''}{row.ours}** {_say_column(result.column)}, "
    count = f"{result.n} each" if result.n == result.n_against else f"{result.n} and {result.n_against}"
    text += f"{_say_gap(test.texts['difference'])} {escape(result.against)} ({p}n = {count})"
    if row.printed and other.printed:
        gap = format_signed(row.printed.value - other.printed.value, row.decimals)
        text += f"; in the paper {row.paper}, {_say_gap(gap)}"
    return f"{text}."


def _say_column(name: str) -> str:
    return {"Avg.": "on average", "Unseen": "on unseen domains"}.get(name, f"({escape(name)})")


def _say_gap(difference: str) -> str:
    """Return a difference with its sign in words.

    Example:
        >>> _say_gap("+1.8"), _say_gap("\N{MINUS SIGN}0.3"), _say_gap("0.0")
        ('1.8 above', '0.3 below', 'level with')
    """
    if float(difference.replace(MINUS, "-")) == 0:
        return "level with"
    return f"{difference[1:]} {'below' if difference.startswith(MINUS) else 'above'}"


def find_main_column(columns: Sequence[str]) -> str:
    """Return the column that sums a study up.

    Example:
        >>> find_main_column(["SVHN", "USPS", "Avg."]), find_main_column(["Source", "Shifted"])
        ('Avg.', 'Source')
    """
    return next((column for column in _MAIN_COLUMNS if column in columns), columns[0])


def render_averages(folder: Path, page: Path | None = None) -> str:
    """Return averages over unseen domains by norm, ours and the paper's; what has not been run is marked open.

    Args:
        folder: of the kept results.
        page: the file that shows it, from which links start; without it there are none.
    """
    lines = ["| | BatchNorm | instance norm | ASR-Norm |", "| --- | ---: | ---: | ---: |"]
    for label, name, rows, scales in _ROWS:
        link = f"[{label}]({_relate(folder.parent / 'docs' / 'studies' / f'{name}.md', page)})" if page else label
        for scale in scales:
            sheet = build_sheet(_collect_kept(name, folder, scale))
            cells = [_average(sheet, row) for row in rows]
            lines.append(f"| {link}{_PER_SCALE[scale]} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _average(sheet: Sheet, row: str) -> str:
    """Return mean, deviation and n of a row's average, and the paper's in brackets where the scale is its own.

    A row whose settings were found on the targets has a dagger.
    """
    cell = sheet.cells[row, "Avg." if "Avg." in sheet.columns else "15 types"]
    mark = " †" if cell.row.found_on_targets else ""
    ours = f"{cell.ours}, n {cell.measured.n}{mark}" if cell.measured else "*open*"
    return f"{ours}<br>({cell.paper})" if cell.paper and sheet.collected.scale == "paper" else ours


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


def render_glance(folder: Path, names: Sequence[str] | None = None) -> str:
    """Return tables of studies: main row, what it is compared with, best row and n, at the larger scale with results.

    Args:
        folder: of the kept results.
        names: of the studies; all that have rows by default.

    Example:
        >>> print(render_glance(Path("nowhere"), ["table5"]))
        ### Tables of the paper
        <BLANKLINE>
        | study | main row | compared with | our best | rows with results |
        | --- | --- | --- | --- | --- |
        | [Table 5: CIFAR-10-C, norms](table5.md) | ADA + ASR-Norm (86.0) | ADA + BN (75.7) | | none of 9 |
    """
    nowhere = folder / "no-runs"
    store = find_results(nowhere, folder)
    lines: dict[str, list[str]] = {}
    for name in list_studies() if names is None else names:
        study = get_study(name)
        run = {row.label for row in study.rows if any(cell.runs for cell in row.cells.values())}
        if run:
            at_scales = [collect(study, runs=nowhere, scale=scale, store=store) for scale in _SCALES]
            found = next((one for one in at_scales if one.cells or one.diverged), at_scales[0])
            cells = [f"[{escape(title_of(study))}]({name}.md)", *_glance(found), _count_rows(found, len(run))]
            group = {"T": "Tables of the paper", "F": "Figures of the paper"}.get(number_of(name)[:1], "Our studies")
            lines.setdefault(group, []).append("|".join(f" {cell} " if cell else " " for cell in cells))
    head = "| study | main row | compared with | our best | rows with results |\n| --- | --- | --- | --- | --- |"
    return "\n\n".join("\n".join([f"### {group}\n\n{head}", *(f"|{one}|" for one in lines[group])]) for group in lines)


def title_of(study: Study) -> str:
    """Return the title of a study's page and menu entry, with the paper's number where it has one."""
    number = number_of(study.name)
    return f"{number}: {study.title}" if number.startswith("Table") else study.title


def number_of(name: str) -> str:
    """Return what the paper calls a study; "" where the paper does not have it.

    Example:
        >>> number_of("table3"), number_of("fig-tsne"), number_of("table3-chosen"), number_of("pacs-best")
        ('Table 3', 'Figure', '', '')
    """
    if re.fullmatch(r"table\d+", name):
        return f"Table {name.removeprefix('table')}"
    return "Figure" if name.startswith("fig-") else ""


def _glance(found: Collected) -> list[str]:
    """Return the main row, the row it is compared with and the best row of a study, each with its number."""
    sheet = _build_sheet(found)
    column = find_main_column(sheet.columns)

    def show(label: str) -> str:
        cell = sheet.cells[label, column]
        numbers = [cell.ours or (cell.placeholder if found.cells else ""), f"({cell.paper})" if cell.paper else ""]
        name = escape(label) if column in ("Avg.", "Unseen") else f"{escape(label)}, {escape(column)}"
        return " ".join(filter(None, [name, *numbers]))

    pairs = [(pair.row, pair.against) for pair in found.study.comparisons]
    measured = (pair for pair in pairs if all((label, column) in found.cells for label in pair))
    pair = next(measured, pairs[0] if pairs else ())
    best = [key[0] for key, cell in sheet.cells.items() if key[1] == column and cell.best]
    return [*(map(show, pair) if pair else ("", "")), "; ".join(map(show, best))]


def _count_rows(found: Collected, run: int) -> str:
    """Say "all 7, n 5" or "3 of 7, n 1 to 2, short", or "none of 7"."""
    done = {row for row, _ in (*found.cells, *found.diverged)}
    if not done:
        return f"none of {run}"
    counts = [cell.n for cell in found.cells.values()] + [len(seeds) for seeds in found.diverged.values()]
    scale = "" if found.scale == "paper" else f", {found.scale} scale"
    return f"{f'all {run}' if len(done) == run else f'{len(done)} of {run}'}, n {format_range(counts)}{scale}"


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

    def averages(match: re.Match[str]) -> str:
        return f"{match.group(1)}{render_averages(folder, page)}\n{match.group(2)}"

    def glance(match: re.Match[str]) -> str:
        return f"{match.group(1)}{render_glance(folder)}\n{match.group(2)}"

    def remaining(match: re.Match[str]) -> str:
        return f"{match.group(1)}{render_remaining(folder)}\n{match.group(2)}"

    blocks = (_BLOCK, block), (_STUDY, study)
    for pattern, write in (*blocks, (_AVERAGES, averages), (_GLANCE, glance), (_REMAINING, remaining)):
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
