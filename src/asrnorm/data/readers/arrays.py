"""Bytes of plain or compressed files, and the array formats idx (MNIST) and `.npy` (CIFAR-10-C, the cache)."""

import bz2
import gzip
import io
import math
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from asrnorm.core.errors import InputError, first_line

MAX_IDX_BYTES = 1 << 30
_CHUNK = 1 << 20
_OPENERS: dict[bytes, Any] = {b"\x1f\x8b": gzip.open, b"BZ": bz2.open}
_IDX_UINT8 = 8
_MAX_NPY_HEADER = 1 << 16


def read_bytes(path: Path, limit: int) -> bytes:
    """Return the content of a file of at most `limit` bytes, decompressed if it begins like gzip or bzip2."""
    data = bytearray()
    try:
        with path.open("rb") as raw:
            signature = raw.read(2)
        with _OPENERS.get(signature, open)(path, "rb") as stream:
            # In chunks: a single read(limit) would allocate the limit even for a file of three bytes.
            while len(data) <= limit and (chunk := stream.read(_CHUNK)):
                data += chunk
    except (EOFError, zlib.error):
        raise InputError(f"{path}: the compressed data are damaged or end too early; fetch the file again") from None
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from None
    if len(data) > limit:
        raise InputError(f"{path}: holds more than the {limit:,} bytes such a file may have")
    return bytes(data)


def read_idx(path: Path, *, ndim: int) -> NDArray[np.uint8]:
    """Return the unsigned bytes of an idx file, plain or compressed.

    LeCun's description: two zero bytes, one byte for the dtype, one for the number of axes, a big-endian 32-bit size
    for each axis, then the values. Images have three axes, labels one.
    """
    data = read_bytes(path, MAX_IDX_BYTES)
    header = 4 + 4 * ndim
    if len(data) < 4 or data[:2] != b"\0\0":
        raise InputError(f"{path}: not an idx file (its first bytes are {data[:4].hex(' ') or 'missing'})")
    if data[2] != _IDX_UINT8 or data[3] != ndim:
        kind = f"type {data[2]:#04x} with {data[3]} axes"
        raise InputError(f"{path}: expected an idx file of unsigned bytes with {ndim} axes, found {kind}")
    if len(data) < header:
        raise InputError(f"{path}: ends inside the header; fetch the file again")
    shape = tuple(int(size) for size in np.frombuffer(data, ">u4", ndim, 4))
    expected, found = math.prod(shape), len(data) - header
    if found != expected:
        promised = f"the header promises {expected:,} values of shape {shape}"
        raise InputError(f"{path}: {promised}, the file holds {found:,}; fetch the file again")
    if not expected:
        raise InputError(f"{path}: shape {shape}, no values")
    return np.frombuffer(data, np.uint8, offset=header).reshape(shape)


def open_npy(path: Path) -> NDArray[Any]:
    """Return the array of a `.npy` file of plain numbers, memory-mapped and read-only."""
    try:
        with path.open("rb") as stream:
            shape, dtype, start = _read_npy_header(stream.read(_MAX_NPY_HEADER))
        size, found = math.prod(shape) * dtype.itemsize, path.stat().st_size - start
        if found != size:
            promised = f"the header promises {size:,} bytes ({dtype}, shape {shape})"
            raise InputError(f"{path}: {promised}, the file holds {found:,}; fetch the file again")
        # An empty range of a file cannot be mapped.
        return np.memmap(path, dtype, "r", start, shape) if size else np.empty(shape, dtype)
    except InputError:
        raise
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from None
    except Exception as error:  # the header is Python text: its parser raises tokenizer and syntax errors
        raise InputError(f"{path}: not a readable .npy file ({first_line(error)})") from None


def _read_npy_header(head: bytes) -> tuple[tuple[int, ...], np.dtype[Any], int]:
    # Parsed from memory: from a file, NumPy allocates whatever length the header declares.
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
