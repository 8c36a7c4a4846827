"""The MATLAB 5 files of SVHN and the synthetic digits.

`scipy.io.loadmat` uses the value type that a file declares as an index without a check: one changed byte in a header
crashes the process. A guard for it has to parse every header, after which only the values remain to be copied. A
checksum cannot be the guard, because re-saved copies of these files are accepted.

Format, after MathWorks' description: a header of 128 bytes, then elements with a tag of type and length. A variable is
an element of elements (flags, dimensions, name, values), usually inside a zlib stream.
"""

import math
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from asrnorm.core.errors import InputError
from asrnorm.data.readers.arrays import read_bytes

MAX_BYTES = 1 << 31  # the largest published file, SVHN extra, holds 1.6 GB of pixels
MAX_IMAGES = 600_000  # it has 531,131
SIDE = 32
_FILE_HEADER = 128
_VARIABLE_HEADER = 4096  # more than flags, dimensions, a name and the tag of the values take
_MATRIX, _COMPRESSED = 14, 15
_UINT8_CLASS = 9
_NUMERIC_CLASSES = range(6, 16)
_COMPLEX = 0x0800
_DTYPES = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}


def read_digit_mat(path: Path) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return images `(n, 32, 32, 3)` and labels 0 to 9 of a `*_32x32.mat` file.

    The file holds `X`, uint8 of shape (32, 32, 3, n), and `y` with 10 for the digit zero.
    """
    data = memoryview(read_bytes(path, MAX_BYTES))
    version, order = bytes(data[124:126]), bytes(data[126:128])
    if order not in (b"IM", b"MI") or version not in (b"\0\1", b"\1\0", b"\0\2", b"\2\0"):
        raise InputError(f"{path}: not a MATLAB file; fetch the file again")
    if 2 in version:
        raise InputError(f"{path}: a MATLAB 7.3 file (HDF5); save it with -v7")
    try:
        arrays = _read_variables(data, "<" if order == b"IM" else ">")
    except (ValueError, struct.error, zlib.error) as error:
        reason = "it ends too early" if isinstance(error, struct.error) else error
        raise InputError(f"{path}: a damaged MATLAB file ({reason}); fetch the file again") from None
    if "X" not in arrays or "y" not in arrays:
        raise InputError(f"{path}: expected X, uint8 ({SIDE}, {SIDE}, 3, n), and y, one label per image")
    images, labels = arrays["X"], arrays["y"].reshape(-1)
    if labels.size != images.shape[3] or not labels.size:
        raise InputError(f"{path}: X holds {images.shape[3]:,} images and y {labels.size:,} labels")
    known = np.isin(labels, np.arange(11))
    if not known.all():
        raise InputError(f"{path}: y holds {labels[~known][0]}, which is not a digit from 0 to 10")
    return np.ascontiguousarray(images.transpose(3, 0, 1, 2)), labels.astype(np.int64) % 10


def _read_variables(data: memoryview, endian: str) -> dict[str, NDArray[Any]]:
    arrays = {}
    offset = _FILE_HEADER
    while offset < len(data):
        kind, size = struct.unpack_from(f"{endian}2I", data, offset)
        body = data[offset + 8 : offset + 8 + size]
        if len(body) < size:
            raise ValueError("it ends too early")
        offset += 8 + size
        if kind in (_MATRIX, _COMPRESSED) and (found := _read_variable(body, kind == _COMPRESSED, endian)):
            arrays[found[0]] = found[1]
    return arrays


def _read_variable(body: memoryview, compressed: bool, endian: str) -> tuple[str, NDArray[Any]] | None:
    """Return name and values of X or y if they have the expected form, else None."""
    inflate = zlib.decompressobj()
    head = inflate.decompress(body, _VARIABLE_HEADER) if compressed else bytes(body[:_VARIABLE_HEADER])
    offset = 0
    if compressed:
        if struct.unpack_from(f"{endian}I", head)[0] != _MATRIX:
            return None
        offset = 8
    fields = []
    for _ in range(3):
        _, start, size = _read_tag(head, offset, endian)
        fields.append(head[start : start + size])
        offset = start + 4 if start == offset + 4 else start + size + -size % 8
    flags = struct.unpack_from(f"{endian}I", fields[0])[0]
    shape = tuple(int(size) for size in np.frombuffer(fields[1], f"{endian}i4"))
    name = fields[2].decode("latin-1")
    if not _is_expected(name, flags, shape):
        return None
    kind, start, size = _read_tag(head, offset, endian)
    if kind not in _DTYPES or (name == "X" and _DTYPES[kind] != "u1"):
        raise ValueError(f"values of type {kind}")
    dtype = np.dtype(endian + _DTYPES[kind])
    if size != math.prod(shape) * dtype.itemsize:
        raise ValueError(f"{size} bytes of values for dimensions {shape}")
    values: bytes | memoryview = body[start : start + size]
    if compressed:
        values = head[start : start + size]
        if size > len(values):  # a limit of zero bytes would mean no limit
            values += inflate.decompress(inflate.unconsumed_tail, size - len(values))
    if len(values) < size:
        raise ValueError("it ends too early")
    return name, np.frombuffer(values, dtype).reshape(shape, order="F")


def _is_expected(name: str, flags: int, shape: tuple[int, ...]) -> bool:
    kind = flags & 0xFF
    if kind not in _NUMERIC_CLASSES or flags & _COMPLEX or not shape or not 0 <= min(shape) <= max(shape) <= MAX_IMAGES:
        return False
    if name == "X":
        return kind == _UINT8_CLASS and len(shape) == 4 and shape[:3] == (SIDE, SIDE, 3)
    return name == "y" and len(shape) == 2 and 1 in shape


def _read_tag(head: bytes, offset: int, endian: str) -> tuple[int, int, int]:
    """Return type, offset and length of the data of an element; up to four bytes of data lie inside the tag itself."""
    kind, size = struct.unpack_from(f"{endian}2I", head, offset)
    if not kind >> 16:
        return kind, offset + 8, size
    if kind >> 16 > 4:
        raise ValueError(f"a small element of {kind >> 16} bytes")
    return kind & 0xFFFF, offset + 4, kind >> 16
