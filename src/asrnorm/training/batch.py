"""The batch of a step: a function of the seed, the step and the pool, and of nothing else."""

from collections.abc import Mapping

import torch
from torch import Tensor

from asrnorm.data.order import BatchOrder
from asrnorm.data.pool import Pool
from asrnorm.errors import InputError
from asrnorm.methods import Batch, keyed_generator
from asrnorm.training.augmentation import Augment, augment_images, draw_augmentation
from asrnorm.world import ALONE, World


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
        augment: what is done to the images.
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
        augment: Augment = "none",
        world: World = ALONE,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        if min(batch_size, len(pool)) < world.size:
            raise InputError(
                f"a batch of {min(batch_size, len(pool))} images does not give each of {world.size} processes one"
            )
        self.pool, self.batch_size, self.seed = pool, batch_size, seed
        self.shuffle, self.augment, self.world, self.dtype = shuffle, augment, world, dtype

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
        drawn = {"rows": rows}
        if self.augment != "none":
            generator = keyed_generator(self.seed, step, "augment")
            drawn |= draw_augmentation(self.augment, len(rows), self.pool.image_size, generator)
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
        images = augment_images(self.augment, images, drawn).to(self.dtype)
        if self.pool.device.type == "cuda":
            images = images.contiguous(memory_format=torch.channels_last)
        return Batch(images, labels, step, self.world.share(self.size).start, self.size, rows)

    @property
    def size(self) -> int:
        """Images in the global batch: all of a pool that is smaller."""
        return min(self.batch_size, len(self.pool))
