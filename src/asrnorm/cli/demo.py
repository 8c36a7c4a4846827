"""`asrnorm demo`: one source domain, seven trainings with three seeds each, four unseen domains, a table and a page."""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from typer import Option

from asrnorm.cli.options import JsonFile, check_folder, check_scale, json_output
from asrnorm.cli.table import make_table
from asrnorm.core.config import RunConfig, Scale, override, run_name
from asrnorm.core.errors import AsrnormError, InputError
from asrnorm.core.files import write_whole
from asrnorm.core.results import RunResult, read_result, to_plain
from asrnorm.core.settings import count_cores

if TYPE_CHECKING:
    from asrnorm.data.suites.base import Suite

# Row of the table: recipe.
ROWS = {
    "BatchNorm": "digits_mini.erm_bn",
    "no norm": "digits_mini.erm_none",
    "instance norm": "digits_mini.erm_in",
    "ASR-Norm": "digits_mini.erm_asr",
    "RSDA, no norm": "digits_mini.rsda_none",
    "RSDA + ASR-Norm": "digits_mini.rsda_asr",
    "best recipe": "digits_mini.best",
}
BASELINE = "BatchNorm"
STEPS = 400  # half of the recipes' own, so that three seeds take no longer than one did
SEEDS = 3
_MOST_AT_ONCE = 8  # each takes about 0.4 GB
Results = Mapping[str, Sequence[RunResult]]


def demo(
    out: Annotated[Path, Option(help="Folder of the runs and the report.")] = Path("runs", "demo"),
    seeds: Annotated[int, Option(min=1, help="Train every row with seeds 0 to N-1.")] = SEEDS,
    scale: Annotated[str, Option(help="Size of the demo: paper (its full size) or smoke (seconds).")] = "paper",
    json_file: JsonFile = None,
) -> None:
    """Train on MNIST digits alone, seven ways, and see which holds up on digits of four other kinds.

    Example: `asrnorm demo`. About three minutes on two CPU cores; no download. Each training runs on one core, as many
    at once as there are cores, so that the numbers do not depend on how many there are. Started again, it resumes where
    it stopped.
    """
    with json_output(json_file) as write_json:
        check_folder(out, "--out")
        configs = {row: [config(name, seed, check_scale(scale)) for seed in range(seeds)] for row, name in ROWS.items()}
        results = _run(configs, out)
        write_json(
            json.dumps({row: [to_plain(result) for result in found] for row, found in results.items()}, indent=2)
        )


def config(name: str, seed: int = 0, scale: Scale = "paper") -> RunConfig:
    """Return what the demo trains: a recipe with fewer steps."""
    from asrnorm.recipes import recipe

    full = recipe(name, scale=scale, seed=seed)
    return override(full, {"steps": min(STEPS, full.steps), "device": "cpu"})


def _run(configs: Mapping[str, Sequence[RunConfig]], out: Path) -> Results:
    """Train what is missing, compare the rows, and write the page."""
    from asrnorm.data import create_suite
    from asrnorm.launch import Job, LocalExecutor, launch
    from asrnorm.launch.view import LaunchView

    suite = create_suite("digits_mini").prepare()  # before several processes want it
    folders = {row: [out.absolute() / run_name(each) for each in found] for row, found in configs.items()}
    pairs = [(row, index) for index in range(len(configs[BASELINE])) for row in configs]
    jobs = [Job(config=configs[row][index], folder=folders[row][index]) for row, index in pairs]
    workers = min(count_cores(), len(jobs), _MOST_AT_ONCE)
    # One thread each: sums over several threads round differently.
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    typer.echo(f"{len(jobs)} trainings on MNIST digits, {workers} at once; results in {out}")
    with LaunchView() as view:
        outcome = launch(jobs, LocalExecutor(workers, environment=environment), view=view)
    if outcome.failed:
        raise AsrnormError(f"{outcome.failed[0].job.folder}: {outcome.failed[0].error}")
    if outcome.left:
        raise InputError(f"stopped with {len(outcome.done)} of {len(jobs)} trainings done; `asrnorm demo` goes on")
    results = {row: [read_result(folder / "result.json") for folder in found] for row, found in folders.items()}
    first = results[BASELINE][0]
    # The average first: on a phone only the first columns are seen.
    headings = ["unseen, average", f"{first.source.name} (source)", *(domain.name for domain in first.domains)]
    cells = {row: [*zip(*map(_accuracies, found), strict=True)] for row, found in results.items()}
    table = make_table("", *headings, wrap=headings, numbers=True, title="accuracy in %")
    for row, columns in cells.items():
        table.add_row(row, _format(columns[0]), *(f"{100 * mean(values):.1f}" for values in columns[1:]))  # 80 columns
    Console().print(table)
    page = out / "report.html"
    _write_report(page, suite, headings, cells, results)
    typer.echo(f"report: {page}")
    return results


def _accuracies(result: RunResult) -> list[float]:
    return [result.average_accuracy, result.source.accuracy, *(domain.accuracy for domain in result.domains)]


def _format(values: Sequence[float]) -> str:
    spread = f" ± {100 * stdev(values):.1f}" if len(values) > 1 else ""
    return f"{100 * mean(values):.1f}{spread}"


def _write_report(
    page: Path, suite: "Suite", headings: list[str], cells: Mapping[str, list[tuple[float, ...]]], results: Results
) -> None:
    from asrnorm.data.contact_sheet import SuiteDomains, contact_sheet
    from asrnorm.reporting.figures.base import bar_chart
    from asrnorm.reporting.page import render_page

    overview = contact_sheet(SuiteDomains(suite), suite.classes, page.parent / "samples", per_class=4)[0]
    source, unseen = ({row: columns[index] for row, columns in cells.items()} for index in (1, 0))
    gains = {
        row: [100 * (ours - theirs) for ours, theirs in zip(values, unseen[BASELINE], strict=True)]
        for row, values in unseen.items()
    }
    first = results[BASELINE][0]
    hashes = ", ".join(f"{found[0].recipe} {found[0].config_hash}" for found in results.values())
    text = render_page(
        "demo.html",
        title="Trained on one domain, tested on four others",
        baseline=BASELINE,
        source=mean(source[BASELINE]),
        unseen={row: mean(values) for row, values in unseen.items()},
        gains={row: (mean(values), min(values), max(values)) for row, values in gains.items()},
        first=first,
        seeds=len(source[BASELINE]),
        columns=headings,
        rows=[(row, [_format(values) for values in columns]) for row, columns in cells.items()],
        bars=bar_chart(
            list(cells), {"mnist (source)": [*source.values()], "unseen, average": [*unseen.values()]}, "accuracy"
        ),
        overview=overview.read_bytes(),
        footer=f"commit {first.commit}; {hashes} (seed 0)",
    )
    write_whole(page, text)
