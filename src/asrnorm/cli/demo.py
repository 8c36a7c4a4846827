"""`asrnorm demo`: one source domain, five trainings, four unseen domains, a table and a page."""

import json
from pathlib import Path
from typing import Annotated, cast

import typer
from rich.console import Console
from typer import Option

from asrnorm.cli.options import JsonFile, json_output
from asrnorm.cli.table import make_table
from asrnorm.core.config import Scale, run_name
from asrnorm.core.files import write_whole
from asrnorm.core.results import RunResult, read_log_rows, to_plain

# Row of the table: recipe.
ROWS = {
    "ERM + BatchNorm": "digits_mini.erm_bn",
    "ERM, no norm": "digits_mini.erm_none",
    "ERM + ASR-Norm": "digits_mini.erm_asr",
    "RSDA, no norm": "digits_mini.rsda_none",
    "RSDA + ASR-Norm": "digits_mini.rsda_asr",
}
_BEST = "RSDA + ASR-Norm"


def demo(
    out: Annotated[Path, Option(help="Folder of the runs and the report.")] = Path("runs", "demo"),
    seed: Annotated[int, Option(min=0, help="Seed of the five runs.")] = 0,
    scale: Annotated[str, Option(help="Size of the demo: paper (its full size) or smoke (seconds).")] = "paper",
    fresh: Annotated[bool, Option("--fresh", help="Train again what is already done.")] = False,
    json_file: JsonFile = None,
) -> None:
    """Train on MNIST digits alone, five ways, and see which holds up on digits of four other kinds.

    Example: `asrnorm demo`. Two to four minutes on two CPU cores; no download. Started again, it resumes where it
    stopped.
    """
    with json_output(json_file) as write_json:
        results = _run(out, seed, cast(Scale, scale), fresh)
        write_json(json.dumps({row: to_plain(result) for row, result in results.items()}, indent=2))


def _run(out: Path, seed: int, scale: Scale, fresh: bool) -> dict[str, RunResult]:
    """Train and compare the five rows, and write the page."""
    from asrnorm.recipes import recipe
    from asrnorm.training import run

    configs = {row: recipe(name, scale=scale, seed=seed) for row, name in ROWS.items()}
    folders = {row: out / run_name(config) for row, config in configs.items()}
    results = {}
    for row, config in configs.items():
        typer.echo(f"{row}: {config.recipe}, seed {seed}")
        results[row] = run(config, folders[row], fresh=fresh)
    first = next(iter(results.values()))
    # The average first: on a phone only the first columns are seen.
    headings = ["unseen, average", f"{first.source.name} (source)", *(domain.name for domain in first.domains)]
    table = make_table("", *headings, wrap=headings, numbers=True, title="accuracy in %")
    for row, result in results.items():
        table.add_row(row, *(f"{100 * value:.1f}" for value in _accuracies(result)))
    Console().print(table)
    page = out / "report.html"
    _write_report(page, headings, results, folders)
    typer.echo(f"report: {page}")
    return results


def _accuracies(result: RunResult) -> list[float]:
    return [result.average_accuracy, result.source.accuracy, *(domain.accuracy for domain in result.domains)]


def _write_report(page: Path, headings: list[str], results: dict[str, RunResult], folders: dict[str, Path]) -> None:
    from asrnorm.data import create_suite
    from asrnorm.data.contact_sheet import SuiteDomains, contact_sheet
    from asrnorm.reporting.figures.base import bar_chart, line_chart
    from asrnorm.reporting.page import render_page
    from asrnorm.reporting.runs import curve

    first = next(iter(results.values()))
    suite = create_suite("digits_mini")
    overview = contact_sheet(SuiteDomains(suite), suite.classes, page.parent / "samples", per_class=4)[0]
    accuracies = {row: _accuracies(result) for row, result in results.items()}
    losses = {row: curve(read_log_rows(folder / "log.jsonl"), "loss") for row, folder in folders.items()}
    configs = ", ".join(f"{result.recipe} {result.config_hash}" for result in results.values())
    best = results[_BEST].average_accuracy
    gains = {row: 100 * (best - result.average_accuracy) for row, result in results.items() if row != _BEST}
    text = render_page(
        "demo.html",
        title="Trained on one domain, tested on four others",
        first=first,
        best=_BEST,
        gains=[f"{abs(gain):.1f} points {'behind' if gain < 0 else 'ahead of'} {row}" for row, gain in gains.items()],
        columns=headings,
        rows=list(accuracies.items()),
        bars=bar_chart(headings[2:], {row: values[2:] for row, values in accuracies.items()}, "accuracy"),
        overview=overview.read_bytes(),
        losses=line_chart(losses, "step", "loss"),
        footer=f"commit {first.commit}; {configs}",
    )
    write_whole(page, text)
