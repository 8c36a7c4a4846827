"""A study's table, computed once: what every format shows of each cell and of each comparison of two rows."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

from asrnorm.reporting.text import (
    DASH,
    describe_provenance,
    format_measured,
    format_number,
    format_p,
    format_printed,
    format_signed,
)
from asrnorm.studies import Cell, Printed, Row, RunSpec
from asrnorm.studies.collect import Collected, Measured
from asrnorm.studies.spec import Unit
from asrnorm.studies.statistics import FEWEST, TestResult

# `missing` is still to be run, `not run` never will be, `no data` was run without the images of the column, `diverged`
# has lost its finite loss, `absent` is a dash in the paper or a domain that the row's runs are not scored on.
State = Literal["measured", "diverged", "missing", "no data", "not run", "absent"]
PLACEHOLDERS: dict[str, str] = {"missing": "missing", "no data": "no data", "diverged": "NaN"}  # by state
DECIMALS: dict[Unit, int] = {"percent": 1, "plain": 3, "millions": 2}  # of the paper's numbers
# Paper: Brier scores have three, at which most of our deviations would be zero.
OWN_DECIMALS: dict[Unit, int] = {**DECIMALS, "plain": 4}
# The numbers of a comparison, by which `SheetTest.texts` and `SheetTest.values` are keyed.
TEST_NUMBERS = ("difference", "95 % interval", "n", "pooled", "Welch", "paired", "Holm")
TESTS_NOTE = (
    "One-sided: is the first row better? `pooled` is the paper's two-sample t-test, `Welch` allows for unequal "
    "variances, `paired` pairs the runs by seed, `Holm` is `pooled` corrected for all tests here; the interval is a "
    "95 % bootstrap of the difference. There is no p-value with fewer than three seeds per row."
)
UNTESTED_NOTE = (
    "Differences of the means, first row minus second, with n of each. There is no p-value with fewer than three seeds "
    "per row."
)


@dataclass(frozen=True, kw_only=True)
class SheetCell:
    """One cell: numbers as text, empty where there is none, and what they come from."""

    row: Row
    column: str
    state: State
    ours: str = ""
    paper: str = ""
    difference: str = ""  # ours minus the paper's, with its sign
    gap: float | None = None  # the same as a number, in the unit of the table
    decimals: int = 1  # of the paper's number and of the difference
    best: bool = False  # of our numbers in its column, without rows that see what the others may not
    measured: Measured | None = None
    printed: Printed | None = None
    tests: tuple["SheetTest", ...] = ()  # in which this cell's row is asked to be the better one
    marks: tuple[int, ...] = ()  # numbers of the footnotes that belong to it
    runs: tuple[RunSpec, ...] = ()
    diverged: tuple[int, ...] = ()  # seeds whose run lost its finite loss

    @property
    def placeholder(self) -> str:
        """What stands in place of our number: `missing`, `no data`, `NaN` or nothing."""
        return PLACEHOLDERS.get(self.state, "")

    @property
    def p_tests(self) -> list["SheetTest"]:
        """The tests that have a p-value."""
        return [test for test in self.tests if test.result.pooled is not None]


@dataclass(frozen=True, kw_only=True)
class SheetTest:
    """One row against another in one column."""

    result: TestResult
    texts: Mapping[str, str]  # its numbers, by the names in `TEST_NUMBERS`
    values: Mapping[str, float | None]
    printed: Printed | None  # the paper's p-value
    paper: str  # the same as text, a dash where there is none
    marks: tuple[int, ...]  # numbers of the footnotes to it


@dataclass(frozen=True, kw_only=True)
class Sheet:
    """All cells and comparisons of a study; every pair of row label and column has a cell."""

    collected: Collected
    rows: tuple[Row, ...]
    columns: tuple[str, ...]
    cells: Mapping[tuple[str, str], SheetCell]
    tests: tuple[SheetTest, ...]
    footnotes: tuple[str, ...]  # in the order of their numbers, from 1
    notes: tuple[str, ...]  # on the table as a whole, without numbers

    def in_row(self, row: Row) -> list[SheetCell]:
        """Return the cells of a row in the order of the columns."""
        return [self.cells[row.label, column] for column in self.columns]

    @property
    def filled(self) -> Iterator[SheetCell]:
        """Every cell that has a number or waits for one, row by row."""
        every = (cell for row in self.rows for cell in self.in_row(row))
        return (cell for cell in every if cell.state != "absent" or cell.printed is not None)

    @property
    def is_tested(self) -> bool:
        """Whether any comparison has more than a difference."""
        return any(test.result.low is not None or test.result.pooled is not None for test in self.tests)

    @property
    def has_p(self) -> bool:
        """Whether any comparison has a p-value."""
        return any(test.result.pooled is not None for test in self.tests)

    @property
    def has_best(self) -> bool:
        """Whether any cell is marked as the best of its column."""
        return any(cell.best for cell in self.cells.values())

    @cached_property
    def provenance(self) -> str:
        """Where the numbers come from; "" where there are none."""
        return describe_provenance(self.collected)

    def marks(self, printed: Printed | None) -> tuple[int, ...]:
        """Return the numbers of the footnotes to one of the paper's numbers."""
        return tuple(self.footnotes.index(text) + 1 for text in _remarks(printed))

    def footnotes_to(self, others: Iterable[Printed] = ()) -> Iterator[tuple[int, str]]:
        """Yield number and text of the footnotes to the cells, and to other numbers of the paper that are shown."""
        used = {mark for cell in self.cells.values() for mark in cell.marks}
        used.update(mark for number in others for mark in self.marks(number))
        return ((number, text) for number, text in enumerate(self.footnotes, start=1) if number in used)

    @property
    def printed_p(self) -> list[Printed]:
        """The paper's p-values of the comparisons."""
        return [test.printed for test in self.tests if test.printed is not None]


def build_sheet(collected: Collected) -> Sheet:
    """Return every cell and comparison of a study with all that a report says of it."""
    study = collected.study
    keys = [(row.label, column) for row in study.rows for column in study.columns]
    shown = [number for key in keys if (number := collected.printed.get(key))]
    remarks = [text for number in (*shown, *_printed_comparisons(collected)) for text in _remarks(number)]
    marks = {text: number for number, text in enumerate(dict.fromkeys(remarks), start=1)}
    tests = tuple(_build_test(collected, test, marks) for test in collected.tests)
    best = {column: _find_best(collected, column) for column in study.columns}
    cells = {}
    for row in study.rows:
        for column in study.columns:
            cell = _build_cell(collected, row, column, marks)
            found = tuple(test for test in tests if (test.result.row, test.result.column) == (row.label, column))
            cells[row.label, column] = replace(cell, tests=found, best=row.label in best[column])
    return Sheet(
        collected=collected,
        rows=study.rows,
        columns=study.columns,
        cells=cells,
        tests=tests,
        footnotes=tuple(marks),
        notes=collected.footnotes,
    )


def _build_cell(collected: Collected, row: Row, column: str, marks: Mapping[str, int]) -> SheetCell:
    cell, key = row.cells.get(column), (row.label, column)
    measured, printed = collected.cells.get(key), collected.printed.get(key)
    diverged = collected.diverged.get(key, ())
    decimals = DECIMALS[cell.measure.unit] if cell else 1
    gap = measured.mean - printed.value if measured and printed else None
    return SheetCell(
        row=row,
        column=column,
        state="no data" if key in collected.no_data else _state(row, cell, measured, bool(diverged)),
        ours=format_measured(measured, OWN_DECIMALS[cell.measure.unit]) if measured and cell else "",
        paper=format_printed(printed, decimals) if printed else "",
        difference="" if gap is None else format_signed(gap, decimals),
        gap=gap,
        decimals=decimals,
        measured=measured,
        printed=printed,
        marks=tuple(marks[text] for text in _remarks(printed)),
        runs=cell.runs if cell else (),
        diverged=diverged,
    )


def _build_test(collected: Collected, test: TestResult, marks: Mapping[str, int]) -> SheetTest:
    row = next(row for row in collected.study.rows if row.label == test.row)
    decimals = OWN_DECIMALS[row.cells[test.column].measure.unit]
    bounds = [format_number(bound, decimals) for bound in (test.low, test.high) if bound is not None]
    p = (test.pooled, test.welch, test.paired, test.holm)
    texts = (
        format_signed(test.difference, decimals),
        " to ".join(bounds) or DASH,
        f"{test.n}, {test.n_against}",
        *(DASH if one is None else format_p(one) for one in p),
    )
    pairs = [pair for pair in collected.study.comparisons if (pair.row, pair.against) == (test.row, test.against)]
    printed = next((pair.printed[test.column] for pair in pairs if test.column in pair.printed), None)
    return SheetTest(
        result=test,
        texts=dict(zip(TEST_NUMBERS, texts, strict=True)),
        values=dict(zip(TEST_NUMBERS, (test.difference, test.low, test.n, *p), strict=True)),
        printed=printed,
        paper=format_printed(printed, 3) if printed else DASH,
        marks=tuple(marks[text] for text in _remarks(printed)),
    )


def _printed_comparisons(collected: Collected) -> Iterator[Printed]:
    """What the paper prints of two rows, first what most formats show, so that their footnotes have no gap."""
    tested = {(test.row, test.against, test.column) for test in collected.tests}
    p_values = {
        (pair.row, pair.against, column): number
        for pair in collected.study.comparisons
        for column, number in pair.printed.items()
    }
    yield from (p_values[key] for key in sorted(p_values, key=lambda key: key not in tested))
    yield from collected.differences.values()


def _state(row: Row, cell: Cell | None, measured: Measured | None, diverged: bool) -> State:
    if measured is not None:
        return "measured"
    if diverged:
        return "diverged"
    if row.not_run is not None and (cell is None or not cell.runs):
        return "not run"
    return "missing" if cell is not None and cell.runs else "absent"


def _remarks(printed: Printed | None) -> Iterator[str]:
    if printed is None:
        return
    if printed.copied_from:
        yield f"The paper's number is copied from {printed.copied_from}."
    if printed.note:
        yield printed.note[0].upper() + printed.note[1:].rstrip(".") + "."


def _find_best(collected: Collected, column: str) -> set[str]:
    """Return the labels of the rows with our best number in a column; numbers that read alike are both best.

    Nothing is best where there is nothing to compare, or where rows differ in quantity or suite. Rows that see more
    than the others do not count, nor do rows of too few seeds for a test where others have more.
    """
    if column in collected.study.shown_only:
        return set()
    found = {}
    kinds: set[tuple[object, ...]] = set()
    for row in collected.study.rows:
        measured = collected.cells.get((row.label, column))
        if measured is None or any(_privileges(row, measured)):
            continue
        measure = row.cells[column].measure
        sign = 1 if measure.better == "higher" else -1
        suites = {run.recipe.partition(".")[0] for run in row.cells[column].runs}
        kinds.add((sign, measure.quantity, *sorted(suites)))
        found[row.label] = round(sign * measured.mean, OWN_DECIMALS[measure.unit])
    if len(found) < 2 or len(kinds) > 1 or "parameters" in next(iter(kinds)):
        return set()
    top = max(found.values())
    return {label for label, value in found.items() if value == top} - _with_few_seeds(collected, column)


def describe_unmarked(collected: Collected) -> str:
    """Return which rows are never marked as best, as the end of a sentence; "" where every row may be."""
    rows = {row.label: row for row in collected.study.rows}
    measured_rows = [(rows[label], measured) for (label, _), measured in collected.cells.items()]
    reasons = dict.fromkeys(reason for row, measured in measured_rows for reason in _privileges(row, measured))
    columns = (column for column in collected.study.columns if column not in collected.study.shown_only)
    text = f", not counting rows {' or '.join(reasons)}" if reasons else ""
    if any(_with_few_seeds(collected, column) for column in columns):
        text += f", none where a row of fewer than {FEWEST} seeds is better"
    return text


def _with_few_seeds(collected: Collected, column: str) -> set[str]:
    """Rows with too few seeds for a test, and fewer than others: a single run may be the best by chance."""
    found = ((row, collected.cells.get((row.label, column))) for row in collected.study.rows)
    counts = {row.label: measured.n for row, measured in found if measured and not any(_privileges(row, measured))}
    return {label for label, count in counts.items() if count < min(FEWEST, max(counts.values()))}


def _privileges(row: Row, measured: Measured) -> Iterator[str]:
    if row.found_on_targets:
        yield "whose settings were found on the targets"
    if any(record.spec.sees_test_batches for record in measured.records):
        yield "that see whole batches of test images"
    if any(record.result.selection == "oracle" for record in measured.records):
        yield "whose epochs are chosen on the targets"
