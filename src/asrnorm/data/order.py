"""Which images make up the batch of a step: a function of the seed and the step, and of nothing else.

Nothing needs to be saved to resume: step 1,000 of a resumed run takes the images it would have taken.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from asrnorm.errors import InputError


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
