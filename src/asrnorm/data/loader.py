"""Batches of images: which images a step takes, a function of seed and step, and a loader for one's own loop."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from asrnorm.core.errors import InputError
from asrnorm.data.image_set import FileSet, ImageSet
from asrnorm.data.pool import Pool


@dataclass(frozen=True)
class BatchOrder:
    """The order in which batches take `count` images, epoch after epoch; fields as in `create_loader`.

    It depends on nothing but its fields and the step, so that a resumed run needs no saved state.
    """

    count: int
    batch_size: int
    seed: int = 0
    shuffle: bool = True
    drop_last: bool = True

    def __post_init__(self) -> None:
        found = f"{self.count} images in batches of {self.batch_size}"
        if self.count < 1 or self.batch_size < 1 or self.seed < 0:
            raise InputError(f"{found} with seed {self.seed}: the first two must be at least 1, the seed at least 0")
        if self.drop_last and self.count < self.batch_size:
            raise InputError(f"{found} do not fill one batch; use a smaller batch_size or drop_last=False")

    def __len__(self) -> int:
        """Return the number of batches in an epoch."""
        return self.count // self.batch_size if self.drop_last else -(-self.count // self.batch_size)

    def rows(self, step: int) -> Tensor:
        """Return the int64 indices of the images of a step, counted from the start of training."""
        epoch, position = divmod(step, len(self))
        start = position * self.batch_size
        stop = min(start + self.batch_size, self.count)
        if not self.shuffle:
            return torch.arange(start, stop)
        return _permutation(self.count, self.seed, epoch)[start:stop].clone()  # the permutation is shared


@lru_cache(maxsize=4)  # the current epoch of the few loaders of a run
def _permutation(count: int, seed: int, epoch: int) -> Tensor:
    # A seed sequence, since a sum would give (0, 1) and (1, 0) the same stream.
    state = np.random.SeedSequence((seed, epoch)).generate_state(2, np.uint32)
    # On the CPU whatever the device of the images, so that the order is the same everywhere.
    generator = torch.Generator().manual_seed(int(state[0]) << 31 | int(state[1]) >> 1)
    return torch.randperm(count, generator=generator)


class ByteBatch(NamedTuple):
    """Images uint8 `(n, 3, h, w)` in channels-last memory, labels int64 `(n,)`, rows of the set int64 `(n,)`."""

    images: Tensor
    labels: Tensor
    rows: Tensor


@dataclass(frozen=True)
class Loader:
    """Batches of a set on a device; made by `create_loader`."""

    order: BatchOrder
    pool: Pool

    def __len__(self) -> int:
        """Return the number of batches in an epoch."""
        return len(self.order)

    def batch(self, step: int) -> ByteBatch:
        """Return the batch of a step, counted from the start of training."""
        rows = self.order.rows(step).to(self.pool.device)
        images = self.pool.source_bytes(rows).contiguous(memory_format=torch.channels_last)
        return ByteBatch(images, self.pool.labels[rows], rows)

    def iterate(self, start: int, stop: int) -> Iterator[ByteBatch]:
        """Yield the batches of the steps from `start` up to `stop`, over as many epochs as that takes."""
        return map(self.batch, range(start, stop))

    def __iter__(self) -> Iterator[ByteBatch]:
        """Yield the batches of the first epoch: with `shuffle=False`, the whole set."""
        return self.iterate(0, len(self))


def create_loader(
    data: ImageSet | FileSet,
    *,
    batch_size: int,
    seed: int = 0,
    shuffle: bool = True,
    drop_last: bool = True,
    device: torch.device | str = "cpu",
) -> Loader:
    """Return a loader of a set; an `ImageSet` is kept on the device as uint8, files are decoded by several threads.

    Args:
        data: the images.
        batch_size: images per batch.
        seed: of the shuffling; each epoch has its own permutation.
        shuffle: `False` keeps the order of the set.
        drop_last: drop the last batch of an epoch if it is short.
        device: of the batches.

    Example:
        >>> data = ImageSet(np.zeros((5, 8, 8, 3), np.uint8), np.arange(5))
        >>> loader = create_loader(data, batch_size=2, shuffle=False)
        >>> [batch.labels.tolist() for batch in loader], loader.batch(3).labels.tolist()
        ([[0, 1], [2, 3]], [2, 3])
    """
    return Loader(BatchOrder(len(data), batch_size, seed, shuffle, drop_last), Pool(data, device))
