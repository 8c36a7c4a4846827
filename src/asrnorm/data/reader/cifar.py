"""CIFAR-10 in both published forms: binary batches of 3,073-byte records, and pickled Python batches."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from asrnorm.core.errors import InputError
from asrnorm.data.reader.pickled import read_pickled
from asrnorm.data.reader.stream import read_bytes

NUM_CLASSES = 10
SIDE = 32
_PIXELS = 3 * SIDE * SIDE
MOST_BYTES = 1 << 28  # a published batch has 30,730,000


def read_cifar_binary(path: Path) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return images `(n, 32, 32, 3)` and labels of a binary batch: a label byte and three color planes a record.

    Raises:
        InputError: a size that is not a whole number of records, or a label above 9.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     path = Path(folder) / "test_batch.bin"
        ...     _ = path.write_bytes(bytes([6]) + bytes(3072))
        ...     read_cifar_binary(path)[1].tolist()
        [6]
    """
    data = read_bytes(path, MOST_BYTES)
    if not data or len(data) % (_PIXELS + 1):
        raise InputError(
            f"{path}: {len(data):,} bytes are no whole number of {_PIXELS + 1:,}-byte records; fetch the file again"
        )
    records = np.frombuffer(data, np.uint8).reshape(-1, _PIXELS + 1)
    return _to_images(records[:, 1:]), _check_labels(path, records[:, 0].astype(np.int64))


def read_cifar_python(path: Path) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return images `(n, 32, 32, 3)` and labels of a pickled batch, without running anything the pickle names.

    Raises:
        InputError: not such a batch; a pickle that holds more than numbers, text, lists and byte arrays.

    Example:
        >>> import pickle
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     path = Path(folder) / "test_batch"
        ...     batch = {b"data": np.zeros((1, 3072), np.uint8), b"labels": [6]}
        ...     _ = path.write_bytes(pickle.dumps(batch, protocol=2))
        ...     read_cifar_python(path)[1].tolist()
        [6]
    """
    batch = read_pickled(path, MOST_BYTES)
    if not isinstance(batch, dict):
        raise InputError(f"{path}: expected a dictionary with data and labels, found {type(batch).__name__}")
    data, labels = (batch.get(key.encode(), batch.get(key)) for key in ("data", "labels"))
    if not isinstance(data, np.ndarray) or data.ndim != 2 or data.shape[1] != _PIXELS or not len(data):
        raise InputError(f"{path}: expected 'data' to be bytes of shape (n, {_PIXELS})")
    if isinstance(labels, np.ndarray):
        labels = labels.tolist()
    if not isinstance(labels, list) or len(labels) != len(data) or not all(type(v) is int for v in labels):
        raise InputError(f"{path}: expected 'labels' to be a list of {len(data):,} whole numbers")
    if not all(0 <= label < NUM_CLASSES for label in labels):
        raise InputError(f"{path}: a label is not between 0 and {NUM_CLASSES - 1}")
    return _to_images(data), np.array(labels, np.int64)


def _to_images(planes: NDArray[np.uint8]) -> NDArray[np.uint8]:
    return np.ascontiguousarray(planes.reshape(-1, 3, SIDE, SIDE).transpose(0, 2, 3, 1))


def _check_labels(path: Path, labels: NDArray[np.int64]) -> NDArray[np.int64]:
    if labels.max() >= NUM_CLASSES:
        raise InputError(f"{path}: a label is {labels.max()}; CIFAR-10 has 0 to {NUM_CLASSES - 1}")
    return labels
