"""Verifying public data sets under the data folder, and finding weights there."""

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from asrnorm.core.errors import InputError, MissingDependencyError
from asrnorm.core.settings import data_folder
from asrnorm.data.download.catalog import CATALOG, File, PublicSet, find_set, path_inside
from asrnorm.data.download.content import DAMAGED, MISSING, PRESENT, algorithm_of, matches

PUBLISHED = "the published file"


class Row(NamedTuple):
    """One file of a set: `state` is `present`, `missing` or `damaged`."""

    set: str
    file: str
    state: str
    detail: str


def check(root: Path, wanted: Iterable[str] = ()) -> list[Row]:
    """Verify the sets of these names, all by default, and return their rows in this order."""
    entries = [find_set(name) for name in (tuple(wanted) or CATALOG)]
    return [row for entry in entries for row in check_set(root, entry)]


def check_set(root: Path, entry: PublicSet) -> list[Row]:
    """Verify one set: the layouts that are present, or what is missing from the preferred one.

    A complete layout makes the set complete, so files missing from another layout get no row; a damaged file always
    gets one.
    """
    layouts = [[check_file(root, entry, file) for file in layout] for layout in entry.layouts]
    if complete := [rows for rows in layouts if is_complete(rows)]:
        damaged = [row for rows in layouts if rows not in complete for row in rows if row.state == DAMAGED]
        return [row for rows in complete for row in rows] + damaged
    begun = [rows for rows in layouts if any(row.state != MISSING for row in rows)]
    return [row for rows in (begun or layouts[:1]) for row in rows]


def is_complete(rows: Iterable[Row]) -> bool:
    """Return whether every row is present."""
    return all(row.state == PRESENT for row in rows)


def check_file(root: Path, entry: PublicSet, file: File) -> Row:
    """Verify one file or folder of a set."""
    path = path_inside(root, file.path)
    if not path.exists():
        return Row(entry.name, file.path, MISSING, entry.note if file is entry.layouts[0][0] else "")
    try:
        state, detail = file.verify(path) if file.verify else _verify(path, file)
    except OSError as error:
        state, detail = DAMAGED, f"cannot be read: {error.strerror or error}"
    return Row(entry.name, file.path, state, detail)


def _verify(path: Path, file: File) -> tuple[str, str]:
    """Return state and detail of an existing file: by checksum first, by content where copies may differ."""
    if not file.digest:
        problem = ""
    elif not path.is_file():
        problem = "not a file"
    elif file.size is not None and path.stat().st_size != file.size:
        problem = f"{path.stat().st_size} bytes, the published file has {file.size}"
    elif matches(path, file.digest):
        return PRESENT, _describe(path, file)
    else:
        problem = f"{algorithm_of(file.digest).upper()} differs from the published one"
    if file.content is None:
        return DAMAGED, problem
    try:
        return PRESENT, file.content(path)
    except MissingDependencyError as error:
        return PRESENT, f"{problem}; content not checked: {error}"
    except InputError as error:
        return DAMAGED, f"{problem}; {error}" if problem else str(error)


def _describe(path: Path, file: File) -> str:
    if file.describe is None:
        return PUBLISHED
    try:
        return f"{PUBLISHED}; {file.describe(path)}"
    except (InputError, ImportError) as error:  # the bytes are right, so the library that reads them is at fault
        return f"{PUBLISHED}; content not checked: {error}"


def find_weights(name: str) -> Path:
    """Return the path of a weights file, relative to the data folder; an `InputError` says how to get a missing one."""
    path = data_folder() / Path(name).expanduser()  # an absolute path stays as it is
    if not path.is_file():
        raise InputError(f"{path}: no such file of weights{_advise(name)}")
    return path


def _advise(weights: str) -> str:
    for entry in CATALOG.values():
        files = [file.path for file in entry.files()]
        if weights in files:
            return f"; try: asrnorm data fetch {entry.name}, and --set weights={files[0]}"
    if Path(weights).is_file():
        absolute = Path(weights).absolute()
        return f"; relative paths start at the data folder: to take the one that is here, give {absolute}"
    return ""
