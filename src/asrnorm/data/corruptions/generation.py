"""Generate CIFAR-10-C from CIFAR-10 in the published layout; an interrupted run resumes where it stopped."""

import errno
import hashlib
import io
import json
import math
import os
import platform
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from importlib import metadata
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from asrnorm.core.errors import InputError, StorageError
from asrnorm.core.files import DISK_FULL, hold_lock, sync_folder, take_lock, write_whole
from asrnorm.core.progress import PartProgress
from asrnorm.core.reading import read_json
from asrnorm.core.settings import count_cores
from asrnorm.data.corruptions.base import CORRUPTIONS, Pixels, corrupt, list_corruptions
from asrnorm.data.corruptions.severity import RANDOM, SEVERITIES, choose_preset
from asrnorm.data.corruptions.weather import FROST_FOLDER
from asrnorm.data.corruptions.worker_pool import corrupt_chunks, worker_pool
from asrnorm.data.download.catalog import find_set
from asrnorm.data.download.content import GENERATED_RECORD, checksum
from asrnorm.data.readers import open_npy, read_cifar_binary

NUM_IMAGES = 10_000  # of CIFAR-10's test set
_CHUNK = 500  # images per job
_LIBRARIES = ("numpy", "scipy", "Pillow", "opencv-python-headless")


class GeneratedFile(NamedTuple):
    """One file of the set: `skipped` if it existed before; `published` if it equals the published one."""

    name: str
    path: Path
    md5: str
    seconds: float
    skipped: bool
    published: bool


def generate_cifar10c(
    root: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    corruptions: Iterable[str] | None = None,
    seed: int = 0,
    workers: int | None = None,
    frost: str | os.PathLike[str] | None = None,
    progress: bool = True,
) -> list[GeneratedFile]:
    """Write CIFAR-10-C: `<corruption>.npy`, severity s in rows (s - 1) * 10,000 and on, and `labels.npy`.

    Started again, it skips finished files. A file appears under its name only when it is complete.

    Args:
        root: folder that holds `cifar-10-batches-bin`.
        out: folder to write to; created if missing.
        corruptions: which; all 19 by default.
        seed: of the eleven random corruptions.
        workers: number of processes, one per core by default. Above one, a script needs `if __name__ == "__main__":`
            around the call, since each worker imports it.
        frost: folder or wheel with the frost photographs; by default `<root>/frost` and where `frost_pictures` looks.
        progress: show a bar, or lines where there is no terminal, on standard error.

    Raises:
        InputError: CIFAR-10 is missing or damaged, or `out` holds files of another seed.
        StorageError: the disk is full.
        UnknownNameError: there is no such corruption.
    """
    corruptions = None if corruptions is None else list(corruptions)
    for name in corruptions or ():  # an unknown name fails before anything is read
        CORRUPTIONS[name]
    images, labels = read_cifar10_test(root)
    beside = Path(root) / FROST_FOLDER
    if frost is None and beside.is_dir():
        frost = beside
    return generate_corrupted(
        images, labels, out, corruptions=corruptions, seed=seed, workers=workers, frost=frost, progress=progress
    )


def read_cifar10_test(root: str | os.PathLike[str]) -> tuple[Pixels, NDArray[np.int64]]:
    """Return CIFAR-10's test images, `(10000, 32, 32, 3)`, and labels from the binary version."""
    path = Path(root) / "cifar-10-batches-bin" / "test_batch.bin"
    if not path.is_file():
        raise InputError(f"{path} is missing: run asrnorm data fetch cifar10, or unpack cifar-10-binary.tar.gz there")
    images, labels = read_cifar_binary(path)
    if len(images) != NUM_IMAGES:
        raise InputError(f"{path} has {len(images):,} images, not {NUM_IMAGES:,}: fetch it again")
    return images, labels


def generate_corrupted(
    images_nhwc: Pixels,
    labels_n: NDArray[Any],
    out: str | os.PathLike[str],
    *,
    corruptions: Iterable[str] | None = None,
    seed: int = 0,
    workers: int | None = None,
    preset: str | None = None,
    frost: str | os.PathLike[str] | None = None,
    progress: bool = True,
) -> list[GeneratedFile]:
    """Write any set of images in the layout of CIFAR-10-C; arguments as in `generate_cifar10c` and `corrupt`.

    Raises:
        InputError: not one label from 0 to 255 for every image, or `out` holds files of another seed, preset or set.
        StorageError: the disk is full.
    """
    labels_n, number = np.asarray(labels_n), len(images_nhwc)
    if labels_n.shape != (number,) or labels_n.dtype.kind not in "iuf" or (labels_n != np.floor(labels_n)).any():
        raise InputError(f"{number} images need whole numbers as labels, not {labels_n.dtype} {labels_n.shape}")
    if number and not 0 <= labels_n.min() <= labels_n.max() <= 255:
        raise InputError(f"labels must be from 0 to 255, not {labels_n.min()} to {labels_n.max()}")
    labels_n = labels_n.astype(np.uint8)
    if workers is not None and workers < 1:
        raise InputError(f"workers must be at least 1, not {workers}; None starts one per core")
    names = list(dict.fromkeys(corruptions)) if corruptions is not None else list(list_corruptions())
    options: dict[str, dict[str, Any]] = {"frost": {"source": str(frost)}} if frost is not None else {}
    for name in names:  # an unknown name, a missing library or missing photographs fail now, not in an hour
        corrupt(images_nhwc[:1], name, preset=preset, **options.get(name, {}))
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    record = _Record(folder / GENERATED_RECORD, seed, _digest(images_nhwc, labels_n, preset))
    rows = number * len(SEVERITIES)
    shapes = dict.fromkeys(names, (rows, *images_nhwc.shape[1:])) | {"labels": (rows,)}
    finished = {name for name, shape in shapes.items() if _is_finished(folder / f"{name}.npy", shape)}
    for name in sorted(finished | {"labels"}):
        record.check(name)
    num_waiting = rows * len(set(names) - finished)
    workers = min(workers or count_cores(), max(1, num_waiting // _CHUNK))
    with PartProgress(num_waiting, "images", shown=progress) as bar, worker_pool(workers) as run:
        if "labels" not in finished:
            with write_array(folder / "labels.npy", shapes["labels"]) as write:
                write(np.tile(labels_n, len(SEVERITIES)))
        files = [record.enter("labels", 0.0, skipped="labels" in finished)]
        for name in names:
            bar.begin(name)
            started = time.perf_counter()
            if name not in finished:
                arguments = {"seed": seed, "preset": preset, **options.get(name, {})}
                jobs = (corrupt_chunks(images_nhwc, _CHUNK, name, severity, **arguments) for severity in SEVERITIES)
                with write_array(folder / f"{name}.npy", shapes[name]) as write:
                    for corrupted in run(chain.from_iterable(jobs)):
                        write(corrupted)
                        bar.advance(len(corrupted))
            files.append(record.enter(name, time.perf_counter() - started, skipped=name in finished))
            how = "already there" if name in finished else f"{files[-1].seconds:.1f} s"
            bar.say(f"{name}: {how}{', equal to the published file' if files[-1].published else ''}")
    return files


def _digest(images_nhwc: Pixels, labels_n: NDArray[np.uint8], preset: str | None) -> str:
    """Return a digest of a set of images and the severities that they get."""
    shape = images_nhwc.shape
    digest = hashlib.sha256(f"{shape} {preset or choose_preset(*shape[1:3])}".encode())
    for array in (images_nhwc, labels_n):
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()[:16]


@contextmanager
def write_array(path: Path, shape: tuple[int, ...]) -> Iterator[Callable[[NDArray[np.uint8]], None]]:
    """Return a function that appends rows to a new uint8 `.npy` file, which gets its name when the block ends.

    Until then it is hidden and locked. Its space is reserved first, so that a full disk shows before any work is done.
    An error removes the hidden file; one left by a killed process is overwritten. The block must write all of `shape`.
    """
    hidden = path.with_name(f".{path.name}.partial")
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "|u1", "fortran_order": False, "shape": shape})
    num_bytes = len(header.getvalue()) + math.prod(shape)
    descriptor = _open_locked(hidden)

    def write(rows: NDArray[np.uint8] | bytes) -> None:
        view = memoryview(bytes(rows))
        while view:
            view = view[os.write(descriptor, view) :]

    try:
        os.ftruncate(descriptor, 0)
        _reserve(descriptor, num_bytes)
        write(header.getvalue())
        yield write
        os.fsync(descriptor)
        hidden.replace(path)  # before the lock is released, so that no other process opens the finished file
        sync_folder(path.parent)
    except BaseException as error:
        hidden.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno in DISK_FULL:
            raise StorageError(
                f"no space left for {path} ({num_bytes / 1e6:.3g} MB): free some, or choose another folder with --out"
            ) from None
        raise
    finally:
        os.close(descriptor)


def _open_locked(path: Path) -> int:
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        with ExitStack() as stack:
            stack.callback(os.close, descriptor)
            try:
                take_lock(descriptor)
            except BlockingIOError:
                raise InputError(f"{path} is being written by another process: wait, or use another folder") from None
            # Between opening and locking, the owner may have renamed or removed the file: then open a new one.
            with suppress(FileNotFoundError):
                if os.fstat(descriptor).st_ino == path.stat().st_ino:
                    stack.pop_all()
                    return descriptor


def _reserve(descriptor: int, num_bytes: int) -> None:
    try:
        os.posix_fallocate(descriptor, 0, num_bytes)
    except (AttributeError, OSError) as error:  # macOS has no such call, and some file systems do not support it
        if isinstance(error, OSError) and error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):
            raise
        os.ftruncate(descriptor, num_bytes)


def _is_finished(path: Path, shape: tuple[int, ...]) -> bool:
    """Return whether the file exists; raise if it is not a complete array of this shape."""
    if not path.exists():
        return False
    with suppress(InputError):
        array = open_npy(path)
        if array.dtype == np.uint8 and array.shape == shape:
            return True
    raise InputError(f"{path} is not a uint8 array of shape {shape}: move it away, or use another folder")


class _Record:
    """`generated.json`: seed, libraries and checksum of each generated file of a folder."""

    def __init__(self, path: Path, seed: int, images: str) -> None:
        self.path, self.seed, self.images = path, seed, images
        self.files = self._read()

    def _read(self) -> dict[str, Mapping[str, Any]]:
        try:
            files = read_json(self.path)["files"]
            return {name: dict(entry) for name, entry in files.items()}
        except FileNotFoundError:
            return {}
        except (ValueError, KeyError, TypeError, AttributeError):
            raise InputError(f"{self.path} cannot be read: remove it, or use another folder") from None

    def check(self, name: str) -> None:
        """Raise if a file was made from other images or with another seed; older records do not have the images."""
        path, entry = self.path.parent / f"{name}.npy", self.files.get(name, {})
        if entry.get("images", self.images) != self.images:
            raise InputError(f"{path} was made from other images, labels or severities: use another folder")
        seed = entry.get("seed", self.seed)
        if name in RANDOM and seed != self.seed:
            raise InputError(f"{path} was made with seed {seed!r}, not {self.seed}: use that seed, or another folder")

    def enter(self, name: str, seconds: float, *, skipped: bool) -> GeneratedFile:
        path = self.path.parent / f"{name}.npy"
        md5 = checksum(path, "md5").removeprefix("md5:")
        if not skipped:
            # Another process may have generated other corruptions in the meantime.
            with hold_lock(self.path.with_name(f".{self.path.name}.lock")):
                entry = {"md5": md5, "seed": self.seed, "images": self.images} | _versions()
                self.files = self._read() | {name: entry}
                write_whole(self.path, json.dumps({"schema": 1, "files": self.files}, indent=1) + "\n")
        elif self.files.get(name, {}).get("md5", md5) != md5:
            raise InputError(f"{path} has changed since it was generated: remove it, and run again")
        return GeneratedFile(name, path, md5, seconds, skipped, md5 == published_md5().get(name))


@cache
def published_md5() -> dict[str, str]:
    """Return the MD5 of each file of the published CIFAR-10-C, from the catalog of downloads."""
    return {Path(file.path).stem: file.digest.removeprefix("md5:") for file in find_set("cifar10c").files()}


def _versions() -> dict[str, str]:
    found = {"machine": platform.machine()}
    for library in _LIBRARIES:
        try:
            found[library] = metadata.version(library)
        except metadata.PackageNotFoundError:  # another build of OpenCV, as a rule
            found[library] = "unknown"
    return found
