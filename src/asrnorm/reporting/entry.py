"""What a report shows of one cell: ours, the paper's, their difference, p and n. Every format reads it from here."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from asrnorm.reporting.best import find_best
from asrnorm.studies import Cell, Printed, Row, RunSpec
from asrnorm.studies.collect import Collected, Measured
from asrnorm.studies.spec import Unit
from asrnorm.studies.statistics import TestResult

State = Literal["measured", "diverged", "missing", "no data", "not run", "absent"]
IN_PLACE_OF_A_NUMBER: dict[str, str] = {"missing": "missing", "no data": "no data", "diverged": "NaN"}  # by state
DECIMALS: dict[Unit, int] = {"percent": 1, "plain": 3, "millions": 2}  # of the paper's numbers
# Paper: Brier scores have three, at which most of our deviations would be zero.
OWN_DECIMALS: dict[Unit, int] = {**DECIMALS, "plain": 4}
MINUS, DASH = "\N{MINUS SIGN}", "\N{EN DASH}"


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One cell as it is shown.

    Attributes:
        state: `missing` is still to be run, `no data` was run without the images of the column, `not run` never will
            be, `diverged` has lost its finite loss, `absent` is a dash in the paper or a domain that the row's runs are
            not scored on.
        decimals: of the paper's number, and of ours less the paper's.
        own_decimals: of our number.
        best: of our numbers in its column, without rows that see what the others may not.
        tests: comparisons in which this cell's row is asked to be the better one.
        marks: numbers of the footnotes that belong to it.
        runs: what stands behind it, done or not.
        diverged: seeds whose run lost its finite loss.
    """

    row: str
    column: str
    state: State
    decimals: int = 1
    own_decimals: int = 1
    measured: Measured | None = None
    printed: Printed | None = None
    best: bool = False
    tests: tuple[TestResult, ...] = ()
    marks: tuple[int, ...] = ()
    runs: tuple[RunSpec, ...] = ()
    diverged: tuple[int, ...] = ()

    @property
    def difference(self) -> float | None:
        """Ours less the paper's, in the unit of the table."""
        if self.measured is None or self.printed is None:
            return None
        return self.measured.mean - self.printed.value


@dataclass(frozen=True, kw_only=True)
class Sheet:
    """All cells of a study, row by row, with their footnotes.

    Attributes:
        entries: by row label and column; every pair is there.
        footnotes: in the order of their numbers, from 1.
        notes: what concerns the table as a whole and bears no number.
    """

    rows: tuple[Row, ...]
    columns: tuple[str, ...]
    entries: Mapping[tuple[str, str], Entry]
    footnotes: tuple[str, ...]
    notes: tuple[str, ...]

    def marks(self, printed: Printed | None) -> tuple[int, ...]:
        """Return the numbers of the footnotes to one of the paper's numbers."""
        return tuple(self.footnotes.index(text) + 1 for text in _remarks(printed))

    def footnotes_to(self, beside: Iterable[Printed]) -> Iterator[tuple[int, str]]:
        """Yield number and text of the footnotes to the cells, and to what else is shown of the paper's numbers."""
        used = {mark for entry in self.entries.values() for mark in entry.marks}
        used.update(mark for number in beside for mark in self.marks(number))
        return ((number, text) for number, text in enumerate(self.footnotes, start=1) if number in used)

    def only(self, rows: Iterable[Row]) -> "Sheet":
        """Return a sheet of some rows; footnotes keep their numbers."""
        kept = tuple(rows)
        labels = {row.label for row in kept}
        entries = {place: entry for place, entry in self.entries.items() if entry.row in labels}
        return replace(self, rows=kept, entries=entries)

    def of(self, row: Row) -> Iterator[Entry]:
        """Yield the cells of a row in the order of the columns."""
        return (self.entries[row.label, column] for column in self.columns)


def lay_out(collected: Collected) -> Sheet:
    """Return every cell of a study with all that a report says of it."""
    study = collected.study
    best = {column: find_best(collected, column, OWN_DECIMALS) for column in study.columns}
    tests: dict[tuple[str, str], list[TestResult]] = {}
    for test in collected.tests:
        tests.setdefault((test.row, test.column), []).append(test)
    footnotes: dict[str, int] = {}
    entries = {}
    for row in study.rows:
        for column in study.columns:
            cell, place = row.cells.get(column), (row.label, column)
            measured, printed = collected.cells.get(place), collected.printed.get(place)
            diverged = collected.diverged.get(place, ())
            entries[place] = Entry(
                row=row.label,
                column=column,
                state="no data" if place in collected.no_data else _state(row, cell, measured, bool(diverged)),
                decimals=DECIMALS[cell.measure.unit] if cell else 1,
                own_decimals=OWN_DECIMALS[cell.measure.unit] if cell else 1,
                measured=measured,
                printed=printed,
                best=measured is not None and row.label in best[column],
                tests=tuple(tests.get((row.label, column), ())),
                marks=tuple(footnotes.setdefault(text, len(footnotes) + 1) for text in _remarks(printed)),
                runs=cell.runs if cell else (),
                diverged=diverged,
            )
    for number in _compared(collected):
        for text in _remarks(number):
            footnotes.setdefault(text, len(footnotes) + 1)
    return Sheet(
        rows=study.rows,
        columns=study.columns,
        entries=entries,
        footnotes=tuple(footnotes),
        notes=collected.footnotes,
    )


def _compared(collected: Collected) -> Iterator[Printed]:
    """What the paper prints of two rows, what most formats show first: numbers of footnotes have no gap then."""
    tested = {(test.row, test.against, test.column) for test in collected.tests}
    p_values = {
        (pair.row, pair.against, column): number
        for pair in collected.study.comparisons
        for column, number in pair.printed.items()
    }
    yield from (number for place, number in p_values.items() if place in tested)
    yield from (number for place, number in p_values.items() if place not in tested)
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


def show(value: float, decimals: int) -> str:
    """Return a number with a fixed count of decimals and a true minus sign.

    Example:
        >>> show(-0.04, 1), show(52.75, 1)
        ('0.0', '52.8')
    """
    text = f"{value:.{decimals}f}"
    return text.lstrip("-") if float(text) == 0 else text.replace("-", MINUS)


def show_spread(deviation: float, decimals: int) -> str:
    """Return a deviation, with up to three more decimals where it takes them to tell it from none.

    Example:
        >>> show_spread(1.26, 1), show_spread(0.004, 1), show_spread(0.0, 1), show_spread(1e-14, 1)
        ('1.3', '0.004', '0.0', '0.0')
    """
    finer = (count for count in range(decimals, decimals + 4) if float(f"{deviation:.{count}f}") != 0)
    return show(deviation, next(finer, decimals))


def show_signed(value: float, decimals: int) -> str:
    """Return a difference, with its sign.

    Example:
        >>> show_signed(1.25, 1), show_signed(-1.0, 1), show_signed(0.0, 1)
        ('+1.2', '−1.0', '0.0')
    """
    text = show(value, decimals)
    return text if text.startswith(MINUS) or float(text) == 0 else f"+{text}"


def show_measured(measured: Measured, decimals: int) -> str:
    """Return mean and deviation, the deviation left out where there is one run."""
    spread = "" if measured.deviation is None else f" ± {show_spread(measured.deviation, decimals)}"
    return f"{show(measured.mean, decimals)}{spread}"


def show_printed(printed: Printed, decimals: int) -> str:
    """Return the paper's number as it prints it.

    Example:
        >>> show_printed(Printed(value=52.8, deviation=3.8), 1), show_printed(Printed(value=0.001, below=True), 3)
        ('52.8 ± 3.8', '< 0.001')
    """
    spread = "" if printed.deviation is None else f" ± {show(printed.deviation, decimals)}"
    return f"{'< ' if printed.below else ''}{show(printed.value, decimals)}{spread}"


def show_p(p: float) -> str:
    """Return a p-value to three decimals.

    Example:
        >>> show_p(0.0364), show_p(1e-5)
        ('0.036', '< 0.001')
    """
    return "< 0.001" if p < 0.0005 else f"{p:.3f}"


def show_range(values: Sequence[int]) -> str:
    """Return one number, or the least and the greatest.

    Example:
        >>> show_range([5, 5]), show_range([3, 1, 2]), show_range([200_000])
        ('5', '1 to 3', '200,000')
    """
    low, high = min(values), max(values)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"
