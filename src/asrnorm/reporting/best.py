"""Which of our numbers in a column is the best: among rows that see no more than others, over no fewer seeds."""

from collections.abc import Iterator, Mapping

from asrnorm.studies.collect import Collected, Measured
from asrnorm.studies.spec import Unit
from asrnorm.studies.statistics import FEWEST


def find_best(collected: Collected, column: str, decimals: Mapping[Unit, int]) -> set[str]:
    """Return the labels of the rows with our best number; nothing to compare, nothing is best.

    Neither is anything where only rows of too few seeds have that number.

    Args:
        collected: the study with what was found of it.
        column: in which.
        decimals: that are shown of a unit: numbers that read alike are both best.
    """
    if column in collected.study.shown_only:
        return set()
    found = {}
    kinds: set[tuple[object, ...]] = set()  # numbers of two quantities or suites are not held against each other
    for row in collected.study.rows:
        measured = collected.cells.get((row.label, column))
        if measured is None or any(_privileges(measured)):
            continue
        measure = row.cells[column].measure
        sign = 1 if measure.better == "higher" else -1
        suites = {run.recipe.partition(".")[0] for run in row.cells[column].runs}
        kinds.add((sign, measure.quantity, *sorted(suites)))
        found[row.label] = round(sign * measured.mean, decimals[measure.unit])
    if len(found) < 2 or len(kinds) > 1 or "parameters" in next(iter(kinds)):
        return set()
    top = max(found.values())
    return {label for label, value in found.items() if value == top} - _with_few_seeds(collected, column)


def set_apart(collected: Collected) -> str:
    """Return which rows are not marked, as the end of a sentence on the best; nothing where all may be."""
    reasons = dict.fromkeys(reason for measured in collected.cells.values() for reason in _privileges(measured))
    columns = (column for column in collected.study.columns if column not in collected.study.shown_only)
    apart = f", not counting rows {' or '.join(reasons)}" if reasons else ""
    if any(_with_few_seeds(collected, column) for column in columns):
        return f"{apart}, none where a row of fewer than {FEWEST} seeds is better"
    return apart


def _with_few_seeds(collected: Collected, column: str) -> set[str]:
    """Rows whose seeds are too few for a test, where others have enough: a single run may be the best by chance."""
    counts = {
        label: measured.n
        for (label, place), measured in collected.cells.items()
        if place == column and not any(_privileges(measured))
    }
    few = {label for label, count in counts.items() if count < FEWEST}
    return few if len(few) < len(counts) else set()


def _privileges(measured: Measured) -> Iterator[str]:
    if any(record.spec.sees_test_batches for record in measured.records):
        yield "that see whole batches of test images"
    if any(record.result.selection == "oracle" for record in measured.records):
        yield "whose epochs are chosen on the targets"
