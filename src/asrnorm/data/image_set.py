"""Labelled images of a domain, in memory or in files, and how to subsample and split them."""

import hashlib
from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from asrnorm.core.errors import InputError, InputTypeError
from asrnorm.data.image import read_image, read_images


class _Labelled:
    labels: NDArray[np.int64]
    domains: NDArray[np.int64] | None

    def read(self, row: int) -> NDArray[np.uint8]:
        """Return one image, uint8 `(h, w, 3)`."""
        raise NotImplementedError

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, row: int) -> tuple[NDArray[np.float32], int]:
        """Return an image, float32 `(3, h, w)` in [0, 1], and its label, as a PyTorch `DataLoader` collates them."""
        return np.divide(self.read(row).transpose(2, 0, 1), 255, dtype=np.float32), int(self.labels[row])

    def class_counts(self, num_classes: int) -> NDArray[np.int64]:
        """Return how many images each class has."""
        return np.bincount(self.labels, minlength=num_classes).astype(np.int64)

    def _domains_of(self, rows: slice | NDArray[np.int64]) -> NDArray[np.int64] | None:
        return None if self.domains is None else self.domains[rows]


@dataclass(frozen=True, eq=False)
class ImageSet(_Labelled):
    """Decoded images and labels of one domain, or of several mixed.

    Example:
        >>> data = ImageSet(np.zeros((4, 8, 8, 3), np.uint8), np.array([0, 1, 1, 0]))
        >>> len(data), data.image_size, data.class_counts(2).tolist()
        (4, (8, 8), [2, 2])
    """

    images: NDArray[np.uint8]  # (n, h, w, 3); may be memory-mapped and read-only
    labels: NDArray[np.int64]  # (n,)
    domains: NDArray[np.int64] | None = None  # (n,), the number of each image's domain where several are mixed

    def __post_init__(self) -> None:
        if self.images.dtype != np.uint8 or self.labels.dtype != np.int64:
            raise InputTypeError(
                f"ImageSet: expected uint8 images and int64 labels, got {self.images.dtype} and {self.labels.dtype}"
            )
        if self.images.ndim != 4 or self.images.shape[3] != 3 or self.labels.shape != self.images.shape[:1]:
            found = f"{self.images.shape} and {self.labels.shape}"
            raise InputError(f"ImageSet: expected images (n, h, w, 3) and labels (n,), got {found}")

    @property
    def image_size(self) -> tuple[int, int]:
        """Height and width."""
        return self.images.shape[1], self.images.shape[2]

    def read(self, row: int) -> NDArray[np.uint8]:
        """Return one image, uint8 `(h, w, 3)`."""
        return self.images[row]

    def read_rows(self, rows: slice | Sequence[int]) -> NDArray[np.uint8]:
        """Return several images, uint8 `(n, h, w, 3)`."""
        return self.images[rows]

    def take(self, rows: slice | NDArray[np.integer] | Sequence[int]) -> Self:
        """Return some of the images: a view if the rows are consecutive, else a copy."""
        chosen: slice | NDArray[np.int64]
        if isinstance(rows, slice):
            chosen = rows
        else:
            chosen = np.arange(len(self))[rows]
            if len(chosen) and np.array_equal(chosen, np.arange(chosen[0], chosen[0] + len(chosen))):
                chosen = slice(int(chosen[0]), int(chosen[0]) + len(chosen))  # copies nothing of a memory map
        return type(self)(self.images[chosen], self.labels[chosen], self._domains_of(chosen))


@dataclass(frozen=True, eq=False)
class FileSet(_Labelled):
    """Image files and labels of one domain, decoded on demand; pixels equal those of an `ImageSet` of these files."""

    paths: tuple[Path, ...]
    labels: NDArray[np.int64]
    image_size: tuple[int, int]  # height and width to which every image is resized
    domains: NDArray[np.int64] | None = None

    def __post_init__(self) -> None:
        if self.labels.dtype != np.int64 or self.labels.shape != (len(self.paths),):
            found = f"{self.labels.dtype} {self.labels.shape}"
            raise InputError(f"FileSet: expected {len(self.paths)} int64 labels, got {found}")

    def read(self, row: int) -> NDArray[np.uint8]:
        """Decode one image to uint8 `(h, w, 3)`."""
        return read_image(self.paths[row], size=self.image_size)

    def read_rows(self, rows: slice | Sequence[int]) -> NDArray[np.uint8]:
        """Decode several images to uint8 `(n, h, w, 3)`, by several threads."""
        paths = self.paths[rows] if isinstance(rows, slice) else [self.paths[row] for row in rows]
        blocks = list(read_images(paths, size=self.image_size))
        return np.concatenate(blocks) if blocks else np.empty((0, *self.image_size, 3), np.uint8)

    def take(self, rows: slice | NDArray[np.integer] | Sequence[int]) -> Self:
        """Return some of the images."""
        chosen = np.arange(len(self))[rows]
        paths = tuple(self.paths[row] for row in chosen)
        return type(self)(paths, self.labels[chosen], self.image_size, self._domains_of(chosen))


def concatenate(parts: Sequence[Any]) -> Any:
    """Return several sets of one kind as one, in order; `domains` are their numbers."""
    if len(parts) == 1:
        return parts[0]
    labels = np.concatenate([part.labels for part in parts])
    domains = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
    if isinstance(parts[0], ImageSet):
        return ImageSet(np.concatenate([part.images for part in parts]), labels, domains)
    return FileSet(tuple(path for part in parts for path in part.paths), labels, parts[0].image_size, domains)


def balanced_subset(labels: ArrayLike, limit: int) -> NDArray[np.int64]:
    """Return at most `limit` rows in order, equally many of each class, evenly spaced within it."""
    labels_n = np.asarray(labels)
    if limit >= len(labels_n):
        return np.arange(len(labels_n))
    rows = [np.flatnonzero(labels_n == label) for label in np.unique(labels_n)]
    if limit < len(rows):  # fewer images than classes: evenly spaced classes
        return np.sort(np.array([rows[step * len(rows) // limit][0] for step in range(limit)], np.int64))
    quotas = np.zeros(len(rows), np.int64)
    sizes = np.array([len(own) for own in rows])
    while (left := limit - int(quotas.sum())) > 0:
        unfilled = np.flatnonzero(quotas < sizes)
        quotas[unfilled[:left]] += max(1, min(left // len(unfilled), int((sizes - quotas)[unfilled].min())))
    chosen = [own[np.arange(quota) * len(own) // quota] for own, quota in zip(rows, quotas, strict=True)]
    return np.sort(np.concatenate(chosen))


def split_stratified(
    keys: Sequence[str], strata: Sequence[Hashable], fractions: Sequence[float], *, seed: int
) -> list[NDArray[np.int64]]:
    """Return the rows of each held-out part, then those of the rest, each in ascending order.

    Within a stratum (a class, or a class of a domain) images are ranked by a hash of the seed and their key, and the
    parts are taken from the front: the split is the same on every machine and version, and adding a file moves few
    others. Every part has the same balance of strata. A part with a fraction above zero gets at least one image of a
    stratum that has enough of them, and the rest always keeps one. Keys are distinct, such as paths below the root.
    """
    if any(not 0 <= fraction < 1 for fraction in fractions) or sum(fractions) >= 1:
        raise InputError(f"held-out fractions {list(fractions)}: each must be at least 0, and their sum below 1")
    groups: dict[Hashable, list[int]] = defaultdict(list)
    for row, stratum in enumerate(strata):
        groups[stratum].append(row)
    parts: list[list[int]] = [[] for _ in range(len(fractions) + 1)]
    for rows in groups.values():
        ranked = sorted(rows, key=lambda row: (_rank(seed, keys[row]), keys[row]))
        for part, fraction in enumerate(fractions):
            size = min(max(round(fraction * len(rows)), 1), len(ranked) - 1) if fraction else 0
            parts[part] += ranked[:size]
            ranked = ranked[size:]
        parts[-1] += ranked
    return [np.array(sorted(part), np.int64) for part in parts]


def _rank(seed: int, key: str) -> bytes:
    return hashlib.sha256(f"{seed}\0{key}".encode("utf-8", "surrogatepass")).digest()
