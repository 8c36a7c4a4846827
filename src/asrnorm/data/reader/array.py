"""NumPy's `.npy` files without pickles, and without trust in their headers."""

import io
import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from asrnorm.core.errors import InputError, first_line

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
        raise InputError(f"{path}: not a readable .npy file ({first_line(error)})") from None


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
