"""Scores as tables: a row a domain, or corruption by severity where domains are named so."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from asrnorm.core.errors import printable

if TYPE_CHECKING:
    from asrnorm.core.results import DomainScore, RunResult
    from asrnorm.evaluation import SuiteScore

_METRICS = ("accuracy %", "brier", "brier_sum", "nll", "ece")


def print_scores(scores: "SuiteScore | RunResult") -> None:
    """Print the source, the targets and their average, and what is missing."""
    console = Console(highlight=False)
    by_severity = bool(scores.domains) and all("/" in domain.name for domain in scores.domains)
    table = _table("domain", *_METRICS, "images")
    _add(table, scores.source)
    if by_severity:
        for severity, domains in _group(scores.domains, 1).items():
            total = sum(domain.num_samples for domain in domains)
            table.add_row(f"severity {escape(printable(severity))}", *_cells(domains), f"{total:,}")
    else:
        for domain in scores.domains:
            _add(table, domain)
    console.print(table)
    if by_severity:
        console.print(_corruption_table(scores.domains))
    if scores.domains:
        seen = f"{len(scores.domains)} unseen domain{'s' * (len(scores.domains) != 1)}"
        console.print(f"average accuracy on {seen}: {100 * scores.average_accuracy:.2f} %")
    if scores.missing:
        parts = dict.fromkeys(name.partition("/")[0] for name in scores.missing)  # a corruption once, not five times
        console.print(
            f"missing: {printable(', '.join(parts))}; asrnorm data list says how to get them",
            markup=False,
            soft_wrap=True,
        )


def print_places(domains: Sequence["DomainScore"]) -> None:
    """Print scores that have no source beside them, and the average of several."""
    console = Console(highlight=False)
    table = _table("place", *_METRICS, "images")
    for domain in domains:
        _add(table, domain)
    console.print(table)
    if len(domains) > 1:
        average = sum(domain.accuracy for domain in domains) / len(domains)
        console.print(f"average accuracy on {len(domains)} places: {100 * average:.2f} %")


def _add(table: Table, domain: "DomainScore") -> None:
    table.add_row(escape(printable(domain.name)), *_cells([domain]), f"{domain.num_samples:,}")


def print_validation(found: Mapping[str, float]) -> None:
    """Print the accuracy on validation images of the source, by the rule of selection that looks at it."""
    for rule, accuracy in found.items():
        Console(highlight=False).print(f"{rule} accuracy, on held-out images of the source: {100 * accuracy:.2f} %")


def print_attacks(attacks: Mapping[str, float], clean: "DomainScore") -> None:
    """Print the accuracy under each attack, below the clean one."""
    table = _table("attack", "accuracy %")
    table.add_row("none", f"{100 * clean.accuracy:.2f}")
    for name, accuracy in attacks.items():
        table.add_row(escape(name), f"{100 * accuracy:.2f}")
    Console(highlight=False).print(table)


def _corruption_table(domains: Sequence["DomainScore"]) -> Table:
    severities = list(_group(domains, 1))
    table = _table("accuracy %", *severities, "mean")
    for corruption, row in _group(domains, 0).items():
        accuracy = {domain.name.partition("/")[2]: 100 * domain.accuracy for domain in row}
        cells = [f"{accuracy[severity]:.1f}" if severity in accuracy else "" for severity in severities]
        table.add_row(escape(printable(corruption)), *cells, f"{sum(accuracy.values()) / len(accuracy):.1f}")
    return table


def _group(domains: Sequence["DomainScore"], part: int) -> dict[str, list["DomainScore"]]:
    groups: dict[str, list[DomainScore]] = {}
    for domain in domains:
        groups.setdefault(domain.name.split("/", 1)[part], []).append(domain)
    return groups


def _cells(domains: Sequence["DomainScore"]) -> list[str]:
    """The mean of each metric over the domains, unweighted."""
    means = [
        sum(getattr(domain, name) for domain in domains) / len(domains)
        for name in ("accuracy", "brier", "brier_sum", "nll", "ece")
    ]
    return [f"{100 * means[0]:.2f}", *(f"{value:.4f}" for value in means[1:])]


def _table(first: str, *others: str) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column(first, no_wrap=True)
    for heading in others:
        table.add_column(heading, justify="right", no_wrap=True)
    return table
