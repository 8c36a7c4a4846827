"""The MATLAB files of SVHN and the synthetic digits: `X` of 32x32x3xN bytes and `y` with 10 for the digit zero."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from asrnorm.core.errors import InputError
from asrnorm.data.reader.matlab import read_matlab

MOST_IMAGES = 600_000  # the largest published file, SVHN extra, has 531,131
SIDE = 32


def read_digit_mat(path: Path) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return images `(n, 32, 32, 3)` and labels 0 to 9 of a `*_32x32.mat` file.

    Raises:
        InputError: not such a file, damaged, or with other shapes, dtypes or labels.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> from scipy.io import savemat
        >>> with TemporaryDirectory() as folder:
        ...     path = Path(folder) / "test_32x32.mat"
        ...     savemat(path, {"X": np.zeros((32, 32, 3, 2), np.uint8), "y": np.array([[10], [3]], np.uint8)})
        ...     read_digit_mat(path)[1].tolist()
        [0, 3]
    """
    found = []

    def accept(name: str, shape: tuple[int, ...], dtype: str) -> bool:
        found.append(name)
        if name == "X" and (shape[:3] != (SIDE, SIDE, 3) or len(shape) != 4 or dtype != "uint8"):
            raise InputError(f"{path}: expected X to be uint8 ({SIDE}, {SIDE}, 3, n), found {dtype} {shape}")
        if name in ("X", "y") and max(shape) > MOST_IMAGES:
            raise InputError(f"{path}: {name} has the shape {shape}, more than {MOST_IMAGES:,} images")
        return name == "X" or (name == "y" and len(shape) == 2 and 1 in shape)

    arrays = read_matlab(path, accept)
    if "X" not in arrays or "y" not in arrays:
        names = ", ".join(sorted(set(found))) or "none"
        raise InputError(f"{path}: expected the arrays X and y with a label an image, found {names}")
    images, labels = arrays["X"], arrays["y"].reshape(-1)
    if labels.size != images.shape[3] or not labels.size:
        raise InputError(f"{path}: X holds {images.shape[3]:,} images and y {labels.size:,} labels")
    known = np.isin(labels, np.arange(11))
    if not known.all():
        raise InputError(f"{path}: y holds {labels[~known][0]}, which is no digit from 0 to 10")
    return np.ascontiguousarray(images.transpose(3, 0, 1, 2)), labels.astype(np.int64) % 10
