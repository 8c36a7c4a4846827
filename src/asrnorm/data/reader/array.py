"""NumPy's `.npy` and `.npz` files without pickles, and without trust in their headers."""

import io
import math
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from asrnorm.errors import InputError

MOST_BYTES = 1 << 33
_MOST_HEADER = 1 << 16


def open_npy(path: Path) -> NDArray[Any]:
    """Return the array of a `.npy` file, memory-mapped and read-only.

    Raises:
        InputError: not a `.npy` file, truncated, or with Python objects inside.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     np.save(f"{folder}/x.npy", np.arange(3))
        ...     open_npy(Path(folder) / "x.npy").tolist()
        [0, 1, 2]
    """
    try:
        with path.open("rb") as stream:
            shape, dtype, start = _read_header(stream.read(_MOST_HEADER))
        _check_size(path, shape, dtype, path.stat().st_size - start)
        if math.prod(shape) == 0:
            return np.empty(shape, dtype)  # an empty stretch of a file cannot be mapped
        return np.memmap(path, dtype, "r", start, shape)
    except InputError:
        raise
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from None
    except Exception as error:  # the header is Python text: its parser raises tokenizer and syntax errors
        raise InputError(f"{path}: not a readable .npy file ({_first_line(error)})") from None


def read_npz(path: Path, *, names: tuple[str, ...]) -> dict[str, NDArray[Any]]:
    """Return the named arrays of a `.npz` file.

    Raises:
        InputError: not a `.npz` file, a name that is not in it, damaged, or with Python objects inside.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     np.savez_compressed(f"{folder}/x.npz", images=np.ones(2))
        ...     read_npz(Path(folder) / "x.npz", names=("images",))["images"].tolist()
        [1.0, 1.0]
    """
    try:
        with zipfile.ZipFile(path) as archive:
            return {name: _read_member(path, archive, name) for name in names}
    except InputError:
        raise
    except (zipfile.BadZipFile, zlib.error, EOFError):
        raise InputError(f"{path}: not a .npz file, or a damaged one; fetch it again") from None
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from None
    except Exception as error:  # zipfile and the header's parser raise nearly anything on damaged input
        raise InputError(f"{path}: not a readable .npz file ({_first_line(error)})") from None


def _read_member(path: Path, archive: zipfile.ZipFile, name: str) -> NDArray[Any]:
    known = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
    if name not in known:
        raise InputError(f"{path}: expected an array {name!r}, found {', '.join(sorted(known)) or 'none'}")
    if known[name].compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise InputError(f"{path}: array {name!r} is packed in a way that NumPy does not write")
    with archive.open(known[name]) as stream:
        head = stream.read(_MOST_HEADER)
        shape, dtype, start = _read_header(head)
        size = math.prod(shape) * dtype.itemsize
        if size > MOST_BYTES:
            raise InputError(f"{path}: array {name!r} of shape {shape} would take {size:,} bytes")
        data = bytearray(head[start:])
        while len(data) <= size and (block := stream.read(1 << 20)):  # what the archive claims need not be there
            data += block
    _check_size(path, shape, dtype, len(data))
    return np.frombuffer(data, dtype).reshape(shape)


def _read_header(head: bytes) -> tuple[tuple[int, ...], np.dtype[Any], int]:
    # From memory and not from the file: NumPy allocates whatever length the header gives for itself.
    stream = io.BytesIO(head)
    version = np.lib.format.read_magic(stream)
    if version not in ((1, 0), (2, 0)):
        raise ValueError(f"format version {version}")
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, fortran, dtype = read(stream)
    if dtype.hasobject or dtype.names or dtype.subdtype or not dtype.itemsize:
        raise ValueError(f"dtype {dtype} is not a plain number")
    if any(size < 0 for size in shape):
        raise ValueError(f"shape {shape}")
    if fortran and len(shape) > 1:
        raise ValueError("Fortran order; save it with np.ascontiguousarray")
    return shape, dtype, stream.tell()


def _check_size(path: Path, shape: tuple[int, ...], dtype: np.dtype[Any], held: int) -> None:
    size = math.prod(shape) * dtype.itemsize
    if held != size:
        raise InputError(
            f"{path}: the header promises {size:,} bytes ({dtype}, shape {shape}), the file holds {held:,}; "
            "fetch the file again"
        )


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]
