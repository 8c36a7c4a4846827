"""A set of images in batches, and each process's share of them."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from asrnorm.data import FileSet, ImageSet
from asrnorm.data.even_choice import choose_evenly
from asrnorm.data.image import read_images
from asrnorm.errors import InputError
from asrnorm.world import ALONE, World


def thin(data: ImageSet | FileSet, limit: int) -> ImageSet | FileSet:
    """Return at most `limit` images, as many of each class, spread evenly over the set.

    Example:
        >>> thin(ImageSet(np.zeros((6, 8, 8, 3), np.uint8), np.array([0, 1, 0, 1, 0, 1])), 4).labels.tolist()
        [0, 1, 0, 1]
    """
    if limit <= 0 or len(data) <= limit:
        return data
    return data.take(choose_evenly(data.labels, limit))


def iterate_batches(
    data: ImageSet | FileSet, batch_size: int, world: World = ALONE
) -> Iterator[tuple[int, NDArray[np.uint8], NDArray[np.int64]]]:
    """Yield this process's batches: number, images uint8 `(n, h, w, 3)`, labels `(n,)`.

    Whole batches are shared out, so that each is the same whatever the number of processes: kernels round otherwise in
    batches of another size, and `bn_test` looks at the whole batch. Batch b of B has the images b, b+B, b+2B, ...:
    sizes then differ by one at most, with no short batch at the end, and sets that lie sorted by class come mixed.

    Args:
        data: the images; of a set of files, a batch is decoded when its turn comes.
        batch_size: the most images in a batch.
        world: the processes that share the batches.

    Raises:
        InputError: a batch size below one, or a file that cannot be decoded.

    Example:
        >>> data = ImageSet(np.zeros((5, 8, 8, 3), np.uint8), np.arange(5))
        >>> [labels.tolist() for _, _, labels in iterate_batches(data, 2)]
        [[0, 3], [1, 4], [2]]
    """
    for bundle in iterate_bundles(data, batch_size, 1, world):
        yield bundle.number, bundle.images, bundle.labels


class Bundle(NamedTuple):
    """Equally large batches, one after the other: images uint8 `(n, h, w, 3)`, labels `(n,)`."""

    number: int
    batches: int
    images: NDArray[np.uint8]
    labels: NDArray[np.int64]


def iterate_bundles(data: ImageSet | FileSet, batch_size: int, together: int, world: World = ALONE) -> Iterator[Bundle]:
    """Yield the batches of `iterate_batches`, up to so many of one size together; whole bundles are shared out.

    Args:
        data: as for `iterate_batches`.
        batch_size: likewise.
        together: the most batches in a bundle.
        world: the processes that share the bundles.

    Example:
        >>> data = ImageSet(np.zeros((5, 8, 8, 3), np.uint8), np.arange(5))
        >>> [(bundle.batches, bundle.labels.tolist()) for bundle in iterate_bundles(data, 2, 2)]
        [(2, [0, 3, 1, 4]), (1, [2])]
    """
    if batch_size < 1:
        raise InputError(f"batch_size must be at least 1, not {batch_size}")
    num_batches = -(-len(data) // batch_size)
    larger = len(data) % num_batches if num_batches else 0  # the first so many have one image more than the others
    parts = [
        range(first, min(first + together, end))
        for begin, end in ((0, larger), (larger, num_batches))
        for first in range(begin, end, together)
    ]
    for number in range(len(parts))[world.share(len(parts))]:
        rows = [slice(batch, None, num_batches) for batch in parts[number]]
        if isinstance(data, ImageSet):
            images = [data.images[each] for each in rows]
        else:
            images = [part for each in rows for part in read_images(data.paths[each], size=data.image_size)]
        labels = [data.labels[each] for each in rows]
        yield Bundle(number, len(rows), _join(images), _join(labels))


def _join(parts: list[NDArray[Any]]) -> NDArray[Any]:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)
