"""What of the public sets lies under the data folder, and whether it is what it should be."""

import platform
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from asrnorm.data.fetch.catalog import find_set, names
from asrnorm.data.fetch.checksum import algorithm_of, compute
from asrnorm.data.fetch.entry import File, PublicSet, locate
from asrnorm.data.fetch.image_entry import DETERMINISTIC
from asrnorm.errors import InputError, MissingDependencyError

PRESENT, MISSING, DAMAGED = "present", "missing", "damaged"


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
        state, detail = examine(path, file)
    except OSError as error:
        state, detail = DAMAGED, f"cannot be read: {error.strerror or error}"
    if entry.name == "cifar10c" and state == PRESENT:
        detail = _describe_array(file, detail == PUBLISHED)
    return Row(entry.name, file.path, state, detail)


PUBLISHED = "the published file"


def examine(path: Path, file: File) -> tuple[str, str]:
    """Return state and detail of an existing file, by checksum first and by content where copies may differ."""
    if file.digest and path.is_file() and (file.size is None or path.stat().st_size == file.size):
        name = algorithm_of(file.digest)
        if compute(path, [name])[name] == file.digest:
            return _look(path, file)
        problem = f"{name.upper()} differs from the published one"
    elif file.digest and path.is_file():
        problem = f"{path.stat().st_size} bytes, the published file has {file.size}"
    else:
        problem = "" if file.digest == "" else "not a file"
    if file.content is None:
        return DAMAGED, problem
    try:
        return PRESENT, file.content(path)
    except MissingDependencyError as error:
        return PRESENT, f"{problem}; not looked into: {error}"
    except InputError as error:
        return DAMAGED, f"{problem}; {error}" if problem else str(error)


def _look(path: Path, file: File) -> tuple[str, str]:
    if file.look is None:
        return PRESENT, PUBLISHED
    try:
        return PRESENT, f"{PUBLISHED}; {file.look(path)}"
    except (InputError, ImportError) as error:  # the bytes are right, so this is about the library that reads them
        return PRESENT, f"{PUBLISHED}; not looked into: {error}"


def _describe_array(file: File, published: bool) -> str:
    name = file.name.removesuffix(".npy")
    if name in DETERMINISTIC or name == "labels":
        if published:
            return "deterministic, equal to the published array (MD5)"
        return f"generated, deterministic, not equal to the published array: {_why_not_equal(name)}"
    return "the published array (MD5)" if published else "generated; random, so equal in distribution only"


def _why_not_equal(name: str) -> str:
    if name == "jpeg_compression":
        return "libjpeg-turbo differs from the libjpeg behind it by about one grey level"
    machine = platform.machine().lower()
    if machine not in ("x86_64", "amd64"):
        return f"on {machine} generated arrays are equal within one grey level, to the bit only on x86-64"
    return "generate it again with the pinned library versions, which give equality on x86-64"
