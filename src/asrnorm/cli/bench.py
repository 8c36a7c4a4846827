"""`asrnorm bench`: speed, side by side with the baselines."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from asrnorm.bench.harness import Row

bench_app = typer.Typer(help="Measure speed, side by side with the baselines.", no_args_is_help=True)


@bench_app.callback()
def bench() -> None:
    """Measure speed, side by side with the baselines."""


@bench_app.command("data")
def bench_data(
    json_file: Annotated[Path | None, typer.Option("--json", help="Also write rows and machine to this file.")] = None,
    device: Annotated[
        str | None, typer.Option(help="cpu or cuda; default: cuda where there is one.", show_default=False)
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Few images and repeats: does everything run?")] = False,
    workers: Annotated[int, typer.Option(min=0, help="Processes of the DataLoader.")] = 2,
) -> None:
    """Measure images a second of every way to augment, Pillow one by one being the baseline.

    Example: `asrnorm bench data --json runs/bench-data.json`
    """
    import torch

    from asrnorm.bench import data, harness

    chosen = device or ("cuda" if torch.cuda.is_available() else "cpu")
    rows = []
    for part in data.run(chosen, quick=quick, workers=workers):
        rows += part
        _print(part)
    machine = harness.metadata()
    gpu = f", {machine['gpu']}" if machine["gpu"] else ""
    typer.echo(
        f"{machine['cpu']}, {machine['cores']} cores, {machine['threads']} threads{gpu}; torch {machine['torch']}"
    )
    if json_file is not None:
        harness.save(json_file, "data", rows)


def _print(rows: list["Row"]) -> None:
    table = Table(title=rows[0].work, title_justify="left", box=None, pad_edge=False)
    table.add_column("way", no_wrap=True)
    for heading in ("images/s", "p20", "p80", "times the baseline"):
        table.add_column(heading, justify="right")
    for row in rows:
        table.add_row(row.path, f"{row.per_second:,.0f}", f"{row.p20:,.0f}", f"{row.p80:,.0f}", f"{row.ratio:.2f}")
    Console().print(table)
