"""The MATLAB files of SVHN and the synthetic digits: `X` of 32x32x3xN bytes and `y` with 10 for the digit zero."""

import warnings
from importlib import import_module
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from asrnorm.errors import InputError

MOST_IMAGES = 1_000_000  # the largest published file, SVHN extra, has 531,131
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
    matlab = import_module("scipy.io")  # slow to load, and only two sets need it
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            # The headers first: loadmat would allocate whatever they claim.
            found = {name: (shape, kind) for name, shape, kind in matlab.whosmat(path)}
            _check_header(path, found)
            values = matlab.loadmat(path, variable_names=("X", "y"))
    except InputError:
        raise
    except NotImplementedError:
        raise InputError(f"{path}: a MATLAB 7.3 file (HDF5); save it with -v7") from None
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except Exception as error:  # scipy's parser answers a damaged file with nearly any exception
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise InputError(f"{path}: cannot be read as a MATLAB file ({reason}); fetch the file again") from None
    images, labels = np.asarray(values.get("X")), np.asarray(values.get("y"))
    if images.dtype != np.uint8 or images.ndim != 4 or labels.size != images.shape[3] or labels.dtype.kind not in "iuf":
        raise InputError(f"{path}: X is {images.dtype} {images.shape} and y {labels.dtype} {labels.shape}")
    digits = labels.reshape(-1)
    if not np.isin(digits, np.arange(11)).all():
        raise InputError(
            f"{path}: y holds {digits[~np.isin(digits, np.arange(11))][0]}, which is no digit from 0 to 10"
        )
    return np.ascontiguousarray(images.transpose(3, 0, 1, 2)), digits.astype(np.int64) % 10


def _check_header(path: Path, found: dict[str, tuple[tuple[int, ...], str]]) -> None:
    if "X" not in found or "y" not in found:
        raise InputError(f"{path}: expected the variables X and y, found {', '.join(sorted(found)) or 'none'}")
    (shape, kind), (label_shape, _) = found["X"], found["y"]
    if shape[:3] != (SIDE, SIDE, 3) or len(shape) != 4 or kind != "uint8":
        raise InputError(f"{path}: expected X to be uint8 ({SIDE}, {SIDE}, 3, n), found {kind} {shape}")
    count = shape[3]
    if not 0 < count <= MOST_IMAGES or sorted(label_shape) != sorted((1, count)):
        raise InputError(f"{path}: X holds {count:,} images and y has shape {label_shape}")
