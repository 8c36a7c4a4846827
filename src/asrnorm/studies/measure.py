"""Reads the number of a cell off a result, and restricts averages to the domains that are available."""

import re
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from math import fsum

from asrnorm.core.results import DomainScore, RunResult
from asrnorm.studies.spec import Measure, Printed, Row, Study

_MEAN_OF_REST = "the mean of the paper's numbers on the available domains; the printed number is given below"
_FACTOR = {"percent": 100.0, "plain": 1.0, "millions": 1e-6}


def read_measure(measure: Measure, result: RunResult, without: frozenset[str] = frozenset()) -> float | None:
    """Return the number that a measure reads off a result, in its unit; `None` if the result does not have it.

    Averages leave out the domains in `without`, which other rows of the column lack.
    """
    value = _read(measure, result, without)
    return None if value is None else value * _FACTOR[measure.unit]


def _read(measure: Measure, result: RunResult, without: frozenset[str]) -> float | None:
    if measure.quantity == "parameters":
        count = result.num_parameters
        return (count - measure.baseline) / measure.baseline if measure.baseline else float(count)
    if measure.quantity == "adversarial":
        return result.adversarial.get(measure.attack)
    if measure.quantity == "validation":
        return result.validation.get(measure.rule)
    if measure.on_source:
        return _score(measure, result.source)
    seen = {d.name: _score(measure, d) for d in result.domains if matches(measure, d.name)}
    # If nothing is left, the column is of one domain that another row lacks: no average, so its value is shown.
    values = [value for name, value in seen.items() if name not in without] or list(seen.values())
    return fsum(values) / len(values) if values else None


def _score(measure: Measure, domain: DomainScore) -> float:
    return 1 - domain.accuracy if measure.quantity == "error" else float(getattr(domain, measure.quantity))


def matches(measure: Measure, domain: str) -> bool:
    """Return whether a measure includes a domain."""
    # A user's folder may be called `cam [night]`, which does not match itself as a pattern.
    return not measure.domains or any(domain == name or fnmatchcase(domain, name) for name in measure.domains)


def find_missing(measure: Measure, result: RunResult) -> set[str]:
    """Return the domains that a measure includes and a result lacks."""
    if measure.on_source or measure.quantity in ("parameters", "adversarial", "validation"):
        return set()
    return {name for name in result.missing if matches(measure, name)}


def restrict_printed(row: Row, column: str, gone: Mapping[str, frozenset[str]]) -> Printed:
    """Return the paper's number in a cell; an average is taken over the available domains if some are missing.

    That is possible only if each of the row's other cells is of one domain, and those available have a printed number.
    """
    cell, lost = row.cells[column], gone[column]
    assert cell.printed is not None
    if not lost or cell.measure.domains:
        return cell.printed
    quantity = cell.measure.quantity
    parts = [other for other in row.cells.values() if other.measure.domains and other.measure.quantity == quantity]
    left = [part for part in parts if not any(matches(part.measure, domain) for domain in lost)]
    numbers = [part.printed.value for part in left if part.printed is not None]
    if not all(_is_single(part.measure) for part in parts) or not left or len(numbers) < len(left):
        return cell.printed
    mean = fsum(numbers) / len(numbers)
    return Printed(value=round(mean, 2), copied_from=cell.printed.copied_from, note=_MEAN_OF_REST)


def restrict_differences(
    study: Study, printed: Mapping[tuple[str, str], Printed], gone: Mapping[str, frozenset[str]]
) -> dict[tuple[str, str, str], Printed]:
    """Return the paper's differences of rows, by both labels and column, where the available domains give them."""
    rows = {row.label: row for row in study.rows}
    found = {}
    for pair in study.comparisons:
        for column, number in pair.differences.items():
            ours, theirs = (printed.get((label, column)) for label in (pair.row, pair.against))
            if not gone[column] or _is_single(rows[pair.row].cells[column].measure):
                found[pair.row, pair.against, column] = number
            elif ours and theirs and ours.note == theirs.note == _MEAN_OF_REST:
                note = "the difference of the paper's means on the available domains; the paper prints"
                left = Printed(value=round(ours.value - theirs.value, 2), note=f"{note} {number.value:g}")
                found[pair.row, pair.against, column] = left
    return found


def _is_single(measure: Measure) -> bool:
    """Return whether a measure is of one domain; a star that `glob.escape` escaped does not make a pattern."""
    return len(measure.domains) == 1 and "*" not in re.sub(r"\[[*?[]\]", "", measure.domains[0])


def describe_missing(study: Study, gone: Mapping[str, frozenset[str]]) -> Iterator[str]:
    """Yield sentences on the domains that are missing and what the averages are over."""
    lost = sorted(set().union(*gone.values()))
    if not lost:
        return
    names = ", ".join(lost) if len(lost) <= 4 else f"{len(lost)} domains ({', '.join(lost[:3])}, ...)"
    cells = [cell for row in study.rows for cell in row.cells.values()]
    measures = [cell.measure for cell in cells]
    single = all(not measure.domains or _is_single(measure) for measure in measures)
    if not any(cell.printed for cell in cells):
        yield f"Not available: {names}. Averages are over the other domains."
    elif single and any(measure.domains for measure in measures):
        yield f"Not available: {names}. Averages, ours and the paper's, are over the other domains."
        printed = [
            f"{row.label} {cell.printed.value:g}"
            for row in study.rows
            for column, cell in row.cells.items()
            if gone[column] and cell.printed is not None and not cell.measure.domains
        ]
        if printed:
            yield f"The paper's averages as printed, over all its domains: {', '.join(printed)}."
    else:
        yield f"Not available: {names}. Our averages are over the other domains; the paper's are over all of them."
