r"""A study as LaTeX in the paper's layout: `booktabs`, methods down, domains across, best in bold.

Under each of our rows stands the paper's in gray. The document compiles as it is with nothing but the packages of a
basic TeX; the table alone is a file for `\input`.
"""

from collections.abc import Iterable, Iterator, Sequence

from asrnorm.core.errors import printable
from asrnorm.reporting.sheet import Sheet, SheetCell, SheetTest, describe_unmarked
from asrnorm.reporting.text import MINUS, describe_scale, format_printed
from asrnorm.studies import Printed

PACKAGES = ("[T1]{fontenc}", "[utf8]{inputenc}", "[margin=2cm]{geometry}", "{xcolor}", "{booktabs}", "{graphicx}")
_MOST_COLUMNS = 12  # a table with more is turned on its side
_PAGE_LINES = 48  # of a table that fills a page
# Paper: p-values in bold are at most .05 uncorrected. Among dozens of tests some would be by chance.
_SIGNIFICANT = 0.05
_BOLD_P = r"$p$-values are those of single tests; bold ones are at most .05 after Holm's correction for all tests."
_PAPER = r"\textcolor{gray}{\quad paper}"
_ALONE = r"\textcolor{gray}{(paper)}"  # where no number of ours stands above it
# Shrinks a table that is too wide, as the paper does, and never enlarges one.
_FIT = r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%"
_ESCAPES = {
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    "\\": r"\textbackslash{}",
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
    r"""Return plain text as LaTeX; a character that a basic TeX lacks becomes a question mark."""
    known = "".join(_ESCAPES.get(letter, letter) for letter in printable(" ".join(text.split())))
    return known.encode("latin-1", "replace").decode("latin-1")


def to_latex(sheet: Sheet) -> str:
    """Return a whole document: the table, its notes, and every cell with difference, n and p."""
    packages = [rf"\usepackage{package}" for package in PACKAGES]
    head = [r"\documentclass{article}", *packages, r"\setlength{\parindent}{0pt}", r"\begin{document}"]
    return "\n".join([*head, to_latex_table(sheet), *_cell_by_cell(sheet), r"\end{document}"]) + "\n"


def to_latex_table(sheet: Sheet) -> str:
    r"""Return the table alone, for `\input`; it needs `booktabs`, `graphicx` and `xcolor`."""
    collected = sheet.collected
    study = collected.study
    turned = study.transposed or len(sheet.columns) > _MOST_COLUMNS
    if turned:
        columns = {column: [sheet.cells[row.label, column] for row in sheet.rows] for column in sheet.columns}
        heads, others = ["Domain", *(row.label for row in sheet.rows)], []
        body = [line for column in columns for line in _two_lines(column, columns[column], always_ours=True)]
    else:
        heads, body = ["Method", *sheet.columns], [*_body(sheet), *_comparisons(sheet)]
        p_values = (number for pair in study.comparisons for number in pair.printed.values())
        others = [*p_values, *collected.differences.values()]
    notes = [rf"\textbf{{Warning:}} {escape(text)}." for text in collected.warnings]
    notes += [escape(text) for text in sheet.notes]
    notes += [rf"\textsuperscript{{{i}}}{escape(text)}" for i, text in sheet.footnotes_to(others)]
    best = f"; best in bold{describe_unmarked(collected)}" if sheet.has_best else ""
    paper = "; in gray, the paper's numbers" if collected.printed else ""
    mean = "Mean" if collected.is_folder else "Ours: mean"
    scale = f", {escape(words)}" if (words := describe_scale(collected)) else ""
    tested = f" {_BOLD_P}" if not turned and sheet.has_p else ""
    caption = (
        f"{escape(study.caption)} {mean}$\\pm$standard deviation over seeds ($n-1$){scale}{best}{paper}.{tested} "
        f"{escape(sheet.provenance)}"
    )
    return "\n".join(
        [
            r"\begin{table}[ht]",
            r"\centering",
            _FIT,
            rf"\begin{{tabular}}{{@{{}}l{'c' * (len(heads) - 1)}@{{}}}}\toprule",
            _join(map(escape, heads)) + r" \midrule",
            *body,
            r"\bottomrule",
            r"\end{tabular}}",
            rf"\caption{{{caption.strip()}}}",
            rf"\label{{tab:{study.name}}}",
            *([r"\par\raggedright\footnotesize", r"\\".join(notes)] if notes else []),
            r"\end{table}",
        ]
    )


def _body(sheet: Sheet) -> Iterator[str]:
    group = sheet.rows[0].group if sheet.rows else ""
    for row in sheet.rows:
        if row.group != group:
            group = row.group
            yield r"\midrule"
        yield from _two_lines(row.label, sheet.in_row(row))


def _two_lines(label: str, cells: Sequence[SheetCell], *, always_ours: bool = False) -> Iterator[str]:
    """Ours, and the paper's under it; or the paper's alone."""
    paper = [_gray(cell.paper, cell.marks) for cell in cells]
    if always_ours or any(cell.measured or cell.placeholder for cell in cells):
        yield _join([escape(label), *map(_ours, cells)])
        if any(cell.printed for cell in cells):
            yield _join([_PAPER, *paper])
    else:
        yield _join([f"{escape(label)} {_ALONE}", *paper])


def _comparisons(sheet: Sheet) -> Iterator[str]:
    """The lines under the last rule: differences and p-values, ours and the paper's."""
    tests = {(test.result.row, test.result.against, test.result.column): test for test in sheet.tests}
    lines: list[str] = []
    for pair in sheet.collected.study.comparisons:
        found = [tests.get((pair.row, pair.against, column)) for column in sheet.columns]
        names = f"{escape(pair.row)} vs.\\ {escape(pair.against)}"
        if any(found):
            # Without the plus sign, as the paper prints it.
            gaps = [_math(test.texts["difference"].removeprefix("+")) if test else "-" for test in found]
            lines.append(_join([rf"$\Delta$: {names}", *gaps]))
        if pair.differences:
            numbers = [sheet.collected.differences.get((pair.row, pair.against, c)) for c in sheet.columns]
            decimals = [sheet.cells[pair.row, column].decimals for column in sheet.columns]
            shown = [_printed(number, count, sheet) for number, count in zip(numbers, decimals, strict=True)]
            lines.append(_join([_PAPER if any(found) else rf"$\Delta$: {names} {_ALONE}", *shown]))
        has_p = any(test and test.result.pooled is not None for test in found)
        if has_p:
            lines.append(_join([rf"$p$-value: {names}", *map(_p_value, found)]))
        if pair.printed:
            shown = [_printed(pair.printed.get(column), 3, sheet) for column in sheet.columns]
            lines.append(_join([_PAPER if has_p else rf"$p$-value: {names} {_ALONE}", *shown]))
    if lines:
        yield r"\midrule"
        yield from lines


def _p_value(test: SheetTest | None) -> str:
    if test is None or test.result.pooled is None:
        return "-"
    text = test.texts["pooled"].replace("< ", "<")
    holm = test.result.holm
    return rf"$\mathbf{{{text}}}$" if holm is not None and holm <= _SIGNIFICANT else f"${text}$"


def _ours(cell: SheetCell) -> str:
    if cell.measured is None:
        return rf"\textit{{{cell.placeholder}}}" if cell.placeholder else "-"
    return rf"{{\bfseries {_math(cell.ours)}}}" if cell.best else _math(cell.ours)


def _printed(printed: Printed | None, decimals: int, sheet: Sheet) -> str:
    return _gray(format_printed(printed, decimals) if printed else "", sheet.marks(printed))


def _gray(paper: str, marks: Sequence[int]) -> str:
    superscript = rf"\textsuperscript{{{','.join(map(str, marks))}}}" if marks else ""
    return rf"\textcolor{{gray}}{{{_math(paper) or '-'}}}{superscript}"


def _math(text: str) -> str:
    return text.replace(MINUS, "$-$").replace(" ± ", r"$\pm$").replace("< ", "$<$")


def _join(cells: Iterable[str]) -> str:
    line = " & ".join(cells) + r" \\"
    return f"{{}}{line}" if line.startswith(("[", "*")) else line  # which would belong to the line break above


def _cell_by_cell(sheet: Sheet) -> Iterator[str]:
    """Every cell on a line, in tables of a page each: `longtable` needs several passes, this needs one."""
    shown = [0, 1, 2, *[3, 4] * bool(sheet.collected.printed), 5, *[6, 7] * sheet.has_p]  # of the eight columns
    rows = [["Row", "Column", "Ours", "Paper", "Difference", "$n$", "$p$", "against"]]
    for cell in sheet.filled:
        first, *more = [(_p_value(test), escape(test.result.against)) for test in cell.p_tests] or [("-", "")]
        ours = r"\textit{not run}" if cell.measured is None and cell.row.not_run is not None else _ours(cell)
        count = str(cell.measured.n) if cell.measured else "-"
        names = (escape(cell.row.label), escape(cell.column))
        numbers = (ours, _gray(cell.paper, cell.marks), _math(cell.difference) or "-", count)
        rows += [[*names, *numbers, *first], *([*[""] * 6, *pair] for pair in more)]
    heads, *lines = (_join(row[index] for index in shown) for row in rows)
    layout = "".join("llrrrrrl"[index] for index in shown)
    for first_line in range(0, len(lines), _PAGE_LINES):
        yield r"\clearpage\begin{center}\small"
        yield _FIT
        yield rf"\begin{{tabular}}{{@{{}}{layout}@{{}}}}\toprule {heads} \midrule"
        yield from lines[first_line : first_line + _PAGE_LINES]
        yield r"\bottomrule\end{tabular}}\end{center}"
    if lines and sheet.has_p:
        yield rf"\par\footnotesize {_BOLD_P}"
