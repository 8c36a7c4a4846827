"""Text formats: LIBSVM lines (USPS) and lists of `name label` lines (PACS, MNIST-M)."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from asrnorm.core.errors import InputError
from asrnorm.data.readers.arrays import read_bytes

MAX_USPS_BYTES = 1 << 28
MAX_LISTING_BYTES = 1 << 26
USPS_SIDE = 16
_INDICES = [str(index).encode() for index in range(1, USPS_SIDE**2 + 1)]


def read_usps(path: Path) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return USPS as images `(n, 16, 16)` and labels 0 to 9.

    USPS is published as LIBSVM text, plain or compressed: on each line the digit + 1 and 256 pairs `index:value` with
    values in [-1, 1]. Values become bytes as in the public loaders whose numbers the field compares:
    `(value + 1) / 2 * 255` in float32, truncated.
    """
    images, labels = [], []
    for number, line in enumerate(read_bytes(path, MAX_USPS_BYTES).split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            label, values = _parse_digit(line)
        except ValueError as error:
            raise InputError(f"{path}, line {number}: {error}") from None
        labels.append(label)
        images.append(((values + np.float32(1)) / np.float32(2) * np.float32(255)).astype(np.uint8))
    if not images:
        raise InputError(f"{path}: no lines")
    return np.stack(images).reshape(-1, USPS_SIDE, USPS_SIDE), np.array(labels, np.int64)


def _parse_digit(line: bytes) -> tuple[int, NDArray[np.float32]]:
    first, *pairs = line.split()
    label = float(first)
    if label not in range(1, 11):
        raise ValueError(f"the label {_quote(first)} is not a whole number from 1 to 10")
    values = np.empty(len(_INDICES), np.float32)
    for index, pair in enumerate(pairs[: len(_INDICES)]):
        found, _, text = pair.partition(b":")
        if found != _INDICES[index]:
            raise ValueError(f"{_quote(pair)} stands where {index + 1}:value should")
        values[index] = value = float(text)
        if not -1 <= value <= 1:
            raise ValueError(f"the value {_quote(text)} is not a number from -1 to 1")
    if len(pairs) != len(_INDICES):
        raise ValueError(f"{len(pairs)} of {len(_INDICES)} values; fetch the file again")
    return int(label) - 1, values


def _quote(text: bytes) -> str:
    return repr(text[:20].decode("latin-1"))


def read_listing(path: Path, *, labels: range) -> list[tuple[str, int]]:
    """Return the names, which are relative paths, and labels of a list of `name label` lines, in order."""
    try:
        text = read_bytes(path, MAX_LISTING_BYTES).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InputError(f"{path}: not a text file in UTF-8") from None
    entries = []
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        name, _, label = line.strip().rpartition(" ")
        name = name.strip().replace("\\", "/")
        if not label.isascii() or not label.isdigit() or len(label) > 9 or int(label) not in labels:
            raise InputError(f"{path}, line {number}: expected a name and a label {labels[0]} to {labels[-1]}")
        if not name or "\0" in name or name.startswith("/") or ".." in name.split("/"):
            raise InputError(f"{path}, line {number}: {name[:80]!r} is not a path inside the data set")
        entries.append((name, int(label)))
    if not entries:
        raise InputError(f"{path}: no lines")
    return entries
