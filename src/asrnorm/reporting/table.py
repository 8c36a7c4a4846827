"""A study as Markdown and as CSV."""

import csv
import io
from collections.abc import Iterable, Iterator, Sequence

from asrnorm.reporting.best import set_apart
from asrnorm.reporting.comparison import compare_in_markdown, compared
from asrnorm.reporting.entry import (
    DASH,
    IN_PLACE_OF_A_NUMBER,
    Entry,
    Sheet,
    lay_out,
    show_measured,
    show_p,
    show_printed,
    show_signed,
)
from asrnorm.reporting.pipe_table import escape, pipe_line, pipe_table
from asrnorm.reporting.provenance import provenance
from asrnorm.studies import Printed, Row
from asrnorm.studies.collect import Collected

CSV_COLUMNS = (
    "study",
    "scale",
    "group",
    "row",
    "column",
    "state",
    "ours",
    "ours_deviation",
    "n",
    "seeds",
    "values",
    "paper",
    "paper_deviation",
    "difference",
    "p",
    "p_against",
    "copied_from",
    "note",
    "commits",
    "configs",
)

_FORMULAS = ("=", "+", "-", "@", "\t", "\r")

_MEANINGS = {
    "missing": "not run yet",
    "no data": "run without the images of the column",
    "diverged": "the loss was no longer finite",
}


def to_csv(collected: Collected) -> str:
    """Return one line per cell, numbers in full, empty where there is none; p-values in the order of their rivals."""
    sheet = lay_out(collected)
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, CSV_COLUMNS, lineterminator="\n")
    writer.writeheader()
    for row in sheet.rows:
        for entry in sheet.of(row):
            writer.writerow(
                {
                    "study": collected.study.name,
                    "scale": _as_text(collected.scale),
                    "group": _as_text(row.group),
                    **_record(entry),
                }
            )
    return buffer.getvalue()


def _record(entry: Entry) -> dict[str, object]:
    measured, printed = entry.measured, entry.printed
    tests = [test for test in entry.tests if test.pooled is not None]
    record: dict[str, object] = {"row": _as_text(entry.row), "column": _as_text(entry.column), "state": entry.state}
    if measured is not None:
        record |= {
            "ours": measured.mean,
            "ours_deviation": measured.deviation,
            "n": measured.n,
            "seeds": _joined(measured.seeds),
            "values": _joined(measured.values),
            "commits": _as_text(_joined(dict.fromkeys(one.commit for one in measured.records))),
            "configs": _joined(dict.fromkeys(one.config_hash for one in measured.records)),
        }
    if printed is not None:
        record |= {
            "paper": printed.value,
            "paper_deviation": printed.deviation,
            "copied_from": _as_text(printed.copied_from or ""),
            "note": _as_text(printed.note or ""),
        }
    if tests:
        record |= {"p": ";".join(str(test.pooled) for test in tests)}
        record |= {"p_against": _as_text(";".join(test.against for test in tests))}
    return record | {"difference": entry.difference}


def _as_text(text: str) -> str:
    """Return a text with an apostrophe before a sign by which a spreadsheet would take it for a formula."""
    return f"'{text}" if text.startswith(_FORMULAS) else text


def _joined(values: object) -> str:
    return " ".join(map(str, values))  # type: ignore[call-overload]


def to_markdown(collected: Collected, figures: Sequence[str] = ()) -> str:
    """Return a page: the table as the paper lays it out, then every cell with difference, n and p, then the tests.

    Args:
        collected: the study with what was found of it.
        figures: names of those that lie beside the page, as `figures/<name>.png`.
    """
    study, sheet = collected.study, lay_out(collected)
    parts = [f"# {escape(study.title)}", escape(study.caption)]
    parts += [f"> **Warning:** {escape(text)}" for text in collected.warnings]
    if sheet.columns:
        parts += [overview(sheet), legend(collected, sheet, compared(collected))]
    parts += [f"![{name}](figures/{name}.png)" for name in figures]
    if sheet.columns:
        parts += ["## Cell by cell", details(sheet)]
    if collected.tests:
        parts += ["## Tests", compare_in_markdown(collected, sheet)]
    return "\n\n".join(part for part in parts if part) + "\n"


def overview(sheet: Sheet, *, counts: bool = False) -> str:
    """Return the table as the paper lays it out: ours, and the paper's number under it in brackets.

    Args:
        sheet: the cells.
        counts: say of how many seeds each of ours is.
    """
    grid = [["", *map(escape, sheet.columns)]]
    group = ""
    for row in sheet.rows:
        if row.group != group:
            group = row.group
            grid.append([f"*{escape(group)}*", *[""] * len(sheet.columns)])
        grid.append([escape(_label(row)), *(_cell(entry, counts) for entry in sheet.of(row))])
    return pipe_table(grid, words=1)


def _label(row: Row) -> str:
    return row.label if row.not_run is None else f"{row.label} (not run)"


def _cell(entry: Entry, counts: bool) -> str:
    marks = "".join(f"[{mark}]" for mark in entry.marks)
    paper = f"({show_printed(entry.printed, entry.decimals)}){marks}" if entry.printed else ""
    if entry.measured is not None:
        ours = show_measured(entry.measured, entry.own_decimals)
        ours = f"**{ours}**" if entry.best else ours
        ours += f", n {entry.measured.n}" * counts
    else:
        word = IN_PLACE_OF_A_NUMBER.get(entry.state)
        ours = f"*{word}*" if word else ""
    return "<br>".join(part for part in (ours, paper) if part) or DASH


def details(sheet: Sheet) -> str:
    """Return one line per cell that has a number or waits for one."""
    lines = [
        pipe_line(["row", "column", "ours", "paper", "difference", "n", "p"]),
        "| --- | --- | ---: | ---: | ---: | ---: | --- |",
    ]
    for row in sheet.rows:
        for entry in sheet.of(row):
            if entry.state == "absent" and entry.printed is None:
                continue
            ours = show_measured(entry.measured, entry.own_decimals) if entry.measured else f"*{entry.state}*"
            paper = show_printed(entry.printed, entry.decimals) if entry.printed else ""
            gap = "" if entry.difference is None else show_signed(entry.difference, entry.decimals)
            count = str(entry.measured.n) if entry.measured else ""
            lines.append(pipe_line([escape(entry.row), escape(entry.column), ours, paper, gap, count, p_text(entry)]))
    return "\n".join(lines)


def p_text(entry: Entry) -> str:
    """Return the p-values of a cell, each with the row it is held against."""
    return "; ".join(f"{show_p(t.pooled)} against {escape(t.against)}" for t in entry.tests if t.pooled is not None)


def legend(collected: Collected, sheet: Sheet, beside: Iterable[Printed] = ()) -> str:
    """Return what the signs mean that are in the table, the footnotes, and where the numbers come from.

    Args:
        collected: the study with what was found of it.
        sheet: its cells.
        beside: the paper's numbers that are shown with the table, whose footnotes stand with the others.
    """
    lines = [" ".join(_signs(collected, sheet))]
    lines += [f"[{number}] {escape(text)}" for number, text in sheet.footnotes_to(beside)]
    lines += [*_not_run(sheet.rows), *map(escape, sheet.notes)]
    source = escape(provenance(collected))
    return "\n\n".join([*lines, source] if source else lines)


def _not_run(rows: Iterable[Row]) -> Iterator[str]:
    """Yield one line on the rows that are not run, those of one reason together."""
    labels: dict[str, list[str]] = {}
    for row in rows:
        if row.not_run is not None:
            reason = row.not_run.removeprefix("not run").removeprefix(": ")
            labels.setdefault(escape(reason), []).append(escape(row.label))
    if labels:
        told = (", ".join(names) + f" ({reason})" * bool(reason) for reason, names in labels.items())
        yield f"Not run: {'; '.join(told)}."


def _signs(collected: Collected, sheet: Sheet) -> Iterator[str]:
    marked = any(entry.best for entry in sheet.entries.values())
    best = f"; our best in bold{set_apart(collected)}" if marked else ""
    yield f"Ours: mean ± standard deviation (n - 1), {escape(collected.scale)} scale{best}."
    if collected.printed:
        yield "In brackets: the paper's number as printed, unless a footnote says otherwise."
    there = {entry.state for entry in sheet.entries.values()}
    yield from (
        f"*{IN_PLACE_OF_A_NUMBER[state]}*: {meaning}." for state, meaning in _MEANINGS.items() if state in there
    )
