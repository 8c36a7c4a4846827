"""Numeric arrays of MATLAB 5 files, the format of SVHN and the synthetic digits.

SciPy reads these too, but its compiled parser can crash the process on a damaged file. MathWorks' description of the
format: a header of 128 bytes, then elements with a tag of type and length; an array is an element of elements (flags,
dimensions, name, values), usually inside a zlib stream.
"""

import math
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from asrnorm.core.errors import InputError
from asrnorm.data.reader.stream import read_bytes

MOST_BYTES = 1 << 31  # the largest published file, SVHN extra, holds 1.6 GB of pixels
_HEADER = 128
_MATRIX, _COMPRESSED = 14, 15
_STORED = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
_CLASSES = {6: "f8", 7: "f4", 8: "i1", 9: "u1", 10: "i2", 11: "u2", 12: "i4", 13: "u4", 14: "i8", 15: "u8"}
_COMPLEX = 0x0800
_MOST_FIELD = 4096  # bytes of dimensions or of a name
_BLOCK = 1 << 16

Accept = Callable[[str, tuple[int, ...], str], bool]


class _Array(NamedTuple):
    name: str
    values: NDArray[Any]


def read_matlab(path: Path, accept: Accept) -> dict[str, NDArray[Any]]:
    """Return the numeric arrays of a MATLAB 5 file by name.

    Args:
        path: the file.
        accept: is asked with name, shape and dtype before the values of an array are read, so that an array of an
            absurd size is passed over (`False`) or refused (an `InputError`) without taking memory.

    Raises:
        InputError: not a MATLAB 5 file, or a damaged one.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> from scipy.io import savemat
        >>> with TemporaryDirectory() as folder:
        ...     savemat(f"{folder}/x.mat", {"a": np.eye(2), "b": np.ones(3)})
        ...     read_matlab(Path(folder) / "x.mat", lambda name, shape, dtype: name == "a")
        {'a': array([[1., 0.], [0., 1.]])}
    """
    data = memoryview(read_bytes(path, MOST_BYTES))
    version, order = bytes(data[124:126]), bytes(data[126:128])
    if order not in (b"IM", b"MI") or version not in (b"\0\1", b"\1\0", b"\0\2", b"\2\0"):
        raise InputError(f"{path}: not a MATLAB file; fetch the file again")
    if 2 in version:
        raise InputError(f"{path}: a MATLAB 7.3 file (HDF5); save it with -v7")
    endian = "<" if order == b"IM" else ">"
    try:
        return {array.name: array.values for array in _read_arrays(data, endian, accept)}
    except InputError:
        raise
    except (ValueError, zlib.error) as error:
        raise InputError(f"{path}: a damaged MATLAB file ({error}); fetch the file again") from None


def _read_arrays(data: memoryview, endian: str, accept: Accept) -> list[_Array]:
    arrays, position = [], _HEADER
    while position < len(data):
        kind, size = _words(data[position : position + 8], endian)
        body = data[position + 8 : position + 8 + size]
        if len(body) < size:
            raise ValueError("it ends too early")
        position += 8 + size
        array = None
        if kind == _MATRIX:
            array = _read_array(_Stream(body, packed=False), endian, accept)
        elif kind == _COMPRESSED:
            stream = _Stream(body, packed=True)
            inner, _ = _words(stream.read(8), endian)
            array = _read_array(stream, endian, accept) if inner == _MATRIX else None
        if array is not None:
            arrays.append(array)
    return arrays


def _read_array(stream: "_Stream", endian: str, accept: Accept) -> _Array | None:
    flags, shape_bytes, name_bytes = (_read_field(stream, endian) for _ in range(3))
    if len(flags) != 8 or len(shape_bytes) % 4 or not shape_bytes:
        raise ValueError("an array without flags or dimensions")
    word = _words(flags, endian)[0]
    shape = tuple(int(size) for size in np.frombuffer(shape_bytes, f"{endian}i4"))
    name = name_bytes.decode("latin-1")
    if min(shape) < 0:
        raise ValueError(f"dimensions {shape}")
    if word & 0xFF not in _CLASSES or word & _COMPLEX or len(shape) > 32:
        return None  # text, cells, structures
    dtype = np.dtype(_CLASSES[word & 0xFF])
    if not accept(name, shape, dtype.name):
        return None
    kind, size, inline = _read_tag(stream, endian)
    if kind not in _STORED:
        raise ValueError(f"values of type {kind}")
    stored = np.dtype(endian + _STORED[kind])
    if size != math.prod(shape) * stored.itemsize:
        raise ValueError(f"{size} bytes of values for dimensions {shape}")
    values = np.frombuffer(stream.read(size) if inline is None else inline, stored)
    with np.errstate(invalid="ignore"):  # a damaged file may pair any values with any class
        return _Array(name, values.reshape(shape, order="F").astype(dtype, copy=False))


def _read_field(stream: "_Stream", endian: str) -> bytes:
    _, size, inline = _read_tag(stream, endian)
    if inline is not None:
        return inline
    if size > _MOST_FIELD:
        raise ValueError(f"a field of {size} bytes")
    field = stream.read(size)
    stream.read(-size % 8)
    return field


def _read_tag(stream: "_Stream", endian: str) -> tuple[int, int, bytes | None]:
    """Type and length of an element, and its data where they lie inside the tag."""
    tag = stream.read(8)
    kind, size = _words(tag, endian)
    if kind >> 16 == 0:
        return kind, size, None
    small = kind >> 16
    if small > 4:
        raise ValueError(f"a small element of {small} bytes")
    return kind & 0xFFFF, small, tag[4 : 4 + small]


def _words(data: bytes | memoryview, endian: str) -> tuple[int, int]:
    if len(data) < 8:
        raise ValueError("it ends too early")
    first, second = np.frombuffer(data, f"{endian}u4", 2)
    return int(first), int(second)


class _Stream:
    """Bytes one after the other, unpacked no further than they are asked for."""

    def __init__(self, data: memoryview, *, packed: bool) -> None:
        self._data = data
        self._position = 0
        self._inflate = zlib.decompressobj() if packed else None
        self._tail = b""

    def read(self, count: int) -> bytes:
        """Return exactly `count` bytes."""
        if self._inflate is None:
            block = bytes(self._data[self._position : self._position + count])
            self._position += len(block)
        else:
            block = self._unpack(self._inflate, count)
        if len(block) < count:
            raise ValueError("it ends too early")
        return block

    def _unpack(self, inflate: Any, count: int) -> bytes:
        out = bytearray()
        while len(out) < count and not inflate.eof:
            if not self._tail:
                self._tail = bytes(self._data[self._position : self._position + _BLOCK])
                self._position += len(self._tail)
            ended = not self._tail
            out += inflate.decompress(self._tail, count - len(out))
            self._tail = inflate.unconsumed_tail
            if ended:
                break
        return bytes(out)
