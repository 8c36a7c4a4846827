"""`asrnorm data`: list, show, fetch, check and corrupt data sets."""

import json
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from asrnorm.cli.data_check import check
from asrnorm.cli.data_fetch import fetch
from asrnorm.cli.options import check_folder
from asrnorm.core.errors import AsrnormError, InputError
from asrnorm.core.settings import data_folder
from asrnorm.data import SUITES, create_suite

_HELP = """Data sets: list, show, fetch, check and corrupt them.

Example: `asrnorm data list`, then `asrnorm data fetch mnist usps` for what is missing.
"""
_LONG = 6  # more parts in a row than this are shown as one
_STATES = {True: "[green]present[/green]", False: "[yellow]missing[/yellow]"}
_CIFAR = "cifar10c"
_ARCHIVE_FOLDER = "CIFAR-10-C"  # the name in the published archive
_DEFAULT_SEVERITY = 3

data_app = typer.Typer(help=_HELP, no_args_is_help=True)


@data_app.command("list")
def list_data(
    root: Annotated[
        Path | None, typer.Option(help="The data folder; by default ASRNORM_DATA.", show_default=False)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON: suite, part, role, present, detail.")] = False,
) -> None:
    """Show which parts of each suite are there, which are missing, and how to get those.

    Example: `asrnorm data list`
    """
    rows = [row for name in SUITES.names() for row in _describe_suite(name, root)]
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
        table.add_row(shown, escape(row["part"]), row["role"], _STATES[row["present"]], escape(detail))
    console = Console()
    absent = "" if folder.is_dir() else " (not there)"
    console.print(f"data folder: {folder}{absent}", highlight=False, markup=False, soft_wrap=True)
    console.print(table)


def _describe_suite(name: str, root: Path | None) -> list[dict[str, Any]]:
    """Return a row for each part of a suite; the user's own folder is not searched."""
    options = {} if name == "folder" else {"root": root}
    try:
        parts = create_suite(name, **options).parts()
    except AsrnormError as error:  # one unreadable suite does not hide the others
        return [{"suite": name, "part": "-", "role": "-", "present": False, "detail": str(error)}]
    return [
        {"suite": name, "part": part.name, "role": part.role, "present": part.present, "detail": part.detail}
        for part in parts
    ]


def _fold(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Merge long runs of parts in the same state into one row: CIFAR-10-C alone has 19."""
    folded: list[dict[str, Any]] = []
    for _, group in groupby(rows, key=lambda row: (row["suite"], row["role"], row["present"])):
        run = list(group)
        if len(run) > _LONG:
            run = [{**run[0], "part": f"{run[0]['part']} ... ({len(run)})"}]
        folded += run
    return folded


@data_app.command()
def show(
    suite: Annotated[str, typer.Argument(help="Name of the suite; see `asrnorm list suites`.", show_default=False)],
    out: Annotated[Path | None, typer.Option(help="Folder to write to.", show_default="runs/samples/SUITE")] = None,
    domain: Annotated[
        list[str] | None,
        typer.Option(help="Only this domain; may be given again. By default all, and of several levels the strongest."),
    ] = None,
    per_class: Annotated[int, typer.Option(min=1, help="Number of images per class on the sheet of a domain.")] = 8,
    root: Annotated[
        Path | None,
        typer.Option(help="Folder of the data, for `folder` your images; by default ASRNORM_DATA.", show_default=False),
    ] = None,
    source: Annotated[
        str | None, typer.Option(help="The source domain, if the suite has a choice.", show_default=False)
    ] = None,
) -> None:
    """Write a contact sheet per domain, and an overview of all of them.

    Example: `asrnorm data show digits_mini --out samples`. Your own images: `asrnorm data show folder --root photos
    --source day`
    """
    folder = out or Path("runs", "samples", suite)
    check_folder(folder, "--out")
    from asrnorm.data.contact_sheet import SuiteDomains, contact_sheet

    options = {name: value for name, value in (("root", root), ("source", source)) if value is not None}
    created = create_suite(suite, **options)
    files = contact_sheet(SuiteDomains(created, domain), created.classes, folder, per_class=per_class)
    typer.echo(f"{folder}: {', '.join(file.name for file in files)}")
    absent = [part for part in created.missing if part.role == "target"]
    if absent:
        more = f" and {len(absent) - 1} more" if len(absent) > 1 else ""
        typer.echo(f"not shown: {absent[0].name}{more}: {absent[0].detail}", err=True)


data_app.command("fetch")(fetch)
data_app.command("check")(check)


@data_app.command()
def corrupt(
    target: Annotated[str, typer.Argument(help="`cifar10c`, or a folder of images.", show_default=False)],
    corruption: Annotated[
        list[str] | None,
        typer.Option("--corruption", help="Which corruption. cifar10c: may be given again; all 19 by default."),
    ] = None,
    severity: Annotated[
        int | None,
        typer.Option("--severity", help="Severity 1 to 5, for a folder; cifar10c has all five.", show_default="3"),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Seed of the random corruptions.")] = 0,
    workers: Annotated[
        int | None,
        typer.Option("--workers", min=1, help="Number of processes, for cifar10c.", show_default="one per core"),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder to write to.", show_default="ASRNORM_DATA/CIFAR-10-C")
    ] = None,
    root: Annotated[
        Path | None, typer.Option("--root", help="Folder of CIFAR-10.", show_default="ASRNORM_DATA")
    ] = None,
    preset: Annotated[
        str | None,
        typer.Option("--preset", help="Severities of cifar or imagenet, for a folder.", show_default="by size"),
    ] = None,
) -> None:
    """Generate CIFAR-10-C, or corrupt a folder of images and keep its tree.

    Example: `asrnorm data corrupt cifar10c --workers 2`, `asrnorm data corrupt photos --out foggy --corruption fog`.
    Started again, the same call resumes where it stopped.
    """
    if target != _CIFAR:
        if root is not None or workers is not None:
            raise typer.BadParameter("--root and --workers are for cifar10c: leave them out for a folder")
        level = _DEFAULT_SEVERITY if severity is None else severity
        _corrupt_folder(Path(target), out, corruption or [], level, seed, preset)
        return
    if severity is not None or preset is not None:
        raise typer.BadParameter("cifar10c has all five severities: leave out --severity and --preset")
    from asrnorm.data.corruptions import generate_cifar10c

    cifar = root or data_folder()
    folder = out or cifar / _ARCHIVE_FOLDER
    files = generate_cifar10c(cifar, folder, corruptions=corruption or None, seed=seed, workers=workers)
    written = sum(not file.skipped for file in files)
    equal = sum(file.published for file in files)
    typer.echo(
        f"{folder}: {written} files written, {len(files) - written} already there; {equal} equal the published ones"
    )


def _corrupt_folder(
    source: Path, out: Path | None, corruptions: list[str], severity: int, seed: int, preset: str | None
) -> None:
    if not source.is_dir():
        raise InputError(f"{source} is not a folder; give one with images, or {_CIFAR}")
    if out is None:
        raise typer.BadParameter("a folder of images needs --out DIR")
    if len(corruptions) != 1:
        raise typer.BadParameter("a folder of images needs one --corruption")
    from asrnorm.data.corruptions import corrupt_folder

    written = corrupt_folder(source, out, corruptions[0], severity, seed, preset=preset)
    typer.echo(f"{out}: {len(written)} images")
