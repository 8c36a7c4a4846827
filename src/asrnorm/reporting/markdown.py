"""A study as Markdown: the table in the paper's layout, every cell on a line, and the comparisons of rows."""

import re
from collections.abc import Iterator, Sequence

from asrnorm.core.errors import printable
from asrnorm.reporting.sheet import (
    PLACEHOLDERS,
    TEST_NUMBERS,
    TESTS_NOTE,
    UNTESTED_NOTE,
    Sheet,
    SheetCell,
    SheetTest,
    describe_unmarked,
)
from asrnorm.reporting.text import DASH, describe_scale, format_range
from asrnorm.studies import Row

_MOST_COLUMNS = 9  # that fit the width of a page, with the numbers of a study in them
# In this order: what others are written with comes first.
_ESCAPES = {"\\": "\\\\", "&": "&amp;", "|": "\\|", "*": "\\*", "`": "\\`"}
_TAG = re.compile("<(?=[A-Za-z/!?]|$)")  # what begins HTML, or a link such as <javascript:...>
_LINK = re.compile(r"\](?=[(\[])")
_DETAILS = ("ours", "paper", "difference", "n", "p")
_MEANINGS = {
    "missing": "not run yet",
    "no data": "run without the images of the column",
    "diverged": "the loss was no longer finite",
}


def escape(text: str) -> str:
    r"""Return plain text as Markdown for one line: nothing in it ends a cell or becomes emphasis, a link or HTML."""
    for sign, written in _ESCAPES.items():
        text = text.replace(sign, written)
    text = _LINK.sub("&#93;", _TAG.sub("&lt;", text))
    return printable(" ".join(text.split()))


def pipe_table(grid: Sequence[Sequence[str]], *, words: int, turn: bool = False) -> str:
    """Return a table of escaped cells whose first line is the head and whose first `words` columns are of words.

    With `turn`, a table that is too wide for a page and not as long is turned on its side.
    """
    if turn and len(grid[0]) > _MOST_COLUMNS and len(grid) < len(grid[0]):
        grid, words = list(zip(*grid, strict=True)), 1
    rule = ["---" if index < words else "---:" for index in range(len(grid[0]))]
    return "\n".join(f"| {' | '.join(line)} |" for line in (grid[0], rule, *grid[1:]))


def to_markdown(sheet: Sheet, figures: Sequence[str] = ()) -> str:
    """Return a page: the table as the paper lays it out, then every cell with difference, n and p, then the tests.

    Figures are named; they lie beside the page, as `figures/<name>.png`.
    """
    study = sheet.collected.study
    parts = [f"# {escape(study.title)}", escape(study.caption)]
    parts += [f"> **Warning:** {escape(text)}" for text in sheet.collected.warnings]
    if sheet.columns:
        parts += [overview(sheet), legend(sheet, with_tests=True)]
    parts += [f"![{name}](figures/{name}.png)" for name in figures]
    if sheet.columns:
        parts += ["## Cell by cell", _details(sheet)]
    if sheet.tests:
        parts += ["## Tests", comparisons(sheet)]
    return "\n\n".join(part for part in parts if part) + "\n"


def overview(sheet: Sheet, *, counts: bool = False) -> str:
    """Return the table as the paper lays it out: ours, with n if `counts`, and the paper's under it in brackets."""
    grid = [["", *map(escape, sheet.columns)]]
    group = ""
    for row in sheet.rows:
        if row.group != group:
            group = row.group
            grid.append([f"*{escape(group)}*", *[""] * len(sheet.columns)])
        label = row.label if row.not_run is None else f"{row.label} (not run)"
        grid.append([escape(label), *(_show(cell, counts) for cell in sheet.in_row(row))])
    return pipe_table(grid, words=1, turn=True)


def _show(cell: SheetCell, counts: bool) -> str:
    ours = f"**{cell.ours}**" if cell.best else cell.ours
    if cell.measured and counts:
        ours += f", n {cell.measured.n}"
    if cell.measured is None and cell.placeholder:
        ours = f"*{cell.placeholder}*"
    paper = f"({cell.paper}){_brackets(cell.marks)}" if cell.paper else ""
    return "<br>".join(part for part in (ours, paper) if part) or DASH


def _brackets(marks: Sequence[int]) -> str:
    return "".join(f"[{mark}]" for mark in marks)


def _details(sheet: Sheet) -> str:
    """One line per cell that has a number or waits for one, without columns that are empty."""
    lines = [["row", "column", *_DETAILS]]
    for cell in sheet.filled:
        ours = cell.ours or f"*{cell.state}*"
        count = str(cell.measured.n) if cell.measured else ""
        p = "; ".join(f"{test.texts['pooled']} against {escape(test.result.against)}" for test in cell.p_tests)
        lines.append([escape(cell.row.label), escape(cell.column), ours, cell.paper, cell.difference, count, p])
    columns = [column for column in zip(*lines, strict=True) if any(column[1:]) or column[0] in ("ours", "n")]
    head, rule, *rest = pipe_table(list(zip(*columns, strict=True)), words=2).split("\n")
    if columns[-1][0] == "p":  # sentences, which stand to the left
        rule = rule.removesuffix("---: |") + "--- |"
    return "\n".join([head, rule, *rest])


def legend(sheet: Sheet, *, with_tests: bool = False) -> str:
    """Return what the signs in the table mean, the footnotes, and where the numbers come from.

    With `with_tests`, the footnotes to the comparisons are among them.
    """
    others = sheet.printed_p if with_tests and sheet.is_tested else []
    lines = [" ".join(_signs(sheet))]
    lines += [f"[{number}] {escape(text)}" for number, text in sheet.footnotes_to(others)]
    lines += [*_not_run(sheet.rows), *map(escape, sheet.notes), escape(sheet.provenance)]
    return "\n\n".join(lines if sheet.provenance else lines[:-1])


def _signs(sheet: Sheet) -> Iterator[str]:
    mean = "Mean" if sheet.collected.is_folder else "Ours: mean"
    best = f"; our best in bold{describe_unmarked(sheet.collected)}" if sheet.has_best else ""
    words = ", ".join(filter(None, (f"{mean} ± standard deviation (n - 1)", escape(describe_scale(sheet.collected)))))
    yield f"{words}{best}."
    if sheet.collected.printed:
        yield "In brackets: the paper's number as printed, unless a footnote says otherwise."
    states = {cell.state for cell in sheet.cells.values()}
    yield from (f"*{PLACEHOLDERS[state]}*: {meaning}." for state, meaning in _MEANINGS.items() if state in states)


def _not_run(rows: Sequence[Row]) -> Iterator[str]:
    """Yield one line on the rows that are not run, those of one reason together."""
    labels: dict[str, list[str]] = {}
    for row in rows:
        if row.not_run is not None:
            reason = row.not_run.removeprefix("not run").removeprefix(": ")
            labels.setdefault(escape(reason), []).append(escape(row.label))
    if labels:
        parts = (", ".join(names) + f" ({reason})" * bool(reason) for reason, names in labels.items())
        yield f"Not run: {'; '.join(parts)}."


def comparisons(sheet: Sheet) -> str:
    """Return the comparisons of rows and what they mean: a line per column, or per pair where nothing is tested."""
    if not sheet.is_tested:
        return f"{_differences(sheet)}\n\n{UNTESTED_NOTE}"
    paper = bool(sheet.printed_p)
    grid = [["row", "against", "column", *TEST_NUMBERS, *["paper"] * paper]]
    for test in sheet.tests:
        names = map(escape, (test.result.row, test.result.against, test.result.column))
        grid.append([*names, *test.texts.values(), *[f"{test.paper}{_brackets(test.marks)}"] * paper])
    return f"{pipe_table(grid, words=3)}\n\n{TESTS_NOTE}"


def _differences(sheet: Sheet) -> str:
    pairs: dict[tuple[str, str], dict[str, SheetTest]] = {}
    for test in sheet.tests:
        pairs.setdefault((test.result.row, test.result.against), {})[test.result.column] = test
    columns = [column for column in sheet.columns if any(column in found for found in pairs.values())]
    grid = [["row", "against", "n", *map(escape, columns)]]
    for names, found in pairs.items():
        results = [test.result for test in found.values()]
        counts = [format_range([result.n for result in results]), format_range([one.n_against for one in results])]
        gaps = [found[column].texts["difference"] if column in found else DASH for column in columns]
        grid.append([*map(escape, names), ", ".join(counts), *gaps])
    return pipe_table(grid, words=2, turn=True)
