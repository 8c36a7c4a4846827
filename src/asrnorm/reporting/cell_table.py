"""The tables of a study in HTML: the paper's layout with all that is known of each cell, and a line per cell."""

import html
from collections.abc import Callable, Sequence

from asrnorm.reporting.comparison import NUMBERS, comparison_words, find_printed
from asrnorm.reporting.entry import (
    DASH,
    IN_PLACE_OF_A_NUMBER,
    Entry,
    Sheet,
    show,
    show_p,
    show_printed,
    show_signed,
    show_spread,
)
from asrnorm.studies import Printed, Row
from asrnorm.studies.collect import Collected
from asrnorm.studies.statistics import TestResult

Anchors = Callable[[Entry], Sequence[str]]  # of the runs behind a cell

STYLE = """
.scroll:focus-visible { outline: 2px solid var(--link); outline-offset: 2px; }
table.cells td { vertical-align: top; } table.cells th[scope=row] { vertical-align: top; font-weight: 600; }
th[scope=row] { text-align: left; position: sticky; left: 0; background: var(--paper); z-index: 1; }
table.long td:nth-child(2) { text-align: left; } table.long td.words { text-align: left; }
td a.ours { font-weight: 600; text-decoration-thickness: 1px; text-underline-offset: 3px; }
td .spread { font-weight: 400; } td .more, td .sub { display: block; font-size: .8rem; color: var(--faint); }
td .gap { color: var(--ink); } td.best { font-weight: inherit; }
td.missing, td.no-data, td.diverged {
  background: repeating-linear-gradient(135deg, var(--gap) 0 6px, transparent 6px 12px); }
td .state { font-style: italic; } td.diverged .state { font-weight: 600; }
tr.group th { text-align: left; color: var(--faint); font-weight: 600; padding-top: 1rem; }
th .why { display: block; font-weight: 400; font-size: .8rem; color: var(--faint); }
th[scope=row] { white-space: normal; min-width: 10rem; max-width: 15rem; }
table.cells td, table.cells th { padding: .35rem .5rem; } th.words { text-align: left; }
table.long th, table.long td { padding: .3rem .5rem; } table.long th[scope=row] { font-weight: 500; }
@media (max-width: 40rem) {
  th, td { padding: .3rem .5rem; } th[scope=row], table.long th[scope=row] { min-width: 6.2rem; max-width: 8rem; }
}
"""


def scrolling(table: str, label: str) -> str:
    """Return a table in a box of its own that scrolls, by keyboard too."""
    return f'<div class="scroll" tabindex="0" role="region" aria-label="{html.escape(label)}">{table}</div>'


def cell_table(sheet: Sheet, anchors: Anchors) -> str:
    """Return the paper's layout: ours, linked to its runs; under it the paper's, the difference, n and p."""
    head = "".join(f'<th scope="col">{html.escape(column)}</th>' for column in sheet.columns)
    lines = [f'<table class="cells sortable"><thead><tr><th scope="col">row</th>{head}</tr></thead><tbody>']
    group = ""
    for row in sheet.rows:
        if row.group != group:
            group = row.group
            span = len(sheet.columns) + 1
            lines.append(f'<tr class="group"><th colspan="{span}" scope="colgroup">{html.escape(group)}</th></tr>')
        cells = "".join(_cell(entry, anchors(entry)) for entry in sheet.of(row))
        lines.append(f'<tr><th scope="row" data-sort="{html.escape(row.label)}">{_label(row)}</th>{cells}</tr>')
    return scrolling("\n".join([*lines, "</tbody></table>"]), "the table, cell by cell with the paper's numbers")


def _label(row: Row) -> str:
    why = f'<span class="why">{html.escape(row.not_run)}</span>' if row.not_run else ""
    return f"{html.escape(row.label)}{why}"


def _cell(entry: Entry, anchors: Sequence[str]) -> str:
    kind = "best" if entry.best else _hatching(entry)
    key = "" if entry.measured is None else repr(entry.measured.mean)
    classes = f' class="{kind}"' if kind else ""
    return f'<td{classes} data-sort="{key}">{_ours(entry, anchors)}{_paper(entry)}{_counts(entry)}</td>'


def _hatching(entry: Entry) -> str:
    return entry.state.replace(" ", "-") if entry.state in IN_PLACE_OF_A_NUMBER else ""


def _ours(entry: Entry, anchors: Sequence[str]) -> str:
    if entry.measured is None:
        words = IN_PLACE_OF_A_NUMBER.get(entry.state, "" if entry.printed else DASH)
        return f'<span class="state">{words}</span>' if words else ""
    text = show(entry.measured.mean, entry.own_decimals)
    if entry.measured.deviation is not None:
        text += f' <span class="spread">± {show_spread(entry.measured.deviation, entry.own_decimals)}</span>'
    first, *rest = [f"#{html.escape(anchor)}" for anchor in anchors] or [""]
    if not first:
        return f"<b>{text}</b>"
    title = f"runs of {entry.row}, {entry.column}"
    more = "".join(f' <a href="{link}">{number}</a>' for number, link in enumerate([first, *rest], start=1))
    links = f'<span class="more">runs{more}</span>' if rest else ""
    return f'<a class="ours" href="{first}" title="{html.escape(title)}">{text}</a>{links}'


def _paper(entry: Entry) -> str:
    if entry.printed is None:
        return ""
    return f'<span class="sub">paper {show_printed(entry.printed, entry.decimals)}{_notes(entry.marks)}</span>'


def _notes(marks: Sequence[int]) -> str:
    links = ", ".join(f'<a href="#note-{mark}" aria-label="note {mark}">{mark}</a>' for mark in marks)
    return f"<sup>{links}</sup>" if links else ""


def _of(printed: Printed | None) -> float | None:
    return None if printed is None else printed.value


def _counts(entry: Entry) -> str:
    words = []
    if entry.difference is not None:
        gap = show_signed(entry.difference, entry.decimals)
        words.append(f'<span class="gap" title="ours minus the paper\'s">{gap}</span>')
    if entry.measured is not None:
        words.append(f"n {entry.measured.n}")
    if entry.diverged:
        words.append(f"NaN at seed{'s' if len(entry.diverged) > 1 else ''} {', '.join(map(str, entry.diverged))}")
    p = {test.against: test.pooled for test in entry.tests if test.pooled is not None}
    if p:
        title = "; ".join(f"{show_p(one)} against {against}" for against, one in p.items())
        shown = show_p(max(p.values())).removeprefix("< ")
        sign = "&lt;" if max(p.values()) < 0.0005 else "=" if len(p) == 1 else "&le;"
        words.append(f'<span title="{html.escape(title)}">p {sign} {shown}</span>')
    return f'<span class="sub">{" · ".join(words)}</span>' if words else ""


def long_table(sheet: Sheet, anchors: Anchors) -> str:
    """Return one line per cell, to be sorted by difference, p or n; without the columns that nothing is in."""
    shown = [
        (entry, next(iter(anchors(entry)), None))
        for row in sheet.rows
        for entry in sheet.of(row)
        if entry.state != "absent" or entry.printed is not None
    ]
    heads = ["row", "column", "ours"]
    heads += ["deviation"] if any(entry.measured and entry.measured.deviation is not None for entry, _ in shown) else []
    heads += ["n"]
    heads += ["paper", "difference"] if any(entry.printed for entry, _ in shown) else []
    heads += ["p", "against"] if any(test.pooled is not None for entry, _ in shown for test in entry.tests) else []
    lines = []
    for entry, anchor in shown:
        cells = _line(entry, anchor)
        lines.append(
            f'<tr><th scope="row">{html.escape(entry.row)}</th>{"".join(cells[head] for head in heads[1:])}</tr>'
        )
    return scrolling(_sortable(heads, lines), "one line per cell")


def _line(entry: Entry, anchor: str | None) -> dict[str, str]:
    measured, printed, places, gap = entry.measured, entry.printed, entry.decimals, entry.difference
    tests = [test for test in entry.tests if test.pooled is not None]
    p = [test.pooled for test in tests if test.pooled is not None]
    return {
        "column": f"<td>{html.escape(entry.column)}</td>",
        "ours": _own(entry, anchor),
        "deviation": _deviation(entry),
        "n": _value(str(measured.n) if measured else DASH, measured.n if measured else None),
        "paper": _value(html.escape(show_printed(printed, places)) if printed else DASH, _of(printed)),
        "difference": _value(DASH if gap is None else show_signed(gap, places), gap),
        "p": _value("<br>".join(html.escape(show_p(one)) for one in p) or DASH, min(p, default=None)),
        "against": f'<td class="words">{"<br>".join(html.escape(test.against) for test in tests)}</td>',
    }


def _own(entry: Entry, anchor: str | None) -> str:
    if entry.measured is not None:
        text = show(entry.measured.mean, entry.own_decimals)
        return _value(f'<a href="#{html.escape(anchor)}">{text}</a>' if anchor else text, entry.measured.mean)
    shown = {**IN_PLACE_OF_A_NUMBER, "absent": DASH}.get(entry.state, entry.state)
    return f'<td class="{_hatching(entry)}" data-sort=""><span class="state">{shown}</span></td>'


def _deviation(entry: Entry) -> str:
    value = entry.measured.deviation if entry.measured else None
    return _value(DASH if value is None else show_spread(value, entry.own_decimals), value)


def _value(shown: str, value: float | None) -> str:
    return f'<td data-sort="{"" if value is None else repr(value)}">{shown}</td>'


def comparison_table(collected: Collected, sheet: Sheet) -> str:
    """Return the comparisons of rows, with the paper's p-value where it prints one; no column that nothing is in."""
    found = [_compare(test, find_printed(collected, test), sheet) for test in collected.tests]
    numbers = [head for head in found[0] if any(cells[head][1] is not None for cells in found)] if found else []
    lines = []
    for test, cells in zip(collected.tests, found, strict=True):
        words = f'<td>{html.escape(test.column)}</td><td class="words">{html.escape(test.against)}</td>'
        values = "".join(_value(*cells[head]) for head in numbers)
        lines.append(f'<tr><th scope="row">{html.escape(test.row)}</th>{words}{values}</tr>')
    return scrolling(_sortable(["row", "column", "against", *numbers], lines), "tests of row against row")


def _compare(test: TestResult, printed: Printed | None, sheet: Sheet) -> dict[str, tuple[str, float | None]]:
    """What is shown and what it sorts by, under its head."""
    values = (test.difference, test.low, test.n, test.pooled, test.welch, test.paired, test.holm)
    words = map(html.escape, comparison_words(test, sheet))
    paper = f"{html.escape(show_printed(printed, 3))}{_notes(sheet.marks(printed))}" if printed else DASH
    return {**dict(zip(NUMBERS, zip(words, values, strict=True), strict=True)), "paper": (paper, _of(printed))}


def _sortable(heads: Sequence[str], lines: Sequence[str]) -> str:
    words = {name: ' class="words"' if name in ("row", "column", "against") else "" for name in heads}
    head = "".join(f'<th scope="col"{words[name]}>{html.escape(name)}</th>' for name in heads)
    return (
        f'<table class="long sortable"><thead><tr>{head}</tr></thead><tbody>\n'
        + "\n".join(lines)
        + "\n</tbody></table>"
    )
