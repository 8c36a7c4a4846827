"""`asrnorm demo`: one source domain, five trainings, four unseen domains, a table and a page."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer
from rich.console import Console
from rich.table import Table

from asrnorm.core.config import Scale, run_name
from asrnorm.core.files import write_whole
from asrnorm.core.results import RunResult, read_log_rows

if TYPE_CHECKING:
    from asrnorm.data import Suite

# Row of the table: recipe.
ROWS = {
    "ERM + BatchNorm": "digits_mini.erm_bn",
    "ERM, no norm": "digits_mini.erm_none",
    "ERM + ASR-Norm": "digits_mini.erm_asr",
    "RSDA, no norm": "digits_mini.rsda_none",
    "RSDA + ASR-Norm": "digits_mini.rsda_asr",
}


def demo(
    out: Annotated[Path, typer.Option(help="Folder of the runs and the report.")] = Path("runs", "demo"),
    seed: Annotated[int, typer.Option(min=0, help="Seed of the five runs.")] = 0,
    scale: Annotated[str, typer.Option(help="Size of the demo: paper (its full size) or smoke (seconds).")] = "paper",
    fresh: Annotated[bool, typer.Option("--fresh", help="Train again what is already done.")] = False,
) -> None:
    """Train on MNIST digits alone, five ways, and see which holds up on digits of four other kinds.

    Example: `asrnorm demo`. Two to four minutes on two CPU cores; no download. Started again, it resumes where it
    stopped.
    """
    from asrnorm.data import create_suite
    from asrnorm.recipes import recipe
    from asrnorm.training import run

    configs = {row: recipe(name, scale=cast(Scale, scale), seed=seed) for row, name in ROWS.items()}
    folders = {row: out / run_name(config) for row, config in configs.items()}
    results = {}
    for row, config in configs.items():
        typer.echo(f"{row}: {config.recipe}, seed {seed}")
        results[row] = run(config, folders[row], fresh=fresh)
    _print(results)
    page = out / "report.html"
    _write_report(page, results, folders, create_suite("digits_mini"))
    typer.echo(f"report: {page}")


def columns(result: RunResult) -> list[str]:
    """Return the headings of the table: the source, the unseen domains, and their average."""
    return [f"{result.source.name} (source)", *(domain.name for domain in result.domains), "unseen, average"]


def values(result: RunResult) -> list[float]:
    """Return the accuracies under those headings."""
    return [result.source.accuracy, *(domain.accuracy for domain in result.domains), result.average_accuracy]


def _print(results: dict[str, RunResult]) -> None:
    table = Table(box=None, pad_edge=False, title="accuracy in %", title_justify="left")
    table.add_column("", no_wrap=True)
    for heading in columns(next(iter(results.values()))):
        table.add_column(heading, justify="right")
    for row, result in results.items():
        table.add_row(row, *(f"{100 * value:.1f}" for value in values(result)))
    Console().print(table)


def _write_report(page: Path, results: dict[str, RunResult], folders: dict[str, Path], suite: "Suite") -> None:
    from asrnorm.data.contact_sheet import SuiteDomains, contact_sheet
    from asrnorm.reporting.figures.base import bar_chart, line_chart
    from asrnorm.reporting.page import render_page
    from asrnorm.reporting.runs import curve

    first = next(iter(results.values()))
    names = columns(first)
    sheets = contact_sheet(SuiteDomains(suite), suite.classes, page.parent / "samples", per_class=4)
    overview = next(sheet for sheet in sheets if sheet.stem == "overview")
    series = {row: values(result)[1:] for row, result in results.items()}
    losses = {row: curve(read_log_rows(folder / "log.jsonl"), "loss") for row, folder in folders.items()}
    best = "RSDA + ASR-Norm"
    configs = ", ".join(f"{result.recipe} {result.config_hash}" for result in results.values())
    text = render_page(
        "demo.html",
        title="Trained on one domain, tested on four others",
        first=first,
        best=best,
        gains=[f"{_gain(results[best], results[row])} {row}" for row in results if row != best],
        columns=names,
        rows=[(row, values(result)) for row, result in results.items()],
        bars=bar_chart(names[1:], series, "accuracy"),
        overview=overview.read_bytes(),
        losses=line_chart(losses, "step", "loss"),
        footer=f"commit {first.commit}; {configs}",
    )
    write_whole(page, text)


def _gain(ours: RunResult, other: RunResult) -> str:
    points = 100 * (ours.average_accuracy - other.average_accuracy)
    return f"{abs(points):.1f} points {'ahead of' if points >= 0 else 'behind'}"
