"""The report of a study: Markdown, CSV, LaTeX, figures, and one HTML page that holds all of it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from asrnorm.core.files import write_whole
from asrnorm.reporting.csv_file import to_csv
from asrnorm.reporting.figures import FIGURES, NothingToDrawError
from asrnorm.reporting.figures.base import for_page, save, to_svg
from asrnorm.reporting.latex import to_latex, to_latex_table
from asrnorm.reporting.markdown import to_markdown
from asrnorm.reporting.page import render_page
from asrnorm.reporting.runs import RunBlock, gather_runs, identify
from asrnorm.reporting.sheet import (
    TEST_NUMBERS,
    TESTS_NOTE,
    UNTESTED_NOTE,
    Sheet,
    SheetCell,
    build_sheet,
    describe_unmarked,
)
from asrnorm.reporting.text import DASH, count_tasks, describe_scale, format_p
from asrnorm.studies.collect import Collected


def write_report(collected: Collected, out: Path) -> list[Path]:
    r"""Write `<study>.{md,csv,tex,html}`, `<study>-table.tex` for `\input`, and `figures/*.{svg,pdf,png}`.

    A study without numbers has no table: it is written as Markdown, page and figures. Files of an earlier report are
    replaced, each when the new one is whole. Returns the files, the page last.
    """
    sheet, name = build_sheet(collected), collected.study.name
    drawn: list[Path] = []
    drawings, undrawn = {}, {}
    for figure_name in collected.study.figures:
        try:
            figure = FIGURES[figure_name](collected, out)
        except NothingToDrawError as reason:
            undrawn[figure_name] = str(reason)
            for old in (out / "figures").glob(f"{figure_name}.*"):
                old.unlink()  # of an earlier report: it would pass for this one's
            continue
        drawings[figure_name] = to_svg(figure)
        drawn += save(figure, out / "figures", figure_name)
    texts = {f"{name}.md": to_markdown(sheet, list(drawings))}
    if sheet.columns:
        texts |= {f"{name}.csv": to_csv(sheet), f"{name}.tex": to_latex(sheet)}
        texts[f"{name}-table.tex"] = to_latex_table(sheet) + "\n"
    files = [path.relative_to(out).as_posix() for path in drawn]
    texts[f"{name}.html"] = render_study(sheet, drawings, undrawn, files)
    for file, text in texts.items():
        write_whole(out / file, text)
    *tables, page = (out / file for file in texts)
    return [*tables, *drawn, page]


class Item(NamedTuple):
    """One field of a sortable table: lines of text, an anchor on the page, numbers of footnotes, and a CSS class.

    It sorts by `sort`: a number, "" to stay last, or `None` for its text.
    """

    lines: Sequence[str]
    sort: float | str | None = None
    link: str = ""
    marks: Sequence[int] = ()
    kind: str = ""


class Fact(NamedTuple):
    """A word under the numbers of a cell: CSS class, text, and what hovering over it shows."""

    kind: str
    text: str
    title: str = ""


def render_study(
    sheet: Sheet, drawings: Mapping[str, str], undrawn: Mapping[str, str], files: Sequence[str] = ()
) -> str:
    """Return the HTML page of a study.

    `drawings` has figures as SVG, `undrawn` the reasons of missing ones, both by name; `files` is relative to the page.
    """
    collected, study = sheet.collected, sheet.collected.study
    blocks = gather_runs(collected)
    shown = {
        "Table": sheet.columns,
        "Figures": drawings or undrawn,
        "Tests": sheet.tests,
        "Cell by cell": sheet.columns,
        "Missing": collected.missing,
        "Runs": blocks,
    }
    return render_page(
        "study.html",
        title=study.title,
        footer=sheet.provenance or "Nothing is measured yet: all numbers here are the paper's.",
        study=study,
        sheet=sheet,
        status=_describe_status(sheet),
        warnings=collected.warnings,
        sections=[title for title, content in shown.items() if content],
        legend=_describe_signs(sheet),
        footnotes=list(sheet.footnotes_to(sheet.printed_p)),
        anchors_of=lambda cell: _find_anchors(cell, blocks),
        cell_facts=_list_facts,
        figures=[
            {
                "name": name,
                "svg": for_page(svg, f"f{number}"),
                "files": [(file, Path(file).suffix[1:].upper()) for file in files if Path(file).stem == name],
            }
            for number, (name, svg) in enumerate(drawings.items(), start=1)
        ],
        undrawn=undrawn,
        tests=_tabulate_tests(sheet),
        tests_note=(TESTS_NOTE if sheet.is_tested else UNTESTED_NOTE).replace("`", ""),
        details=_tabulate_cells(sheet, blocks),
        missing=collected.missing,
        missing_counts=count_tasks(collected.missing),
        command=f"asrnorm reproduce {study.name} --scale {collected.scale}",
        blocks=list(blocks.values()),
    )


def _find_anchors(cell: SheetCell, blocks: Mapping[str, RunBlock]) -> list[str]:
    return [blocks[key].anchor for spec in cell.runs if (key := identify(spec)) in blocks]


def _describe_status(sheet: Sheet) -> str:
    states = [cell.state for cell in sheet.cells.values()]
    wanted = sum(state in ("measured", "missing", "diverged") for state in states)
    done = f"{wanted - states.count('missing')} of {wanted} cells measured"
    words = [done if wanted else "this study has no numbers: see the figures", describe_scale(sheet.collected)]
    return " · ".join(filter(None, words))


def _describe_signs(sheet: Sheet) -> str:
    best = f" best of each column shaded{describe_unmarked(sheet.collected)};" if sheet.has_best else ""
    words = f"Mean ± standard deviation (n - 1) over seeds;{best} click a number for its runs."
    if sheet.collected.printed:
        words += (
            " Below it: the paper's number (as printed, unless a footnote says otherwise), and ours minus the paper's."
        )
    if sheet.has_p:
        words += " p: one-sided two-sample t-test, as in the paper; the largest if there are several. All are below."
    return words


def _list_facts(cell: SheetCell) -> list[Fact]:
    """What stands under the numbers of a cell: difference, n, seeds that diverged, and the largest p-value."""
    facts = []
    if cell.difference:
        facts.append(Fact("gap", cell.difference, "ours minus the paper's"))
    if cell.measured is not None:
        facts.append(Fact("n", f"n {cell.measured.n}"))
    if cell.diverged:
        seeds = f"seed{'s' * (len(cell.diverged) > 1)} {', '.join(map(str, cell.diverged))}"
        facts.append(Fact("nan", f"NaN at {seeds}"))
    if p := [test.result.pooled for test in cell.p_tests if test.result.pooled is not None]:
        title = "; ".join(f"{test.texts['pooled']} against {test.result.against}" for test in cell.p_tests)
        largest = format_p(max(p))
        sign = "" if largest.startswith("<") else "= " if len(p) == 1 else "≤ "
        facts.append(Fact("p", f"p {sign}{largest}", title))
    return facts


def _tabulate_cells(sheet: Sheet, blocks: Mapping[str, RunBlock]) -> dict[str, Any]:
    """One line per cell; columns without any number are left out."""
    lines = []
    for cell in sheet.filled:
        measured, printed = cell.measured, cell.printed
        state = cell.placeholder or (DASH if cell.state == "absent" else cell.state)
        ours = Item([state], "", kind=f"state {cell.state.replace(' ', '-')}")
        spread = Item([DASH], "")
        if measured is not None:
            mean, _, deviation = cell.ours.partition(" ± ")
            ours = Item([mean], measured.mean, link=next(iter(_find_anchors(cell, blocks)), ""))
            spread = _number(deviation, measured.deviation)
        p = [test.result.pooled for test in cell.p_tests if test.result.pooled is not None]
        items = {
            "column": Item([cell.column], kind="words"),
            "ours": ours,
            "deviation": spread,
            "n": _number(str(measured.n), measured.n) if measured else _number("", None),
            "paper": _number(cell.paper, printed.value if printed else None),
            "difference": _number(cell.difference, cell.gap),
            "p": Item([test.texts["pooled"] for test in cell.p_tests] or [DASH], min(p, default="")),
            "against": Item([test.result.against for test in cell.p_tests], kind="words"),
        }
        lines.append((cell.row.label, items))
    optional = {"deviation": "deviation", "paper": "paper", "difference": "paper", "p": "p", "against": "p"}
    return _table(lines, optional)


def _tabulate_tests(sheet: Sheet) -> dict[str, Any]:
    """One line per comparison and column of the study."""
    lines = []
    for test in sheet.tests:
        items = {
            "column": Item([test.result.column], kind="words"),
            "against": Item([test.result.against], kind="words"),
            **{name: _number(test.texts[name], test.values[name]) for name in TEST_NUMBERS},
            "paper": _number(test.paper, test.printed.value if test.printed else None)._replace(marks=test.marks),
        }
        lines.append((test.result.row, items))
    return _table(lines, {name: name for name in (*TEST_NUMBERS, "paper")})


def _number(text: str, value: float | None) -> Item:
    return Item([text or DASH], "" if value is None else value)


def _table(lines: Sequence[tuple[str, Mapping[str, Item]]], optional: Mapping[str, str]) -> dict[str, Any]:
    """Heads and lines of a table, without the optional columns in which the column they depend on has no number."""
    empty = {name for name in set(optional.values()) if all(items[name].sort == "" for _, items in lines)}
    heads = [name for name in (lines[0][1] if lines else ()) if optional.get(name) not in empty]
    return {"heads": ["row", *heads], "lines": [(label, [items[name] for name in heads]) for label, items in lines]}
