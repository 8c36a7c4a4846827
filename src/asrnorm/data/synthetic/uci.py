"""The UCI digits inside scikit-learn's wheel: other writers, another scanner, 8x8 pixels."""

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from asrnorm.data.synthetic.dependency import require
from asrnorm.data.synthetic.mnist_subset import enlarge, to_rgb

_INK = 16  # each pixel counts the inked ones of a 4x4 block of the 32x32 scan


def build_uci() -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return the 1,797 digits at the 32x32 pixels at which they were scanned.

    Returns:
        Images of shape `(1797, 32, 32, 3)`, white on black, and labels.

    Raises:
        MissingDependencyError: scikit-learn is not installed.
    """
    digits = require("sklearn.datasets", "scikit-learn", "the UCI digits").load_digits()
    return to_rgb(restore_scan(digits.images)), digits.target.astype(np.int64)


def restore_scan(counts_n88: NDArray[np.floating]) -> NDArray[np.uint8]:
    """Undo the block counts as far as one can: smooth interpolation, then a steep curve in place of the threshold.

    Example:
        >>> counts = np.zeros((1, 8, 8)); counts[0, 2:6, 2:6] = 16
        >>> scan = restore_scan(counts)
        >>> scan.shape, int(scan[0, 16, 16]), int(scan[0, 0, 0])
        ((1, 32, 32), 255, 0)
    """
    smooth = enlarge(np.rint(counts_n88 * (255 / _INK)).astype(np.uint8), Image.Resampling.BICUBIC) / 255
    ink = np.clip((smooth - 0.5) * 2 + 0.5, 0, 1)
    return np.rint(ink * 255).astype(np.uint8)
