"""Row against row: differences and tests, with the paper's p-values beside ours."""

from collections.abc import Iterator, Sequence

from asrnorm.reporting.entry import DASH, Sheet, show, show_p, show_printed, show_range, show_signed
from asrnorm.reporting.pipe_table import escape, pipe_head, pipe_line, pipe_table
from asrnorm.studies import Printed
from asrnorm.studies.collect import Collected
from asrnorm.studies.statistics import TestResult

TESTS_NOTE = (
    "One-sided: is the first row better? `pooled` is the paper's two-sample t-test, `Welch` allows for unequal "
    "variances, `paired` pairs the runs by seed, `Holm` is `pooled` corrected for all tests here; the interval is a "
    "95 % bootstrap of the difference. There is no p-value with fewer than three seeds per row."
)
UNTESTED_NOTE = (
    "Differences of the means, first row minus second, with n of each. There is no p-value with fewer than three seeds "
    "per row."
)
# What `comparison_words` yields.
NUMBERS = ("difference", "95 % interval", "n", "pooled", "Welch", "paired", "Holm")


def is_tested(tests: Sequence[TestResult]) -> bool:
    """Whether any comparison has more than a difference."""
    return any(test.low is not None or test.pooled is not None for test in tests)


def find_printed(collected: Collected, test: TestResult) -> Printed | None:
    """Return the paper's p-value of a comparison."""
    pairs = (pair for pair in collected.study.comparisons if (pair.row, pair.against) == (test.row, test.against))
    return next((number for pair in pairs if (number := pair.printed.get(test.column))), None)


def compared(collected: Collected) -> list[Printed]:
    """Return the paper's p-values that stand in the table of comparisons."""
    if not is_tested(collected.tests):
        return []
    return [number for test in collected.tests if (number := find_printed(collected, test))]


def compare_in_markdown(collected: Collected, sheet: Sheet) -> str:
    """Return the comparisons of rows and what they mean: a line per column, or per pair where nothing is tested."""
    if is_tested(collected.tests):
        return f"{_tests(collected, sheet)}\n\n{TESTS_NOTE}"
    return f"{_differences(collected.tests, sheet)}\n\n{UNTESTED_NOTE}"


def _tests(collected: Collected, sheet: Sheet) -> str:
    paper = bool(compared(collected))
    lines = [pipe_head(["row", "against", "column", *NUMBERS, *["paper"] * paper], words=3)]
    for test in collected.tests:
        names = [escape(name) for name in (test.row, test.against, test.column)]
        printed = [_show_marked(find_printed(collected, test), sheet)] * paper
        lines.append(pipe_line([*names, *comparison_words(test, sheet), *printed]))
    return "\n".join(lines)


def _show_marked(printed: Printed | None, sheet: Sheet) -> str:
    marks = "".join(f"[{mark}]" for mark in sheet.marks(printed))
    return f"{show_printed(printed, 3)}{marks}" if printed else DASH


def _differences(tests: Sequence[TestResult], sheet: Sheet) -> str:
    there = {test.column for test in tests}
    columns = [column for column in sheet.columns if column in there]
    pairs: dict[tuple[str, str], dict[str, TestResult]] = {}
    for test in tests:
        pairs.setdefault((test.row, test.against), {})[test.column] = test
    grid = [["row", "against", "n", *map(escape, columns)]]
    for names, found in pairs.items():
        counts = [show_range([test.n for test in found.values()]), show_range([t.n_against for t in found.values()])]
        gaps = [next(comparison_words(found[column], sheet)) if column in found else DASH for column in columns]
        grid.append([*map(escape, names), ", ".join(counts), *gaps])
    return pipe_table(grid, words=2)


def comparison_words(test: TestResult, sheet: Sheet) -> Iterator[str]:
    """Yield difference, interval, n and the four p-values of a comparison as text."""
    decimals = sheet.entries[test.row, test.column].own_decimals
    yield show_signed(test.difference, decimals)
    bounds = (test.low, test.high)
    yield " to ".join(show(bound, decimals) for bound in bounds if bound is not None) or DASH
    yield f"{test.n}, {test.n_against}"
    for p in (test.pooled, test.welch, test.paired, test.holm):
        yield DASH if p is None else show_p(p)
