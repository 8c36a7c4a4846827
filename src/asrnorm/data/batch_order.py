"""The order of batches: which images a step takes, a function of seed and step."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from asrnorm.core.errors import InputError


@dataclass(frozen=True)
class BatchOrder:
    """The order in which batches take `count` images, epoch after epoch.

    It depends on nothing but its fields and the step, so that a resumed run needs no saved state.
    """

    count: int
    batch_size: int
    seed: int = 0
    shuffle: bool = True  # by a new permutation in every epoch
    drop_last: bool = True  # if the last batch of an epoch is short

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
