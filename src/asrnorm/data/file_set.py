"""Images that stay in their files and are decoded one by one: for folders that do not fit in memory."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from asrnorm.data.image import read_image
from asrnorm.errors import InputError


@dataclass(frozen=True, eq=False)
class FileSet:
    """Paths and labels of one domain; the pixels equal those an `ImageSet` of the same files would hold.

    Args:
        paths: one image file each.
        labels: int64 `(n,)`.
        image_size: height and width to which every image is resized.

    Example:
        >>> FileSet((Path("a.png"),), np.array([0]), (224, 224)).class_counts(2).tolist()
        [1, 0]
    """

    paths: tuple[Path, ...]
    labels: NDArray[np.int64]
    image_size: tuple[int, int]

    def __post_init__(self) -> None:
        if self.labels.dtype != np.int64 or self.labels.shape != (len(self.paths),):
            raise InputError(
                f"FileSet: expected {len(self.paths)} int64 labels, got {self.labels.dtype} {self.labels.shape}"
            )

    def __len__(self) -> int:
        return len(self.paths)

    def class_counts(self, num_classes: int) -> NDArray[np.int64]:
        """Return how many images each class has."""
        return np.bincount(self.labels, minlength=num_classes).astype(np.int64)

    def read(self, row: int) -> NDArray[np.uint8]:
        """Decode one image to uint8 `(h, w, 3)`."""
        return read_image(self.paths[row], size=self.image_size)

    def take(self, rows: slice | NDArray[np.integer] | Sequence[int]) -> Self:
        """Return some of the images."""
        chosen = np.arange(len(self))[rows]
        return type(self)(tuple(self.paths[row] for row in chosen), self.labels[chosen], self.image_size)
