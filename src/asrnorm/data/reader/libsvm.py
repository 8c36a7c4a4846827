"""LIBSVM text, the form in which USPS is published: a label and `index:value` pairs a line."""

import math
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from asrnorm.core.errors import InputError
from asrnorm.data.reader.stream import read_bytes

MOST_BYTES = 1 << 28
MOST_VALUES = 1 << 27  # half a gigabyte of float32; a line may leave out every value it has
USPS_SIDE = 16


def read_libsvm(
    path: Path, *, num_features: int, complete: bool = False
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    r"""Return values `(n, num_features)` and the labels as they are written; a value that is left out is zero.

    Args:
        path: the text, plain or compressed with bzip2 or gzip.
        num_features: the largest index that may occur; indices start at one.
        complete: no value may be left out.

    Raises:
        InputError: a line that is not LIBSVM, with its number.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     path = Path(folder) / "two.txt"
        ...     _ = path.write_text("3 1:0.5 2:-1\n10 2:1\n")
        ...     read_libsvm(path, num_features=2)[0].tolist()
        [[0.5, -1.0], [0.0, 1.0]]
    """
    lines = [(number, line) for number, line in enumerate(read_bytes(path, MOST_BYTES).split(b"\n"), 1) if line.strip()]
    if not lines:
        raise InputError(f"{path}: no lines")
    if len(lines) * num_features > MOST_VALUES:
        raise InputError(f"{path}: {len(lines):,} lines of {num_features} values are more than can be held")
    rows: list[NDArray[np.float32]] = []
    labels = np.empty(len(lines), np.int64)
    for row, (number, line) in enumerate(lines):
        try:
            labels[row], values, count = _parse(line, num_features)
            if complete and count < num_features:
                raise ValueError(f"{count} of {num_features} values; fetch the file again")
        except (ValueError, OverflowError) as error:
            raise InputError(f"{path}, line {number}: {error}") from None
        rows.append(values)
    return np.stack(rows), labels


def read_usps(path: Path) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return USPS as images `(n, 16, 16)` and labels 0 to 9.

    The published values lie in [-1, 1] and the labels are digit + 1. The step to bytes is that of the public loaders
    whose numbers the field compares: `(value + 1) / 2 * 255` in float32, truncated.

    Raises:
        InputError: not LIBSVM, or values and labels out of their range.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     path = Path(folder) / "usps.t"
        ...     _ = path.write_text("1 " + " ".join(f"{i}:-0.5" for i in range(1, 257)))
        ...     images, labels = read_usps(path)
        >>> images[0, 0, 0], labels[0]
        (np.uint8(63), np.int64(0))
    """
    values, labels = read_libsvm(path, num_features=USPS_SIDE**2, complete=True)
    if values.min() < -1 or values.max() > 1:
        raise InputError(f"{path}: values from {values.min():g} to {values.max():g}; USPS has -1 to 1")
    if labels.min() < 1 or labels.max() > 10:
        raise InputError(f"{path}: labels from {labels.min()} to {labels.max()}; USPS has 1 to 10")
    pixels = ((values + np.float32(1)) / np.float32(2) * np.float32(255)).astype(np.uint8)
    return pixels.reshape(-1, USPS_SIDE, USPS_SIDE), labels - 1


def _parse(line: bytes, num_features: int) -> tuple[int, NDArray[np.float32], int]:
    label, *pairs = line.split()
    values = np.zeros(num_features, np.float32)
    if not math.isfinite(number := float(label)) or number != int(number) or abs(number) > 2**53:
        raise ValueError(f"the label {_show(label)} is not a whole number")
    last = 0
    for pair in pairs:
        index, separator, value = pair.partition(b":")
        if not separator or not index.isdigit():
            raise ValueError(f"{_show(pair)} is not index:value")
        position = int(index) if len(index) < 10 else num_features + 1
        if not last < position <= num_features:
            raise ValueError(f"index {_show(index)} is not between {last + 1} and {num_features}")
        last = position
        values[position - 1] = np.float32(_finite(value))
    return int(number), values, len(pairs)


def _finite(text: bytes) -> float:
    number = float(text)
    if not abs(number) <= 1e30:  # also refuses nan; larger ones do not fit in float32
        raise ValueError(f"the value {_show(text)} is not a usable number")
    return number


def _show(text: bytes) -> str:
    return repr(text[:20].decode("latin-1"))
