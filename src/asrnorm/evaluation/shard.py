"""A set of images in batches, and each process's share of them."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from asrnorm.data import FileSet, ImageSet
from asrnorm.data.image import read_images
from asrnorm.errors import InputError
from asrnorm.world import ALONE, World


def thin(data: ImageSet | FileSet, limit: int) -> ImageSet | FileSet:
    """Return at most `limit` images, spread evenly over the set, so that one sorted by class keeps its classes.

    Example:
        >>> thin(ImageSet(np.zeros((6, 8, 8, 3), np.uint8), np.arange(6)), 3).labels.tolist()
        [0, 2, 4]
    """
    if limit <= 0 or len(data) <= limit:
        return data
    return data.take(slice(None, None, -(-len(data) // limit)))


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
    if batch_size < 1:
        raise InputError(f"batch_size must be at least 1, not {batch_size}")
    num_batches = -(-len(data) // batch_size)
    for batch in range(num_batches)[world.share(num_batches)]:
        rows = slice(batch, None, num_batches)
        if isinstance(data, ImageSet):
            images = data.images[rows]
        else:
            images = np.concatenate(list(read_images(data.paths[rows], size=data.image_size)))
        yield batch, images, data.labels[rows]
