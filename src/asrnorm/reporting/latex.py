r"""A study as LaTeX in the paper's layout: `booktabs`, methods down, domains across, best in bold.

Under each of our rows stands the paper's in gray. The document compiles as it is with nothing but the packages of a
basic TeX; the table alone is a file for `\input`.
"""

from collections.abc import Iterator, Sequence

from asrnorm.core.errors import printable
from asrnorm.reporting.best import set_apart
from asrnorm.reporting.entry import IN_PLACE_OF_A_NUMBER, Entry, Sheet, lay_out, show, show_p, show_signed, show_spread
from asrnorm.reporting.provenance import provenance
from asrnorm.studies import Printed, Row
from asrnorm.studies.collect import Collected
from asrnorm.studies.statistics import TestResult

PACKAGES = ("[T1]{fontenc}", "[utf8]{inputenc}", "[margin=2cm]{geometry}", "{xcolor}", "{booktabs}", "{graphicx}")
_COLUMNS = 12  # more than these are lines instead, or nobody could read them
_LINES = 48  # of a table that fills a page
# Paper: bold p-values are at most .05 as they are; of dozens of tests some would be by chance.
_SIGNIFICANT = 0.05
_BOLD_P = r"$p$-values are those of single tests; bold ones are at most .05 after Holm's correction for all tests."
_PAPER = r"\textcolor{gray}{\quad paper}"
_ALONE = r"\textcolor{gray}{(paper)}"  # where no number of ours stands above it
# Shrunk where it is too wide, as the paper does, and never blown up.
_FIT = r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%"
_ESCAPES = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "\N{PLUS-MINUS SIGN}": r"$\pm$",
    "\N{MINUS SIGN}": "$-$",
    "\N{MULTIPLICATION SIGN}": r"$\times$",
    "λ": r"$\lambda$",
    "\N{GREEK SMALL LETTER MU}": r"$\mu$",
    "\N{GREEK SMALL LETTER SIGMA}": r"$\sigma$",
    "\N{GREEK SMALL LETTER GAMMA}": r"$\gamma$",
    "\N{GREEK SMALL LETTER BETA}": r"$\beta$",
    "\N{GREEK CAPITAL LETTER DELTA}": r"$\Delta$",
    "\N{RIGHTWARDS ARROW}": r"$\rightarrow$",
    "\N{UPWARDS ARROW}": r"$\uparrow$",
    "\N{DOWNWARDS ARROW}": r"$\downarrow$",
    "\N{LESS-THAN OR EQUAL TO}": r"$\leq$",
    "\N{GREATER-THAN OR EQUAL TO}": r"$\geq$",
    "\N{EN DASH}": "--",
    "\N{EM DASH}": "---",
    "\N{RIGHT SINGLE QUOTATION MARK}": "'",
    "\N{LEFT DOUBLE QUOTATION MARK}": "``",
    "\N{RIGHT DOUBLE QUOTATION MARK}": "''",
}


def escape(text: str) -> str:
    r"""Return plain text as LaTeX; a letter that a basic TeX has not is a question mark.

    Example:
        >>> escape("5 % of R&D_x")
        '5 \\% of R\\&D\\_x'
    """
    known = "".join(_ESCAPES.get(letter, letter) for letter in printable(" ".join(text.split())))
    return known.encode("latin-1", "replace").decode("latin-1")


def to_latex(collected: Collected) -> str:
    """Return a whole document: the table, its notes, and every cell with difference, n and p."""
    sheet = lay_out(collected)
    parts = [
        r"\documentclass{article}",
        *(rf"\usepackage{package}" for package in PACKAGES),
        r"\setlength{\parindent}{0pt}",
        r"\begin{document}",
        to_latex_table(collected),
        *_cell_by_cell(sheet, _BOLD_P if _has_p(collected) else ""),
        r"\end{document}",
    ]
    return "\n".join(parts) + "\n"


def to_latex_table(collected: Collected) -> str:
    r"""Return the table alone, for `\input`; it needs `booktabs`, `graphicx` and `xcolor`."""
    study, sheet = collected.study, lay_out(collected)
    turned = study.transposed or len(sheet.columns) > _COLUMNS
    body = list(_transposed(sheet) if turned else (*_body(sheet), *_comparisons(collected, sheet)))
    p_values = (number for pair in study.comparisons for number in pair.printed.values())
    beside = [] if turned else [*p_values, *collected.differences.values()]
    heads = [row.label for row in sheet.rows] if turned else list(sheet.columns)
    notes = [rf"\textbf{{Warning:}} {escape(text)}." for text in collected.warnings]
    notes += [escape(text) for text in sheet.notes]
    notes += [rf"\textsuperscript{{{i}}}{escape(text)}" for i, text in sheet.footnotes_to(beside)]
    paper = "; in gray, the paper's numbers" if collected.printed else ""
    marked = any(entry.best for entry in sheet.entries.values())
    best = f"; best in bold{set_apart(collected)}" if marked else ""
    tested = f" {_BOLD_P}" if not turned and _has_p(collected) else ""
    caption = (
        f"{escape(study.caption)} Ours: mean$\\pm$standard deviation over seeds ($n-1$), {escape(collected.scale)} "
        f"scale{best}{paper}.{tested} {escape(provenance(collected))}"
    )
    return "\n".join(
        [
            r"\begin{table}[ht]",
            r"\centering",
            _FIT,
            rf"\begin{{tabular}}{{@{{}}l{'c' * len(heads)}@{{}}}}\toprule",
            _join(["Domain" if turned else "Method", *map(escape, heads)]) + r" \midrule",
            *body,
            r"\bottomrule",
            r"\end{tabular}}",
            rf"\caption{{{caption.strip()}}}",
            rf"\label{{tab:{study.name}}}",
            *([r"\par\raggedright\footnotesize", r"\\".join(notes)] if notes else []),
            r"\end{table}",
        ]
    )


def _has_p(collected: Collected) -> bool:
    return any(test.pooled is not None for test in collected.tests)


def _body(sheet: Sheet) -> Iterator[str]:
    group = sheet.rows[0].group if sheet.rows else ""
    for row in sheet.rows:
        if row.group != group:
            group = row.group
            yield r"\midrule"
        entries = list(sheet.of(row))
        if any(entry.measured or entry.state in IN_PLACE_OF_A_NUMBER for entry in entries):
            yield _join([escape(row.label), *map(_ours, entries)])
            if any(entry.printed for entry in entries):
                yield _join([_PAPER, *map(_paper, entries)])
        else:
            yield _join([f"{escape(row.label)} {_ALONE}", *map(_paper, entries)])


def _transposed(sheet: Sheet) -> Iterator[str]:
    for column in sheet.columns:
        entries = [sheet.entries[row.label, column] for row in sheet.rows]
        yield _join([escape(column), *map(_ours, entries)])
        if any(entry.printed for entry in entries):
            yield _join([_PAPER, *map(_paper, entries)])


def _comparisons(collected: Collected, sheet: Sheet) -> Iterator[str]:
    """The rows under the last rule: differences and p-values, ours and the paper's."""
    tests = {(test.row, test.against, test.column): test for test in collected.tests}
    lines: list[str] = []
    for comparison in collected.study.comparisons:
        found = [tests.get((comparison.row, comparison.against, column)) for column in sheet.columns]
        names = f"{escape(comparison.row)} vs.\\ {escape(comparison.against)}"
        entries = [sheet.entries[comparison.row, column] for column in sheet.columns]
        if any(found):
            gaps = [
                _math(show(test.difference, entry.own_decimals)) if test else "-"
                for test, entry in zip(found, entries, strict=True)
            ]
            lines.append(_join([rf"$\Delta$: {names}", *gaps]))
        if comparison.differences:
            pair = (comparison.row, comparison.against)
            numbers = [collected.differences.get((*pair, column)) for column in sheet.columns]
            shown = [_marked(n, entry.decimals, sheet) for n, entry in zip(numbers, entries, strict=True)]
            lines.append(_join([_PAPER if any(found) else rf"$\Delta$: {names} {_ALONE}", *shown]))
        has_p = any(test and test.pooled is not None for test in found)
        if has_p:
            lines.append(_join([rf"$p$-value: {names}", *map(_significant, found)]))
        if comparison.printed:
            shown = [_marked(comparison.printed.get(column), 3, sheet) for column in sheet.columns]
            lines.append(_join([_PAPER if has_p else rf"$p$-value: {names} {_ALONE}", *shown]))
    if lines:
        yield r"\midrule"
        yield from lines


def _significant(test: TestResult | None) -> str:
    if test is None or test.pooled is None:
        return "-"
    text = show_p(test.pooled).replace("< ", "<")
    return rf"$\mathbf{{{text}}}$" if test.holm is not None and test.holm <= _SIGNIFICANT else f"${text}$"


def _ours(entry: Entry) -> str:
    if entry.measured is None:
        word = IN_PLACE_OF_A_NUMBER.get(entry.state)
        return rf"\textit{{{word}}}" if word else "-"
    mean, deviation, decimals = entry.measured.mean, entry.measured.deviation, entry.own_decimals
    spread = "" if deviation is None else rf"$\pm${show_spread(deviation, decimals)}"
    text = f"{_math(show(mean, decimals))}{spread}"
    return rf"{{\bfseries {text}}}" if entry.best else text


def _paper(entry: Entry) -> str:
    return f"{_printed(entry.printed, entry.decimals)}{_superscript(entry.marks)}"


def _marked(printed: Printed | None, decimals: int, sheet: Sheet) -> str:
    return f"{_printed(printed, decimals)}{_superscript(sheet.marks(printed))}"


def _superscript(marks: Sequence[int]) -> str:
    return rf"\textsuperscript{{{','.join(map(str, marks))}}}" if marks else ""


def _printed(printed: Printed | None, decimals: int) -> str:
    if printed is None:
        return r"\textcolor{gray}{-}"
    sign = "$<$" if printed.below else ""
    spread = "" if printed.deviation is None else rf"$\pm${show(printed.deviation, decimals)}"
    return rf"\textcolor{{gray}}{{{sign}{_math(show(printed.value, decimals))}{spread}}}"


def _math(text: str) -> str:
    return text.replace("\N{MINUS SIGN}", "$-$")


def _join(cells: Sequence[str]) -> str:
    line = " & ".join(cells) + r" \\"
    return f"{{}}{line}" if line.startswith(("[", "*")) else line  # which would belong to the line break above


def _cell_by_cell(sheet: Sheet, note: str) -> Iterator[str]:
    """Every cell on a line, in tables of a page each: `longtable` needs several passes, this needs one."""
    lines = [
        line
        for row in sheet.rows
        for entry in sheet.of(row)
        if entry.state != "absent" or entry.printed is not None
        for line in _details(entry, row)
    ]
    heads = _join(["Row", "Column", "Ours", "Paper", "Difference", "$n$", "$p$", "against"])
    for first in range(0, len(lines), _LINES):
        yield r"\clearpage\begin{center}\small"
        yield _FIT
        yield rf"\begin{{tabular}}{{@{{}}llrrrrrl@{{}}}}\toprule {heads} \midrule"
        yield from lines[first : first + _LINES]
        yield r"\bottomrule\end{tabular}}\end{center}"
    if lines and note:
        yield rf"\par\footnotesize {note}"


def _details(entry: Entry, row: Row) -> Iterator[str]:
    tests = [test for test in entry.tests if test.pooled is not None]
    p = [(_significant(test), escape(test.against)) for test in tests] or [("-", "")]
    ours = _ours(entry) if entry.measured or row.not_run is None else r"\textit{not run}"
    gap = "-" if entry.difference is None else _math(show_signed(entry.difference, entry.decimals))
    count = str(entry.measured.n) if entry.measured else "-"
    yield _join([escape(row.label), escape(entry.column), ours, _paper(entry), gap, count, *p[0]])
    for more in p[1:]:
        yield _join(["", "", "", "", "", "", *more])
