"""Decoded images with their labels: the form in which every data set that fits in memory is handed on."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from asrnorm.errors import InputError, InputTypeError


@dataclass(frozen=True, eq=False)
class ImageSet:
    """Images and labels of one domain, or of several mixed.

    Args:
        images: uint8 `(n, h, w, 3)`; may be memory-mapped and read-only.
        labels: int64 `(n,)`.

    Raises:
        InputTypeError: another dtype.
        InputError: shapes that do not fit.

    Example:
        >>> data = ImageSet(np.zeros((4, 8, 8, 3), np.uint8), np.array([0, 1, 1, 0]))
        >>> len(data), data.image_size, data.class_counts(2).tolist()
        (4, (8, 8), [2, 2])
    """

    images: NDArray[np.uint8]
    labels: NDArray[np.int64]

    def __post_init__(self) -> None:
        if self.images.dtype != np.uint8 or self.labels.dtype != np.int64:
            raise InputTypeError(
                f"ImageSet: expected uint8 images and int64 labels, got {self.images.dtype} and {self.labels.dtype}"
            )
        if self.images.ndim != 4 or self.images.shape[3] != 3 or self.labels.shape != self.images.shape[:1]:
            raise InputError(
                f"ImageSet: expected images (n, h, w, 3) and labels (n,), "
                f"got {self.images.shape} and {self.labels.shape}"
            )

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def image_size(self) -> tuple[int, int]:
        """Height and width."""
        return self.images.shape[1], self.images.shape[2]

    def class_counts(self, num_classes: int) -> NDArray[np.int64]:
        """Return how many images each class has."""
        return np.bincount(self.labels, minlength=num_classes).astype(np.int64)

    def take(self, rows: slice | NDArray[np.integer] | Sequence[int]) -> Self:
        """Return some of the images: a view where the rows are a run of neighbors, else a copy."""
        if not isinstance(rows, slice):
            rows = np.asarray(rows)
            rows = np.arange(len(self))[rows] if rows.dtype == bool else as_run(rows.astype(np.int64))
        return type(self)(self.images[rows], self.labels[rows])


def concatenate(parts: Sequence[ImageSet]) -> ImageSet:
    """Return the images of several sets as one, in order.

    Example:
        >>> one = ImageSet(np.zeros((1, 2, 2, 3), np.uint8), np.array([5]))
        >>> concatenate([one, one]).labels.tolist()
        [5, 5]
    """
    if len(parts) == 1:
        return parts[0]
    return ImageSet(np.concatenate([p.images for p in parts]), np.concatenate([p.labels for p in parts]))


def as_run(rows: NDArray[np.int64]) -> slice | NDArray[np.int64]:
    """Return the slice that selects the same rows where they are consecutive: slicing a memory map copies nothing.

    Example:
        >>> as_run(np.array([3, 4, 5])), as_run(np.array([5, 3]))
        (slice(3, 6, None), array([5, 3]))
    """
    if len(rows) and rows[0] >= 0 and np.array_equal(rows, np.arange(rows[0], rows[0] + len(rows))):
        return slice(int(rows[0]), int(rows[0]) + len(rows))
    return rows
