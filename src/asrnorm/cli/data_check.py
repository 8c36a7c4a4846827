"""`asrnorm data check`: which public data sets are there, and whether their files are what they should be."""

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from asrnorm.core.settings import data_folder
from asrnorm.data.download.catalog import CATALOG
from asrnorm.data.download.verify import Row, is_complete
from asrnorm.data.download.verify import check as verify

_NAMES = ", ".join(CATALOG)
_MARKS = {"present": "[green]present[/green]", "missing": "[yellow]missing[/yellow]", "damaged": "[red]damaged[/red]"}


def check(
    wanted: Annotated[
        list[str] | None, typer.Argument(metavar="[NAMES]...", help=f"Of: {_NAMES}; else all.", show_default=False)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON: set, file, state, detail.")] = False,
    root: Annotated[
        Path | None, typer.Option(metavar="DIR", help="The data folder; by default ASRNORM_DATA.", show_default=False)
    ] = None,
) -> None:
    """Verify the files in the data folder, by checksum if one is published.

    Example: `asrnorm data check mnist`. Exit status 1 if anything asked for is missing or damaged.
    """
    folder = (root or data_folder()).expanduser().absolute()
    rows = verify(folder, wanted or ())
    if as_json:
        typer.echo(json.dumps([row._asdict() for row in rows], indent=2))
    else:
        _print(rows, folder)
    if not is_complete(rows):
        raise typer.Exit(1)


def _print(rows: list[Row], folder: Path) -> None:
    table = Table(box=None, pad_edge=False)
    for heading in ("set", "state", "file, and what is known of it"):
        table.add_column(heading, no_wrap=heading in ("set", "state"), overflow="fold")
    for row in rows:
        detail = f": {row.detail}" if row.detail else ""
        table.add_row(row.set, _MARKS[row.state], escape(f"{row.file}{detail}"))
    console = Console()
    absent = "" if folder.is_dir() else " (not there)"
    console.print(f"data folder: {folder}{absent}", highlight=False, markup=False, soft_wrap=True)
    console.print(table)
