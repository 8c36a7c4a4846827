"""What many steps draw, as one piece of memory on the device: uploaded at once, read row by row.

The batch of a step: a function of the seed, the step and the pool, and of nothing else.
"""

import math
from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from asrnorm.core.distributed import ALONE, World
from asrnorm.core.errors import InputError
from asrnorm.data.augment import create_augmentation
from asrnorm.data.loader import BatchOrder
from asrnorm.data.pool import Pool
from asrnorm.methods import Batch, keyed_generator

_ALIGNMENT = 8  # bytes of the widest number


class _Field(NamedTuple):
    start: int
    stop: int
    dtype: torch.dtype
    shape: torch.Size


class DrawTable:
    """Rows of named tensors of fixed shapes, packed as bytes.

    Written on the host in one of two pieces of pinned memory in turn, so that one is filled while the other is still
    being copied.

    Args:
        example: the tensors of one row, on the CPU.
        rows: how many there is room for.
        device: where they are read.

    Example:
        >>> table = DrawTable({"rows": torch.tensor([4, 2]), "flip": torch.tensor(True)}, 2, torch.device("cpu"))
        >>> table.write([{"rows": torch.tensor([1, 3]), "flip": torch.tensor(False)}])
        >>> {name: value.tolist() for name, value in table.read(torch.tensor([0])).items()}
        {'rows': [1, 3], 'flip': False}
    """

    def __init__(self, example: Mapping[str, Tensor], rows: int, device: torch.device) -> None:
        self._fields: dict[str, _Field] = {}
        end = 0
        for name, value in example.items():
            stop = end + value.numel() * value.element_size()
            self._fields[name] = _Field(end, stop, value.dtype, value.shape)
            end = math.ceil(stop / _ALIGNMENT) * _ALIGNMENT
        on_gpu = device.type == "cuda"
        self._table = torch.zeros((rows, max(end, _ALIGNMENT)), dtype=torch.uint8, device=device)
        self._staged = [torch.zeros(self._table.shape, dtype=torch.uint8, pin_memory=on_gpu) for _ in range(2)]
        self._copied = [torch.cuda.Event() if on_gpu else None for _ in range(2)]
        self._turn = 0

    def __len__(self) -> int:
        """Return how many rows there is room for."""
        return len(self._table)

    def write(self, rows: list[dict[str, Tensor]]) -> None:
        """Fill the table from its first row on; the copy to the device is not waited for."""
        self._turn = 1 - self._turn
        staged, copied = self._staged[self._turn], self._copied[self._turn]
        if copied is not None:
            copied.synchronize()
        for name, field in self._fields.items():
            if field.stop > field.start:
                values = torch.stack([row[name] for row in rows]).view(len(rows), -1)
                staged[: len(rows), field.start : field.stop].copy_(values.view(torch.uint8))
        self._table[: len(rows)].copy_(staged[: len(rows)], non_blocking=True)
        if copied is not None:
            copied.record(torch.cuda.current_stream(self._table.device))

    def read(self, index: Tensor) -> dict[str, Tensor]:
        """Return a row without reading its number, an int64 tensor of one element on the device."""
        row = self._table.index_select(0, index)[0]
        return {
            name: row[field.start : field.stop].view(field.dtype).view(field.shape)
            for name, field in self._fields.items()
        }


class Batches:
    """Batches of a pool that may grow, augmented, each process its own part.

    Shuffled, the pool is gone through in a new order every epoch. Not shuffled, the source is gone through in its own
    order; once it has grown, in one order that was drawn as it grew, as Volpi et al. do: a cycle through the grown
    parts one after the other would give batches of one domain each.

    Args:
        pool: the images.
        batch_size: of the global batch.
        seed: of the order and of the augmentation.
        shuffle: a new order every epoch.
        augment: name of the augmentation.
        world: the processes.
        dtype: of the images.

    Example:
        >>> import numpy as np
        >>> from asrnorm.data import ImageSet
        >>> pool = Pool(ImageSet(np.zeros((5, 8, 8, 3), np.uint8), np.arange(5)))
        >>> Batches(pool, batch_size=2, shuffle=False).fetch(1).labels.tolist()
        [2, 3]
    """

    def __init__(
        self,
        pool: Pool,
        *,
        batch_size: int,
        seed: int = 0,
        shuffle: bool = True,
        augment: str = "none",
        world: World = ALONE,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        if min(batch_size, len(pool)) < world.size:
            raise InputError(
                f"a batch of {min(batch_size, len(pool))} images does not give each of {world.size} processes one"
            )
        self.pool, self.batch_size, self.seed = pool, batch_size, seed
        self.shuffle, self.world, self.dtype = shuffle, world, dtype
        self.augmentation = create_augmentation(augment)

    def rows(self, step: int) -> Tensor:
        """Return the rows of the pool that make the global batch of a step, on the CPU."""
        count = len(self.pool)
        order = BatchOrder(
            count,
            self.batch_size,
            self.seed,
            shuffle=self.shuffle or count > self.pool.num_source,
            drop_last=count >= self.batch_size,
        )
        return order.rows(step if self.shuffle else step % len(order))

    def draw(self, step: int) -> dict[str, Tensor]:
        """Return what makes this process's part of the batch of a step: its rows, and how they are augmented.

        Small tensors on the CPU; their shapes are the same in every step as long as the pool does not grow.
        """
        rows = self.rows(step)
        share = self.world.share(len(rows))
        generator = keyed_generator(self.seed, step, "augment")
        drawn = {"rows": rows} | self.augmentation.draw(len(rows), self.pool.image_size, generator)
        return {name: value[share] for name, value in drawn.items()}

    def fetch(self, step: int) -> Batch:
        """Return this process's part of the batch of a step, on the pool's device."""
        drawn = self.draw(step)
        images = self.pool.images(drawn["rows"])
        placed = {name: value.to(self.pool.device, non_blocking=True) for name, value in drawn.items()}
        return self.make(placed, images, step)

    def make(self, drawn: Mapping[str, Tensor], images: Tensor | None = None, step: int = 0) -> Batch:
        """Return the batch that was drawn: a function of tensors alone, which can be captured.

        Args:
            drawn: from `draw`, on the pool's device.
            images: of the rows; `None` takes them from the pool.
            step: of the batch.
        """
        rows = drawn["rows"]
        labels = self.pool.labels[rows]
        images = self.pool.images(rows) if images is None else images
        images = self.augmentation.apply(images, drawn).to(self.dtype)
        if self.pool.device.type == "cuda":
            images = images.contiguous(memory_format=torch.channels_last)
        return Batch(images, labels, step, self.world.share(self.size).start, self.size, rows)

    @property
    def size(self) -> int:
        """Images in the global batch: all of a pool that is smaller."""
        return min(self.batch_size, len(self.pool))
