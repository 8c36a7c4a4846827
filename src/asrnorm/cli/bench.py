"""`asrnorm bench`: measure speed side by side with the baselines."""

import inspect
import logging
from collections.abc import Iterable
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

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

_QUICK = "Do little work and few repeats, to see that everything runs."
_Option = tuple[Any, Any]  # annotation and default
_COMMON: dict[str, _Option] = {
    "json_file": (JsonFile, None),
    "device": (Annotated[str | None, Option(help="cpu or cuda; default: cuda if available.")], None),
    "quick": (Annotated[bool, Option("--quick", help=_QUICK)], False),
}


@bench_app.callback()
def bench() -> None:
    """Measure speed, side by side with the baselines.

    Example: `asrnorm bench layers --quick`, to see that everything runs; without `--quick` it measures.
    """
    logger = logging.getLogger("asrnorm")
    logger.setLevel(logging.INFO)  # what is about to be timed, and what could not be built
    if not logger.handlers:
        logger.addHandler(logging.StreamHandler())


def _add(suite: str, summary: str, example: str, *, module: str | None = None, **own: _Option) -> None:
    """Add a command whose options are those of all suites and its own, which `run` of the suite's module takes."""

    def command(json_file: Path | None, **options: Any) -> None:
        _report(suite, import_module(f"asrnorm.bench.{module or suite}").run(**options), json_file)

    options = {**_COMMON, **own}
    parameters = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
        for name, (annotation, default) in options.items()
    ]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {name: annotation for name, (annotation, _) in options.items()}
    bench_app.command(suite, help=f"{summary}\n\nExample: `asrnorm bench {suite} {example}`")(command)


def _only(what: str) -> _Option:
    return Annotated[str, Option(help=f"Only the {what}.")], ""


def _repeats(count: int) -> _Option:
    return Annotated[int, Option(min=1, help="Number of timed rounds.")], count


_add(
    "data",
    "Measure images per second of every way to augment; the baseline is Pillow.",
    "--json runs/bench-data.json",
    only=_only("augmentations whose name contains this text"),
    workers=(Annotated[int, Option(min=0, help="Number of worker processes of the DataLoader.")], 2),
)
_add(
    "corruptions",
    "Measure images per second of the corruptions, as arrays and as tensors; the baseline is NumPy on one core.",
    "--device cuda --only 224x224 --json bench/results/corruptions--h200.json",
    only=_only("corruptions and sizes whose name contains this text"),
    repeats=_repeats(10),
)
_add(
    "layers",
    "Measure one norm layer, forward and backward, against BatchNorm and the floor of its memory traffic.",
    "--device cuda --json bench/results/layers--h200.json",
    module="layer",
    only=_only("inputs whose name contains this text"),
    repeats=_repeats(20),
)
_add(
    "step",
    "Measure a whole training step against the fastest with BatchNorm, and a forward pass in evaluation.",
    '--device cuda --only "WRN-40-4, batch 128" --json bench/results/step-wrn--h200.json',
    only=_only("networks whose name contains this text"),
    compiled=(Annotated[bool, Option("--compile/--no-compile", help="Also measure with torch.compile.")], True),
    repeats=_repeats(20),
)
_add(
    "eager",
    "Measure your own eager loop after `asrnorm.convert` against BatchNorm: steps, evaluation, one layer.",
    "--device cuda --json bench/results/eager--h200.json",
    only=_only("networks or the layer with this text"),
    repeats=_repeats(3),
)
_MANY = "Only digits, cifar, pacs-photo or pacs-sketch; may be given several times."
_SIDE_BY_SIDE = "Also train this many Digits seeds side by side; under MPS unless ASRNORM_MPS=0."
_add(
    "train",
    "Measure whole trainings through the trainer, over a stretch of each, scaled to its length.",
    "--only digits --processes 5 --json bench/results/train-digits--h200.json",
    only=(Annotated[list[str] | None, Option(help=_MANY)], None),
    processes=(Annotated[int, Option(min=1, help=_SIDE_BY_SIDE)], 1),
    made=(Annotated[bool, Option("--made", help="Use generated images, even if the real ones are available.")], False),
)
_add(
    "evaluate",
    "Measure how long an evaluation on CIFAR-10-C takes, with BatchNorm and with ASR-Norm.",
    "--device cuda --images 950000 --json bench/results/evaluate--h200.json",
    images=(Annotated[int, Option(min=500, help="Number of images to time; the result is scaled to 950,000.")], 95_000),
    repeats=_repeats(5),
)


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
