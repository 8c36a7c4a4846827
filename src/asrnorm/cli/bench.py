"""`asrnorm bench`: measure speed side by side with the baselines."""

import logging
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer
from rich.console import Console

from asrnorm.cli.options import json_output
from asrnorm.cli.table import make_table
from asrnorm.core.errors import UnknownNameError

if TYPE_CHECKING:
    from asrnorm.bench.harness import Row
    from asrnorm.bench.layer import Shape
    from asrnorm.bench.step import Net

Named = TypeVar("Named", "Shape", "Net")

_HELP = """Measure speed, side by side with the baselines.

Example: `asrnorm bench layers --quick`, to see that everything runs; without `--quick` it measures.
"""

bench_app = typer.Typer(help=_HELP, no_args_is_help=True)

_LOG_WIDTH = 180

JsonFile = Annotated[
    Path | None, typer.Option("--json", help="Also write rows and machine to this file; - prints them alone.")
]
Device = Annotated[str | None, typer.Option(help="cpu or cuda; default: cuda if available.")]
Quick = Annotated[bool, typer.Option("--quick", help="Do little work and few repeats, to see that everything runs.")]
Repeats = Annotated[int, typer.Option(min=1, help="Number of timed rounds.")]


@bench_app.callback()
def bench() -> None:
    """Measure speed, side by side with the baselines."""
    logger = logging.getLogger("asrnorm")
    logger.setLevel(logging.INFO)  # what is about to be timed, and what could not be built
    if not logger.handlers:
        logger.addHandler(logging.StreamHandler())


@bench_app.command("data")
def bench_data(
    json_file: JsonFile = None,
    device: Device = None,
    quick: Quick = False,
    workers: Annotated[int, typer.Option(min=0, help="Number of worker processes of the DataLoader.")] = 2,
) -> None:
    """Measure images per second of every way to augment, with Pillow on single images as the baseline.

    Example: `asrnorm bench data --json runs/bench-data.json`
    """
    from asrnorm.bench import data

    _report("data", data.run(_choose(device), quick=quick, workers=workers), json_file)


@bench_app.command("layers")
def bench_layers(
    json_file: JsonFile = None,
    device: Device = None,
    quick: Quick = False,
    sweep: Annotated[
        bool,
        typer.Option(
            "--sweep", help="Measure instead how time and memory grow with C, HW, N and the number of layers."
        ),
    ] = False,
    only: Annotated[
        str, typer.Option(help="Only the inputs whose name contains this text; with --sweep one of C, HW, N, layers.")
    ] = "",
    repeats: Repeats = 20,
) -> None:
    """Measure one norm layer, forward and backward, against BatchNorm and the floor of its memory traffic.

    Example: `asrnorm bench layers --device cuda --json bench/results/layers--h200.json`
    """
    from asrnorm.bench import growth, layer

    chosen = _choose(device)
    if sweep:
        _report("growth", growth.run(chosen, quick=quick, only=only, repeats=repeats), json_file)
        return
    known = layer.GPU_SHAPES if chosen.startswith("cuda") else layer.CPU_SHAPES
    shapes = _matching(known, only)
    _report("layers", layer.run(chosen, quick=quick, shapes=shapes, repeats=repeats), json_file)


@bench_app.command("step")
def bench_step(
    json_file: JsonFile = None,
    device: Device = None,
    quick: Quick = False,
    only: Annotated[str, typer.Option(help="Only the networks whose name contains this text.")] = "",
    compiled: Annotated[bool, typer.Option("--compile/--no-compile", help="Also measure with torch.compile.")] = True,
    repeats: Repeats = 20,
) -> None:
    """Measure a whole training step against the fastest with BatchNorm, and a forward pass in evaluation.

    Example: `asrnorm bench step --device cuda --only "WRN-40-4, batch 128" --json bench/results/step-wrn--h200.json`
    """
    from asrnorm.bench import step

    chosen = _choose(device)
    known = step.QUICK_NETS if quick else step.GPU_NETS if chosen.startswith("cuda") else step.CPU_NETS
    nets = _matching(known, only)
    _report("step", step.run(chosen, quick=quick, nets=nets, repeats=repeats, compiled=compiled), json_file)


@bench_app.command("ascent")
def bench_ascent(
    json_file: JsonFile = None, device: Device = None, quick: Quick = False, repeats: Repeats = 10
) -> None:
    """Measure a step of ADA's ascent on images, with BatchNorm and with ASR-Norm.

    Example: `asrnorm bench ascent --device cuda --json bench/results/ascent--h200.json`
    """
    from asrnorm.bench import ascent

    _report("ascent", ascent.run(_choose(device), quick=quick, repeats=repeats), json_file)


@bench_app.command("train")
def bench_train(
    json_file: JsonFile = None,
    device: Device = None,
    quick: Quick = False,
    only: Annotated[
        list[str] | None,
        typer.Option(help="Only digits, cifar, pacs-photo or pacs-sketch; may be given several times."),
    ] = None,
    processes: Annotated[
        int, typer.Option(min=1, help="Also train this many Digits seeds side by side; under MPS unless ASRNORM_MPS=0.")
    ] = 1,
    made: Annotated[
        bool, typer.Option("--made", help="Use generated images, even if the real ones are available.")
    ] = False,
) -> None:
    """Measure whole trainings through the trainer, over a stretch of each, scaled to its length.

    Example: `asrnorm bench train --only digits --processes 5 --json bench/results/train-digits--h200.json`
    """
    from asrnorm.bench import train

    parts = train.run(_choose(device), quick=quick, only=only or (), processes=processes, made=made)
    _report("train", parts, json_file)


@bench_app.command("evaluate")
def bench_evaluate(
    json_file: JsonFile = None,
    device: Device = None,
    quick: Quick = False,
    images: Annotated[
        int, typer.Option(min=500, help="Number of images to time; the result is scaled to 950,000.")
    ] = 95_000,
    repeats: Repeats = 5,
) -> None:
    """Measure how long an evaluation on CIFAR-10-C takes, with BatchNorm and with ASR-Norm.

    Example: `asrnorm bench evaluate --device cuda --images 950000 --json bench/results/evaluate--h200.json`
    """
    from asrnorm.bench import evaluate

    chosen = _choose(device)
    share = evaluate.Share(images) if chosen.startswith("cuda") and not quick else None
    _report("evaluate", evaluate.run(chosen, quick=quick, share=share, repeats=repeats), json_file)


def _choose(device: str | None) -> str:
    import torch

    return device or ("cuda" if torch.cuda.is_available() else "cpu")


def _matching(known: tuple[Named, ...], text: str) -> tuple[Named, ...]:
    found = tuple(item for item in known if text in item.label)
    if not found:
        raise UnknownNameError(f"--only {text!r} fits none of: {'; '.join(item.label for item in known)}")
    return found


def _report(suite: str, parts: Iterable[list["Row"]], json_file: Path | None) -> None:
    """Print and write the rows of each part as soon as it is measured."""
    from asrnorm.bench import harness

    rows: list[Row] = []
    with json_output(json_file) as write_numbers:
        for part in parts:
            rows += part
            _print(suite, part)
            write_numbers(harness.describe(suite, rows))
        machine = harness.metadata()
        gpu = f", {machine['gpu']}" if machine["gpu"] else ""
        typer.echo(
            f"{machine['cpu']}, {machine['cores']} cores, {machine['threads']} threads{gpu}; torch {machine['torch']}"
        )


def _print(suite: str, rows: list["Row"]) -> None:
    from asrnorm.bench.column import COLUMNS

    columns = COLUMNS[suite]
    headings = [column.heading for column in columns]
    table = make_table("way", *headings, wrap=headings, numbers=True, title=rows[0].work)
    for row in rows:
        values = asdict(row)
        table.add_row(row.path, *(column.show(values) for column in columns))
    console = Console()
    # For a pipe or a log rich would wrap every cell to fit 80 columns.
    (console if console.is_terminal else Console(width=_LOG_WIDTH)).print(table)
