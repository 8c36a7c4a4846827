"""Which images make up the batch of a step: a function of the seed and the step, and of nothing else.

Nothing needs to be saved to resume: step 1,000 of a resumed run takes the images it would have taken.

Batches of uint8 images on the device: from memory, or from files through worker processes.

Both loaders give the same batches for the same images, seed and step; `create_loader` picks the one that fits.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from asrnorm.core.errors import InputError
from asrnorm.data.image_set import FileSet, ImageSet


@dataclass(frozen=True)
class BatchOrder:
    """The order in which a set of `count` images is gone through, epoch after epoch.

    Args:
        count: how many images there are.
        batch_size: how many make a batch.
        seed: of the shuffling; each epoch has its own permutation.
        shuffle: `False` keeps the order of the set.
        drop_last: leave out the last batch of an epoch where it is short.

    Raises:
        InputError: sizes that give no batch.

    Example:
        >>> order = BatchOrder(count=5, batch_size=2, shuffle=False, drop_last=False)
        >>> len(order), order.rows(2).tolist(), order.rows(3).tolist()
        (3, [4], [0, 1])
    """

    count: int
    batch_size: int
    seed: int = 0
    shuffle: bool = True
    drop_last: bool = True

    def __post_init__(self) -> None:
        if self.count < 1 or self.batch_size < 1 or self.seed < 0:
            raise InputError(
                f"{self.count} images in batches of {self.batch_size} with seed {self.seed}: "
                "the first two must be at least 1, the seed at least 0"
            )
        if self.drop_last and self.count < self.batch_size:
            raise InputError(
                f"{self.count} images do not fill one batch of {self.batch_size}; "
                "use a smaller batch_size or drop_last=False"
            )

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


def create_generator(*key: int) -> torch.Generator:
    """Return a generator on the CPU whose stream depends on all the numbers of `key`, such as (seed, epoch).

    Example:
        >>> one, two = create_generator(0, 1), create_generator(1, 0)
        >>> one.initial_seed() == two.initial_seed()
        False
    """
    # Adding the numbers would give (0, 1) and (1, 0) the same stream.
    state = np.random.SeedSequence(key).generate_state(2, np.uint32)
    return torch.Generator().manual_seed(int(state[0]) << 31 | int(state[1]) >> 1)


@lru_cache(maxsize=4)  # the current epoch of the few loaders a run has
def _permutation(count: int, seed: int, epoch: int) -> Tensor:
    # On the CPU whatever the device of the images: the order must not depend on where a run was started.
    return torch.randperm(count, generator=create_generator(seed, epoch))


_COPY_ROWS = 2048  # images copied to the device at a time, so that a memory map never lies in memory as a whole


class ByteBatch(NamedTuple):
    """Images uint8 `(n, 3, h, w)` in channels-last memory, labels int64 `(n,)`, rows of the set int64 `(n,)`."""

    images: Tensor
    labels: Tensor
    rows: Tensor


class DeviceLoader:
    """Batches of a set that is kept on the device as uint8: no copy, no worker, one gather a step.

    Args:
        data: the images.
        batch_size: how many make a batch.
        seed: of the shuffling.
        shuffle: `False` keeps the order of the set, as evaluation does.
        drop_last: leave out the last batch of an epoch where it is short.
        device: where the images are kept and the batches appear.

    Example:
        >>> data = ImageSet(np.zeros((5, 8, 8, 3), np.uint8), np.arange(5))
        >>> loader = DeviceLoader(data, batch_size=2, shuffle=False)
        >>> [batch.labels.tolist() for batch in loader], loader.batch(3).labels.tolist()
        ([[0, 1], [2, 3]], [2, 3])
    """

    def __init__(
        self,
        data: ImageSet,
        *,
        batch_size: int,
        seed: int = 0,
        shuffle: bool = True,
        drop_last: bool = True,
        device: torch.device | str = "cpu",
    ) -> None:
        self.order = BatchOrder(len(data), batch_size, seed, shuffle, drop_last)
        self.device = torch.device(device)
        self._images_nhwc = torch.empty(data.images.shape, dtype=torch.uint8, device=self.device)
        for start in range(0, len(data), _COPY_ROWS):
            rows = slice(start, start + _COPY_ROWS)
            self._images_nhwc[rows].copy_(torch.from_numpy(np.array(data.images[rows])))
        self._labels = torch.from_numpy(np.array(data.labels)).to(self.device)

    def __len__(self) -> int:
        """Return the number of batches in an epoch."""
        return len(self.order)

    def batch(self, step: int) -> ByteBatch:
        """Return the batch of a step, counted from the start of training."""
        rows = self.order.rows(step).to(self.device)
        return ByteBatch(self._images_nhwc[rows].permute(0, 3, 1, 2), self._labels[rows], rows)

    def iterate(self, start: int, stop: int) -> Iterator[ByteBatch]:
        """Yield the batches of the steps from `start` up to `stop`, over as many epochs as that takes."""
        return (self.batch(step) for step in range(start, stop))

    def __iter__(self) -> Iterator[ByteBatch]:
        """Yield the batches of the first epoch: with `shuffle=False`, the whole set."""
        return self.iterate(0, len(self))


class FileLoader:
    """Batches of a set that does not fit in memory, decoded by worker processes while the device computes.

    Args:
        data: the files.
        batch_size: how many make a batch.
        seed: of the shuffling and of the workers' own generators.
        shuffle: `False` keeps the order of the set.
        drop_last: leave out the last batch of an epoch where it is short.
        device: where the batches appear; a CUDA device is fed through pinned memory.
        num_workers: how many processes decode; 0 decodes in this one.

    Example:
        >>> len(FileLoader(FileSet(("a.png",) * 3, np.zeros(3, np.int64), (8, 8)), batch_size=2, num_workers=0))
        1
    """

    def __init__(
        self,
        data: FileSet,
        *,
        batch_size: int,
        seed: int = 0,
        shuffle: bool = True,
        drop_last: bool = True,
        device: torch.device | str = "cpu",
        num_workers: int = 4,
    ) -> None:
        self.order = BatchOrder(len(data), batch_size, seed, shuffle, drop_last)
        self.device = torch.device(device)
        self.num_workers = num_workers
        self._files = _Files(data)

    def __len__(self) -> int:
        """Return the number of batches in an epoch."""
        return len(self.order)

    def iterate(self, start: int, stop: int) -> Iterator[ByteBatch]:
        """Yield the batches of the steps from `start` up to `stop`, over as many epochs as that takes.

        Raises:
            InputError: a file cannot be decoded; the line names it.
        """
        loader: DataLoader[ByteBatch] = DataLoader(
            self._files,
            batch_sampler=(self.order.rows(step).tolist() for step in range(start, stop)),
            num_workers=self.num_workers,
            collate_fn=_unchanged,
            pin_memory=self.device.type == "cuda",
            worker_init_fn=seed_worker,
            generator=create_generator(self.order.seed, start),
        )
        for batch in loader:
            if isinstance(batch, InputError):
                raise batch
            images_nhwc, labels, rows = (part.to(self.device, non_blocking=True) for part in batch)
            yield ByteBatch(images_nhwc.permute(0, 3, 1, 2), labels, rows)

    def __iter__(self) -> Iterator[ByteBatch]:
        """Yield the batches of the first epoch: with `shuffle=False`, the whole set."""
        return self.iterate(0, len(self))


Loader = DeviceLoader | FileLoader


def create_loader(
    data: ImageSet | FileSet,
    *,
    batch_size: int,
    seed: int = 0,
    shuffle: bool = True,
    drop_last: bool = True,
    device: torch.device | str = "cpu",
    num_workers: int = 4,
) -> Loader:
    """Return the loader for a set: `DeviceLoader` for decoded images, `FileLoader` for files.

    Example:
        >>> data = ImageSet(np.zeros((4, 8, 8, 3), np.uint8), np.zeros(4, np.int64))
        >>> type(create_loader(data, batch_size=2)).__name__
        'DeviceLoader'
    """
    if isinstance(data, ImageSet):
        return DeviceLoader(data, batch_size=batch_size, seed=seed, shuffle=shuffle, drop_last=drop_last, device=device)
    return FileLoader(
        data,
        batch_size=batch_size,
        seed=seed,
        shuffle=shuffle,
        drop_last=drop_last,
        device=device,
        num_workers=num_workers,
    )


def seed_worker(worker: int) -> None:
    """Give a worker process its own streams in `random` and NumPy; torch has seeded its own already.

    Args:
        worker: its number; unused, since torch's seed differs from worker to worker.
    """
    del worker
    seed = torch.initial_seed() % 2**32
    random.seed(seed)
    np.random.seed(seed)


class _Files(Dataset[ByteBatch]):
    """Whole batches of decoded files; a bad file comes back as its error.

    torch would wrap an error raised in a worker into the worker's traceback, many lines long.
    """

    def __init__(self, data: FileSet) -> None:
        self._data = data

    def __getitems__(self, rows: list[int]) -> tuple[Tensor, Tensor, Tensor] | InputError:
        images_nhwc = np.empty((len(rows), *self._data.image_size, 3), np.uint8)
        try:
            for place, row in enumerate(rows):
                images_nhwc[place] = self._data.read(row)
        except InputError as error:
            return error
        return torch.from_numpy(images_nhwc), torch.from_numpy(self._data.labels[rows]), torch.tensor(rows)


def _unchanged(batch: Any) -> Any:
    return batch  # it is a whole batch already
