"""Tables on the terminal: their common format, and scores by domain, corruption and attack."""

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from asrnorm.core.errors import count_of, printable

if TYPE_CHECKING:
    from asrnorm.core.results import DomainScore, RunResult
    from asrnorm.evaluation import SuiteScore

_METRICS = ("accuracy %", "brier", "brier_sum", "nll", "ece")


def make_table(
    *headings: str | Text, wrap: Collection[str | Text] = (), numbers: bool = False, title: str | None = None
) -> Table:
    """Return an empty table without borders.

    The text of columns whose headings are in `wrap` may take several lines; `numbers` aligns all columns but the first
    to the right.
    """
    table = Table(box=None, pad_edge=False, title=title, title_justify="left")
    for index, heading in enumerate(headings):
        table.add_column(heading, no_wrap=heading not in wrap, overflow="fold")
        if numbers and index:
            table.columns[index].justify = "right"
    return table


def print_scores(scores: "SuiteScore | RunResult") -> None:
    """Print the source, the targets and their average, and the missing targets; corruptions by severity and kind."""
    console = Console(highlight=False)
    by_severity = bool(scores.domains) and all("/" in domain.name for domain in scores.domains)
    if by_severity:
        rows = [(f"severity {level}", domains) for level, domains in _group(scores.domains, 1).items()]
    else:
        rows = [(domain.name, [domain]) for domain in scores.domains]
    console.print(_score_table([(scores.source.name, [scores.source]), *rows]))
    if by_severity:
        console.print(_corruption_table(scores.domains))
    if scores.domains:
        count = count_of(len(scores.domains), "unseen domain")
        console.print(f"average accuracy on {count}: {100 * scores.average_accuracy:.2f} %")
    if scores.missing:
        parts = dict.fromkeys(name.partition("/")[0] for name in scores.missing)  # a corruption once, not five times
        line = f"missing: {printable(', '.join(parts))}; asrnorm data list says how to get them"
        console.print(line, markup=False, soft_wrap=True)


def print_domains(domains: Sequence["DomainScore"]) -> None:
    """Print scores without a source, and their average if there are several."""
    console = Console(highlight=False)
    console.print(_score_table([(domain.name, [domain]) for domain in domains]))
    if len(domains) > 1:
        average = sum(domain.accuracy for domain in domains) / len(domains)
        console.print(f"average accuracy on {len(domains)} domains: {100 * average:.2f} %")


def print_attacks(attacks: Mapping[str, float], clean: "DomainScore") -> None:
    """Print the clean accuracy and the accuracy under each attack."""
    table = make_table("attack", "accuracy %", numbers=True)
    for name, accuracy in {"none": clean.accuracy, **attacks}.items():
        table.add_row(escape(name), f"{100 * accuracy:.2f}")
    Console(highlight=False).print(table)


def _score_table(rows: Sequence[tuple[str, Sequence["DomainScore"]]]) -> Table:
    """Return a table with the unweighted mean of every metric over the domains of each row."""
    table = make_table("domain", *_METRICS, "images", numbers=True)
    for name, domains in rows:
        accuracy, *others = (
            sum(getattr(domain, metric.removesuffix(" %")) for domain in domains) / len(domains) for metric in _METRICS
        )
        numbers = [f"{100 * accuracy:.2f}", *(f"{value:.4f}" for value in others)]
        table.add_row(escape(printable(name)), *numbers, f"{sum(domain.num_samples for domain in domains):,}")
    return table


def _corruption_table(domains: Sequence["DomainScore"]) -> Table:
    severities = list(_group(domains, 1))
    table = make_table("accuracy %", *(escape(printable(severity)) for severity in severities), "mean", numbers=True)
    for corruption, row in _group(domains, 0).items():
        accuracy = {domain.name.partition("/")[2]: 100 * domain.accuracy for domain in row}
        cells = [f"{accuracy[severity]:.1f}" if severity in accuracy else "" for severity in severities]
        table.add_row(escape(printable(corruption)), *cells, f"{sum(accuracy.values()) / len(accuracy):.1f}")
    return table


def _group(domains: Sequence["DomainScore"], part: int) -> dict[str, list["DomainScore"]]:
    """Group domains named `corruption/severity` by one of the two parts."""
    groups: dict[str, list[DomainScore]] = {}
    for domain in domains:
        groups.setdefault(domain.name.split("/", 1)[part], []).append(domain)
    return groups
