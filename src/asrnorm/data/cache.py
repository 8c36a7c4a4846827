"""Cache of decoded arrays on the disk: decode once, then open a memory map.

An entry is a folder with one `.npy` file per array and `entry.json`, which holds the format version, the fingerprint of
what the arrays were made from, and their SHA-256. It is built under a lock in a temporary folder, which is renamed at
the end, so that an entry is complete or absent. If fingerprint or bytes do not match, the entry is built again.
"""

import errno
import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from asrnorm.core.errors import AsrnormError, InputError, StorageError
from asrnorm.core.files import DISK_FULL, hold_lock, sync_folder
from asrnorm.core.reading import read_json
from asrnorm.data.image import read_images
from asrnorm.data.readers import open_npy

VERSION = 1  # of the layout; a new one rebuilds every entry
_RECORD = "entry.json"
# Errors of a rename onto an entry that another process has built meanwhile, on a file system without locks.
_TAKEN = (errno.ENOTEMPTY, errno.EEXIST)
_ABSENT = (errno.ENOENT, errno.ENOTDIR, errno.ESTALE)
_ANY_FOLDER = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EIO)  # errors that another folder would not avoid
_PAUSES = (0.02, 0.05, 0.1, 0.2, 0.4)  # seconds between attempts to open an entry that others may be exchanging
_verified: set[tuple[str, int, int]] = set()  # files whose SHA-256 this process has checked: path, inode, mtime


def open_entry(
    name: str, *, fingerprint: Mapping[str, Any], build: Callable[["EntryWriter"], None], folder: Path
) -> dict[str, NDArray[Any]]:
    """Return the arrays of an entry, memory-mapped; build them first if they are absent, stale or damaged.

    The arrays depend on the `fingerprint`, JSON values: if it changes, the entry is stale. One process at a time runs
    `build`, which writes them; the others wait for its result. If it raises, no partial entry is left.
    """
    wanted = {"version": VERSION, "fingerprint": json.loads(json.dumps(dict(fingerprint)))}
    path = folder / name
    try:
        arrays = _open(path, wanted)
        if arrays is not None:
            return arrays
        folder.mkdir(parents=True, exist_ok=True)
        with hold_lock(folder / f"{name}.lock") as held:
            arrays = _open(path, wanted)  # another process may have built it in the meantime
            if arrays is None:
                for leftover in folder.glob(f"{name}.partial-*") if held else ():  # of killed processes
                    shutil.rmtree(leftover, ignore_errors=True)
                arrays = _build(path, wanted, build)
    except AsrnormError:
        raise  # some of them are OSErrors too
    except OSError as error:
        raise StorageError(_explain(error, path)) from None
    if arrays is None:
        raise StorageError(f"{path}: does not read back as written; check the disk")
    return arrays


def cache_folder(root: Path | None = None) -> Path:
    """Return the folder of entries: `ASRNORM_CACHE`, a hidden folder under a writable `root`, or the user's cache."""
    if chosen := os.environ.get("ASRNORM_CACHE"):
        return Path(chosen).expanduser().absolute() / "asrnorm"
    if root is not None and root.is_dir():
        inside = root / ".cache" / "asrnorm"
        nearest = next(path for path in (inside, *inside.parents) if path.exists())
        if os.access(nearest, os.W_OK | os.X_OK):
            return inside
    return Path.home() / ".cache" / "asrnorm"


def describe_files(paths: Iterable[Path], *, may_lack: bool = False) -> str:
    """Return a digest of the paths, sizes and times of files: it changes when one of them does.

    It includes the change time (ctime): a file copied over with its old modification time differs in that alone. With
    `may_lack`, a file that is not there is described as such; otherwise it raises `InputError`.
    """
    digest = hashlib.sha256()
    for path in paths:
        try:
            status = path.stat()
        except OSError as error:
            if not may_lack:
                raise InputError(f"{path}: {error.strerror}") from None
            digest.update(f"{path}\0{error.errno}\n".encode("utf-8", "surrogateescape"))
            continue
        line = f"{path}\0{status.st_size}\0{status.st_mtime_ns}\0{status.st_ctime_ns}\n"
        digest.update(line.encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


class EntryWriter:
    """Writes the arrays of a new entry."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.arrays: dict[str, dict[str, Any]] = {}

    def add(self, name: str, array: NDArray[Any]) -> None:
        """Write an array."""
        self.stream(name, array.shape, array.dtype, (array,))

    def stream(self, name: str, shape: tuple[int, ...], dtype: DTypeLike, blocks: Iterable[NDArray[Any]]) -> None:
        """Write an array block by block along its first axis, without holding all of it in memory.

        By plain writes: on a full disk a write raises an error, a memory-mapped page a signal.
        """
        digest, rows = hashlib.sha256(), 0
        header = {"descr": np.lib.format.dtype_to_descr(np.dtype(dtype)), "fortran_order": False, "shape": shape}
        with (self._folder / f"{name}.npy").open("wb") as file:
            np.lib.format.write_array_header_1_0(file, header)
            for block in blocks:
                if block.dtype != dtype or block.shape[1:] != shape[1:]:
                    raise ValueError(f"block {block.dtype} {block.shape} in array {name!r} {dtype} {shape}")
                data = np.ascontiguousarray(block).data
                digest.update(data)
                file.write(data)
                rows += len(block)
            file.flush()
            os.fsync(file.fileno())
        if rows != shape[0]:
            raise ValueError(f"{rows} rows in array {name!r} of shape {shape}")
        self.arrays[name] = {"sha256": digest.hexdigest(), "shape": list(shape), "dtype": np.dtype(dtype).str}

    def decode(self, paths: Sequence[Path], size: tuple[int, int]) -> None:
        """Decode image files to the array `images`, uint8 `(n, *size, 3)`."""
        self.stream("images", (len(paths), *size, 3), np.uint8, read_images(paths, size=size))


def _build(
    path: Path, wanted: Mapping[str, Any], build: Callable[[EntryWriter], None]
) -> dict[str, NDArray[Any]] | None:
    """Build an entry, put it in its place and return its arrays; `None` if they do not read back."""
    partial = Path(tempfile.mkdtemp(prefix=f"{path.name}.partial-", dir=path.parent))
    try:
        writer = EntryWriter(partial)
        build(writer)
        with (partial / _RECORD).open("w", encoding="utf-8") as file:
            json.dump({**wanted, "arrays": writer.arrays}, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        partial.chmod(0o755)  # mkdtemp's 0700 would exclude other users of a shared cache
        arrays = _open(path, wanted)  # without locks, another process may have built it meanwhile
        if arrays is None:
            shutil.rmtree(path, ignore_errors=True)
            try:
                partial.rename(path)
            except OSError as error:
                if error.errno not in _TAKEN or _open_patiently(path, wanted) is None:
                    raise
            sync_folder(path.parent)
            arrays = _open_patiently(path, wanted)
        return arrays
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _open_patiently(path: Path, wanted: Mapping[str, Any]) -> dict[str, NDArray[Any]] | None:
    """Open an entry that exists; without locks, another process may be exchanging it for an equal one."""
    for pause in _PAUSES:
        arrays = _open(path, wanted)
        if arrays is not None:
            return arrays
        time.sleep(pause)
    return _open(path, wanted)


def _open(path: Path, wanted: Mapping[str, Any]) -> dict[str, NDArray[Any]] | None:
    try:
        record = read_json(path / _RECORD)
        if {key: record[key] for key in wanted} != wanted:
            return None
        if not {f"{name}.npy" for name in record["arrays"]} == {file.name for file in path.glob("*.npy")} != set():
            return None  # an array is missing in the record or on the disk
        return {name: _open_array(path / f"{name}.npy", entry) for name, entry in record["arrays"].items()}
    except OSError as error:
        if error.errno not in _ABSENT:  # for instance too many open files: the entry itself may be good
            raise
        return None
    except (ValueError, KeyError, TypeError, AttributeError):
        return None  # damaged, or replaced during reading: the caller takes the lock and tries again


def _open_array(path: Path, entry: Mapping[str, Any]) -> NDArray[Any]:
    array = open_npy(path)
    if list(array.shape) != entry["shape"] or array.dtype.str != entry["dtype"]:
        raise ValueError("shape or dtype differs from the record")
    status = path.stat()
    key = (str(path), status.st_ino, status.st_mtime_ns)
    if key not in _verified:
        if hashlib.sha256(np.ascontiguousarray(array).data).hexdigest() != entry["sha256"]:
            raise ValueError("the bytes differ from the record")
        _verified.add(key)
    return array


def _explain(error: OSError, path: Path) -> str:
    if error.errno in DISK_FULL:
        return f"{path}: the disk is full; free some space, or set ASRNORM_CACHE to a folder on another disk"
    hint = "" if error.errno in _ANY_FOLDER else "; set ASRNORM_CACHE to a writable folder"
    return f"{path}: {error.strerror or error}{hint}"
