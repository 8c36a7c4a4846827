"""The batch of a step: a function of the seed, the step and the pool, and of nothing else."""

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from asrnorm.core.config import Fold
from asrnorm.core.distributed import ALONE, World
from asrnorm.core.errors import InputError
from asrnorm.data.augment import create_augmentation
from asrnorm.data.augment.named import Spec, take_prefixed
from asrnorm.data.pool import Pool
from asrnorm.methods import Batch, keyed_generator


class Batches:
    """Augmented batches of a pool that may grow; each process gets its own part.

    With `shuffle`, every epoch goes through the pool in a new order. Without, the source keeps its own order; once the
    pool has grown, all epochs use one order drawn at that moment, as Volpi et al. do: going through the generated parts
    one after the other would give batches of one domain each.

    Each of `views` is a chain on top of `augment`, for a view of its own; with `shared`, all views have the same draws
    of `augment`. With a `fold`, all leave out what belongs to the other half of the bank. The global batch of all
    processes has `batch_size` images.

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
        augment: Spec = "none",
        views: Sequence[Spec] = (),
        shared: bool = True,
        fold: Fold = "none",
        world: World = ALONE,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.pool, self.batch_size, self.seed = pool, batch_size, seed
        self.shuffle, self.world, self.dtype = shuffle, world, dtype
        self.augmentation = create_augmentation(augment).in_fold(fold)
        self.views = [create_augmentation(view).in_fold(fold) for view in views]
        self.shared = shared
        # An augmentation that mixes images needs the batch of all processes: each makes it whole and takes its part.
        self._is_whole = any(part.mixes for part in (self.augmentation, *self.views))
        size = self.augmentation.output_size(pool.image_size)
        for view, chain in zip(self.views, views, strict=True):
            if view.output_size(size) != size:
                raise InputError(f"view {chain!r} changes the size of images, which only augment may")
        if self.size < world.size:
            raise InputError(f"a batch of {self.size} images is too small for {world.size} processes; each needs one")

    @property
    def size(self) -> int:
        """Number of images in the global batch: at most the whole pool."""
        return min(self.batch_size, len(self.pool))

    def rows(self, step: int) -> Tensor:
        """Return the rows of the pool in the global batch of a step, on the CPU."""
        count, size = len(self.pool), self.size
        epoch, position = divmod(step, count // size)
        rows = slice(position * size, (position + 1) * size)
        if self.shuffle:
            return _permutation(count, self.seed, epoch)[rows].clone()  # the permutation is shared
        if count > self.pool.num_source:
            return _permutation(count, self.seed, 0)[rows].clone()
        return torch.arange(rows.start, rows.stop)

    def draw(self, step: int) -> dict[str, Tensor]:
        """Return what defines this process's part of the batch of a step: its rows, and how they are augmented.

        Small tensors on the CPU; their shapes are the same in every step until the pool grows.
        """
        rows = self.rows(step)
        size = self.pool.image_size
        drawn = {"rows": rows} | self.augmentation.draw(len(rows), size, keyed_generator(self.seed, step, "augment"))
        for number, view in enumerate(self.views):
            generator = keyed_generator(self.seed, step, "view", number)
            own = view.draw(len(rows), self.augmentation.output_size(size), generator)
            if number and not self.shared:
                own |= _prefixed("base.", self.augmentation.draw(len(rows), size, generator))
            drawn |= _prefixed(f"view{number}.", own)
        share = slice(None) if self._is_whole else self.world.share(len(rows))
        return {name: value[share] for name, value in drawn.items()}

    def fetch(self, step: int) -> Batch:
        """Return this process's part of the batch of a step, on the pool's device."""
        drawn = self.draw(step)
        images = self.pool.images(drawn["rows"])
        on_device = {name: value.to(self.pool.device, non_blocking=True) for name, value in drawn.items()}
        return self.make(on_device, images, step)

    def make(self, drawn: Mapping[str, Tensor], images: Tensor | None = None, step: int = 0) -> Batch:
        """Return the batch that `draw` has drawn: a function of tensors on the device, which can be captured.

        Without `images`, those of the rows are read from the pool.
        """
        rows = drawn["rows"]
        images = self.pool.images(rows) if images is None else images
        share = self.world.share(self.size)
        part = share if self._is_whole else slice(None)
        views = tuple(self._finish(view[part]) for view in self._augment(images, drawn))
        labels, rows = self.pool.labels[rows][part], rows[part]
        domains = None if self.pool.domains is None else self.pool.domains[rows]
        views, images = views if self.views else (), views[0]
        return Batch(images, labels, step, share.start, self.size, rows, views=views, domains=domains)

    def _augment(self, images: Tensor, drawn: Mapping[str, Tensor]) -> Iterator[Tensor]:
        base = self.augmentation.apply(images, drawn)
        if not self.views:
            yield base
        for number, view in enumerate(self.views):
            own = take_prefixed(drawn, f"view{number}.")
            if number and not self.shared:
                base = self.augmentation.apply(images, take_prefixed(own, "base."))
            yield view.apply(base, own)

    def _finish(self, images: Tensor) -> Tensor:
        images = images.to(self.dtype)
        if self.pool.device.type == "cuda":
            images = images.contiguous(memory_format=torch.channels_last)
        return images


@lru_cache(maxsize=4)  # the current epoch of the few loaders of a run
def _permutation(count: int, seed: int, epoch: int) -> Tensor:
    # A seed sequence, since a sum would give (0, 1) and (1, 0) the same stream.
    state = np.random.SeedSequence((seed, epoch)).generate_state(2, np.uint32)
    # On the CPU whatever the device of the images, so that the order is the same everywhere.
    generator = torch.Generator().manual_seed(int(state[0]) << 31 | int(state[1]) >> 1)
    return torch.randperm(count, generator=generator)


def _prefixed(prefix: str, drawn: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {f"{prefix}{name}": value for name, value in drawn.items()}
