"""Which images a new domain is grown from: the rules of the three public codes, and the plainest one."""

from typing import Literal

import torch
from torch import Tensor

Growth = Literal["volpi", "me_ada", "m_ada", "source"]


def choose_rows(
    growth: Growth, *, num_source: int, size: int, round_number: int, count: int, generator: torch.Generator
) -> Tensor:
    """Return the rows of a pool that a round starts from, int64.

    - `volpi`: `count` rows of the current pool, the first ones before anything was grown and drawn without replacement
      later. The original shuffles its array after each round and takes the first rows of it, which comes to the same.
    - `me_ada`: the whole current pool, which doubles.
    - `m_ada`: in round r one r-th of the source's number, of which one r-th are source images and the others grown
      ones, each drawn without replacement.
    - `source`: the source images.

    Args:
        growth: the rule.
        num_source: how many images are the source's; they come first.
        size: of the current pool.
        round_number: counted from one.
        count: of `volpi`.
        generator: on the CPU, so that the rows do not depend on the device of the run.

    Example:
        >>> rows = choose_rows("m_ada", num_source=8, size=16, round_number=2, count=0, generator=torch.Generator())
        >>> len(rows), int((rows < 8).sum())
        (4, 2)
    """
    if growth == "me_ada":
        return torch.arange(size)
    if growth == "source" or (growth == "m_ada" and size == num_source):
        return torch.arange(num_source)
    if growth == "volpi":
        if size == num_source:
            return torch.arange(min(count, size))
        return torch.randperm(size, generator=generator)[:count]
    number = num_source // round_number
    from_source = number // round_number
    source = torch.randperm(num_source, generator=generator)[:from_source]
    grown = torch.randperm(size - num_source, generator=generator)[: number - from_source]
    return torch.cat([source, num_source + grown])
