"""The idx format of MNIST: a magic number with the dtype and the rank, the sizes, the values.

LeCun's description: two zero bytes, one byte for the dtype, one for the number of axes, then a big-endian 32-bit size
for each axis.
"""

import math
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from asrnorm.core.errors import InputError
from asrnorm.data.reader.stream import read_bytes

MOST_BYTES = 1 << 30
_UBYTE = 8


def read_idx(path: Path, *, ndim: int) -> NDArray[np.uint8]:
    """Return the unsigned bytes of an idx file, plain or gzipped.

    Args:
        path: the file.
        ndim: the number of axes it must have: 3 for images, 1 for labels.

    Raises:
        InputError: not an idx file of bytes with that many axes, truncated, or with bytes to spare.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     path = Path(folder) / "labels-idx1-ubyte"
        ...     _ = path.write_bytes(bytes([0, 0, 8, 1, 0, 0, 0, 2, 7, 9]))
        ...     read_idx(path, ndim=1).tolist()
        [7, 9]
    """
    data = read_bytes(path, MOST_BYTES)
    header = 4 + 4 * ndim
    if len(data) < 4 or data[:2] != b"\0\0":
        raise InputError(f"{path}: not an idx file (its first bytes are {data[:4].hex(' ') or 'missing'})")
    if data[2] != _UBYTE or data[3] != ndim:
        raise InputError(
            f"{path}: expected an idx file of unsigned bytes with {ndim} axes, "
            f"found type {data[2]:#04x} with {data[3]} axes"
        )
    if len(data) < header:
        raise InputError(f"{path}: ends inside the header; fetch the file again")
    shape = tuple(int(size) for size in np.frombuffer(data, ">u4", ndim, 4))
    expected, found = math.prod(shape), len(data) - header
    if found != expected:
        raise InputError(
            f"{path}: the header promises {expected:,} values of shape {shape}, the file holds {found:,}; "
            "fetch the file again"
        )
    if not expected:
        raise InputError(f"{path}: shape {shape}, no values")
    return np.frombuffer(data, np.uint8, offset=header).reshape(shape)
