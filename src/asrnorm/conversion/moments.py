"""Mean and variance of every channel over many batches."""

import torch
from torch import Tensor


class Moments:
    """The moments of all values that were added, `(c,)` each in float64; batches may differ in size.

    Example:
        >>> moments = Moments()
        >>> for batch in torch.arange(12.0).reshape(3, 2, 2, 1, 1):
        ...     moments.add(batch)
        >>> moments.mean.tolist(), moments.variance.tolist()
        ([5.0, 6.0], [11.66666..., 11.66666...])
    """

    def __init__(self) -> None:
        self.count = 0
        self.mean = torch.zeros(0)
        self.variance = torch.zeros(0)

    def add(self, x: Tensor) -> None:
        """Take in activations `(n, c, ...)`."""
        count = x.numel() // x.shape[1]
        wide = x if x.dtype == torch.float64 else x.float()
        variance, mean = (value.double() for value in torch.var_mean(wide, (0, *range(2, x.dim())), correction=0))
        if self.count == 0:
            self.count, self.mean, self.variance = count, mean, variance
            return
        total = self.count + count
        share = count / total
        apart = mean - self.mean
        self.mean = self.mean + share * apart
        self.variance = (1 - share) * self.variance + share * variance + share * (1 - share) * apart.square()
        self.count = total
