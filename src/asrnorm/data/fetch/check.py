"""What of the public sets lies under the data folder, and whether it is what it should be."""

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from asrnorm.data.fetch.catalog import find_set, names
from asrnorm.data.fetch.entry import File, PublicSet, locate
from asrnorm.data.fetch.examine import DAMAGED, MISSING, PRESENT, examine


class Row(NamedTuple):
    """One file of a set: `state` is `present`, `missing` or `damaged`."""

    set: str
    file: str
    state: str
    detail: str


def check(root: Path, wanted: Iterable[str] = ()) -> list[Row]:
    """Verify sets under the data folder.

    Args:
        root: the data folder.
        wanted: names of sets; none means all.

    Returns:
        The rows of each set, in the order of the names.

    Raises:
        UnknownNameError: a name that is not in the catalog.

    Example:
        >>> [row.state for row in check(Path("nowhere"), ["usps"])]
        ['missing', 'missing']
    """
    entries = [find_set(name) for name in (tuple(wanted) or names())]
    return [row for entry in entries for row in check_set(root, entry)]


def check_set(root: Path, entry: PublicSet) -> list[Row]:
    """Verify one set: the layouts that are there, or what is missing from the preferred one.

    A complete layout makes the set complete, so that files missing from another one are not worth a line; a damaged
    file always is.
    """
    layouts = [[check_file(root, entry, file) for file in layout] for layout in entry.layouts]
    complete = [rows for rows in layouts if is_complete(rows)]
    if complete:
        damaged = [row for rows in layouts if rows not in complete for row in rows if row.state == DAMAGED]
        return [row for rows in complete for row in rows] + damaged
    begun = [rows for rows in layouts if any(row.state != MISSING for row in rows)]
    return [row for rows in (begun or layouts[:1]) for row in rows]


def is_complete(rows: Iterable[Row]) -> bool:
    """Return whether every row is present."""
    return all(row.state == PRESENT for row in rows)


def check_file(root: Path, entry: PublicSet, file: File) -> Row:
    """Verify one file or folder of a set."""
    path = locate(root, file.path)
    if not path.exists():
        return Row(entry.name, file.path, MISSING, entry.note if file is entry.layouts[0][0] else "")
    try:
        state, detail = (file.judge or examine)(path, file)
    except OSError as error:
        state, detail = DAMAGED, f"cannot be read: {error.strerror or error}"
    return Row(entry.name, file.path, state, detail)
