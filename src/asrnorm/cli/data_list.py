"""`asrnorm data list`: for each suite, what is there and what is missing."""

import json
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from asrnorm.core.errors import AsrnormError
from asrnorm.core.settings import data_folder
from asrnorm.data import SUITES, create_suite

_LONG = 6  # more parts in a row than this are shown as one
_MARKS = {True: "[green]present[/green]", False: "[yellow]missing[/yellow]"}


def list_data(
    root: Annotated[
        Path | None, typer.Option(help="The data folder; by default ASRNORM_DATA.", show_default=False)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON: suite, part, role, present, detail.")] = False,
) -> None:
    """Show which parts of each suite are there, which are missing, and how to get those.

    Example: `asrnorm data list`
    """
    rows = [row for name in SUITES.names() for row in describe_suite(name, root)]
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
        return
    table = Table(box=None, pad_edge=False)
    for heading in ("suite", "part", "role", "state", "where, or how to get it"):
        table.add_column(heading, no_wrap=heading != "where, or how to get it", overflow="fold")
    previous = None
    folder = (root or data_folder()).expanduser().absolute()
    for row in _fold(rows):
        shown = "" if row["suite"] == previous else row["suite"]
        previous = row["suite"]
        detail = row["detail"].replace(f"{folder}/", "").replace(f" in {folder}", "")
        table.add_row(shown, escape(row["part"]), row["role"], _MARKS[row["present"]], escape(detail))
    console = Console()
    absent = "" if folder.is_dir() else " (not there)"
    console.print(f"data folder: {folder}{absent}", highlight=False, markup=False, soft_wrap=True)
    console.print(table)


def describe_suite(name: str, root: Path | None) -> list[dict[str, Any]]:
    """Return a row a part of the suite; the user's own folder is not looked for."""
    options = {} if name == "folder" else {"root": root}
    try:
        parts = create_suite(name, **options).parts()
    except AsrnormError as error:  # one unreadable suite is no reason to hide the others
        return [{"suite": name, "part": "-", "role": "-", "present": False, "detail": str(error)}]
    return [
        {"suite": name, "part": part.name, "role": part.role, "present": part.present, "detail": part.detail}
        for part in parts
    ]


def _fold(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Long runs of targets in one state become one row: CIFAR-10-C alone has 19."""
    folded: list[dict[str, Any]] = []
    for _, group in groupby(rows, key=lambda row: (row["suite"], row["role"], row["present"])):
        run = list(group)
        if len(run) > _LONG:
            run = [{**run[0], "part": f"{run[0]['part']} ... ({len(run)})"}]
        folded += run
    return folded
