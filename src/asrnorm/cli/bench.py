"""`asrnorm bench`: measure speed side by side with the baselines."""

import logging
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from typer import Option

from asrnorm.cli.options import JsonFile, json_output
from asrnorm.cli.table import make_table
from asrnorm.core.errors import count_of

if TYPE_CHECKING:
    from asrnorm.bench.harness import Row

_LOG_WIDTH = 180

bench_app = typer.Typer(no_args_is_help=True)

Device = Annotated[str | None, Option(help="cpu or cuda; default: cuda if available.")]
Quick = Annotated[bool, Option("--quick", help="Do little work and few repeats, to see that everything runs.")]
Repeats = Annotated[int, Option(min=1, help="Number of timed rounds.")]


@bench_app.callback()
def bench() -> None:
    """Measure speed, side by side with the baselines.

    Example: `asrnorm bench layers --quick`, to see that everything runs; without `--quick` it measures.
    """
    logger = logging.getLogger("asrnorm")
    logger.setLevel(logging.INFO)  # what is about to be timed, and what could not be built
    if not logger.handlers:
        logger.addHandler(logging.StreamHandler())


@bench_app.command("data")
def bench_data(
    json_file: JsonFile = None,
    device: Device = None,
    quick: Quick = False,
    only: Annotated[str, Option(help="Only the augmentations whose name contains this text.")] = "",
    workers: Annotated[int, Option(min=0, help="Number of worker processes of the DataLoader.")] = 2,
) -> None:
    """Measure images per second of every way to augment; the baseline is Pillow.

    Example: `asrnorm bench data --json runs/bench-data.json`
    """
    from asrnorm.bench import data

    works = [work for work in data.WORKS if only in work.name]
    _report("data", data.run(device, quick=quick, workers=workers, works=works), json_file)


@bench_app.command("corruptions")
def bench_corruptions(
    json_file: JsonFile = None,
    device: Device = None,
    quick: Quick = False,
    only: Annotated[str, Option(help="Only the corruptions and sizes whose name contains this text.")] = "",
    repeats: Repeats = 10,
) -> None:
    """Measure images per second of the corruptions, as arrays and as tensors; the baseline is NumPy on one core.

    Example: `asrnorm bench corruptions --device cuda --only 224x224 --json bench/results/corruptions--h200.json`
    """
    from asrnorm.bench import corruptions

    _report("corruptions", corruptions.run(device, quick=quick, only=only, repeats=repeats), json_file)


@bench_app.command("layers")
def bench_layers(
    json_file: JsonFile = None,
    device: Device = None,
    quick: Quick = False,
    only: Annotated[str, Option(help="Only the inputs whose name contains this text.")] = "",
    repeats: Repeats = 20,
) -> None:
    """Measure one norm layer, forward and backward, against BatchNorm and the floor of its memory traffic.

    Example: `asrnorm bench layers --device cuda --json bench/results/layers--h200.json`
    """
    from asrnorm.bench import layer

    _report("layers", layer.run(device, quick=quick, only=only, repeats=repeats), json_file)


@bench_app.command("step")
def bench_step(
    json_file: JsonFile = None,
    device: Device = None,
    quick: Quick = False,
    only: Annotated[str, Option(help="Only the networks whose name contains this text.")] = "",
    compiled: Annotated[bool, Option("--compile/--no-compile", help="Also measure with torch.compile.")] = True,
    repeats: Repeats = 20,
) -> None:
    """Measure a whole training step against the fastest with BatchNorm, and a forward pass in evaluation.

    Example: `asrnorm bench step --device cuda --only "WRN-40-4, batch 128" --json bench/results/step-wrn--h200.json`
    """
    from asrnorm.bench import step

    _report("step", step.run(device, quick=quick, only=only, repeats=repeats, compiled=compiled), json_file)


@bench_app.command("train")
def bench_train(
    json_file: JsonFile = None,
    device: Device = None,
    quick: Quick = False,
    only: Annotated[
        list[str] | None, Option(help="Only digits, cifar, pacs-photo or pacs-sketch; may be given several times.")
    ] = None,
    processes: Annotated[
        int, Option(min=1, help="Also train this many Digits seeds side by side; under MPS unless ASRNORM_MPS=0.")
    ] = 1,
    made: Annotated[bool, Option("--made", help="Use generated images, even if the real ones are available.")] = False,
) -> None:
    """Measure whole trainings through the trainer, over a stretch of each, scaled to its length.

    Example: `asrnorm bench train --only digits --processes 5 --json bench/results/train-digits--h200.json`
    """
    from asrnorm.bench import train

    _report("train", train.run(device, quick=quick, only=only or (), processes=processes, made=made), json_file)


@bench_app.command("evaluate")
def bench_evaluate(
    json_file: JsonFile = None,
    device: Device = None,
    quick: Quick = False,
    images: Annotated[int, Option(min=500, help="Number of images to time; the result is scaled to 950,000.")] = 95_000,
    repeats: Repeats = 5,
) -> None:
    """Measure how long an evaluation on CIFAR-10-C takes, with BatchNorm and with ASR-Norm.

    Example: `asrnorm bench evaluate --device cuda --images 950000 --json bench/results/evaluate--h200.json`
    """
    from asrnorm.bench import evaluate

    _report("evaluate", evaluate.run(device, quick=quick, images=images, repeats=repeats), json_file)


def _report(suite: str, parts: Iterable[list["Row"]], json_file: Path | None) -> None:
    """Print and write the rows of each part as soon as it is measured."""
    from asrnorm.bench import harness
    from asrnorm.bench.column import COLUMNS

    headings = [column.heading for column in COLUMNS[suite]]
    rows: list[Row] = []
    with json_output(json_file) as write_numbers:
        # For a pipe or a log rich would wrap every cell to fit 80 columns.
        console = Console() if Console().is_terminal else Console(width=_LOG_WIDTH)
        for part in parts:
            rows += part
            table = make_table("way", *headings, wrap=headings, numbers=True, title=part[0].work)
            for row in map(asdict, part):
                table.add_row(row["path"], *(column.show(row) for column in COLUMNS[suite]))
            console.print(table)
            write_numbers(harness.describe(suite, rows))
        machine = harness.metadata()
        gpu = f", {machine['gpu']}" if machine["gpu"] else ""
        counts = [count_of(machine["cores"], "core"), count_of(machine["threads"], "thread")]
        typer.echo(f"{', '.join([machine['cpu'], *counts])}{gpu}; torch {machine['torch']}")
