"""MNIST-M from MNIST and photographs, by the rule that the published images follow."""

import numpy as np
from numpy.typing import NDArray

from asrnorm.data.synthetic.photograph import load_photographs, sample_patches
from asrnorm.errors import InputError

SIZE = 32
_BORDER = 2


def build_mnist_m(
    mnist_images_28: NDArray[np.uint8], labels: NDArray[np.integer], seed: int = 0
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Blend MNIST digits on patches of photographs, as MNIST-M does.

    Ganin and Lempitsky (2015) take the absolute difference of digit and patch, channel by channel. The published
    images, compared with the MNIST digits that they were made of, show how: the digit keeps its 28x28 pixels inside a
    border of two, and every pixel that is not zero counts as 255, so that strokes are the inverted patch with hard
    edges. The photographs are other ones than theirs (BSDS500).

    Args:
        mnist_images_28: digits of shape `(n, 28, 28)`, white on black.
        labels: their classes, returned unchanged as int64.
        seed: chooses the patches.

    Returns:
        Images of shape `(n, 32, 32, 3)` and labels.

    Raises:
        InputError: the images are not `(n, 28, 28)` uint8, or the labels are not as many.
        MissingDependencyError: scikit-image or scikit-learn is not installed.
    """
    generator = np.random.default_rng(seed)
    _check(mnist_images_28, labels)
    patches = sample_patches(load_photographs(), len(labels), generator, size=SIZE)
    return blend(mnist_images_28, patches), np.asarray(labels, np.int64)


def blend(digits_28: NDArray[np.uint8], patches: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return `|patch - 255 * (digit > 0)|`, the digit in the middle of the patch.

    Example:
        >>> digit = np.zeros((1, 28, 28), np.uint8); digit[0, 5, 5] = 1
        >>> blended = blend(digit, np.full((1, 32, 32, 3), 55, np.uint8))
        >>> blended[0, 7, 7].tolist(), blended[0, 5, 5].tolist()
        ([200, 200, 200], [55, 55, 55])
    """
    stroke = np.pad(digits_28 > 0, ((0, 0), (_BORDER, _BORDER), (_BORDER, _BORDER)))
    return np.where(stroke[..., None], 255 - patches, patches)


def _check(images: NDArray[np.uint8], labels: NDArray[np.integer]) -> None:
    if images.ndim != 3 or images.shape[1:] != (28, 28) or images.dtype != np.uint8:
        raise InputError(f"MNIST images must be uint8 of shape (n, 28, 28), not {images.dtype} {images.shape}")
    if np.shape(labels) != (len(images),):
        raise InputError(f"{len(images)} images need as many labels, not shape {np.shape(labels)}")
