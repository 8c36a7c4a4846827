"""What the corruptions of tensors share: their registry, the numbers of each image's severity, and random draws.

A corruption takes float32 images `(n, 3, h, w)` in [0, 1], random draws and settings, and returns images of the same
shape; the caller clips. It consists of tensor operations on the whole batch that never wait for the device, and no
image influences another. Shape legend: n images, c channels, h rows, w columns, s severities, k taps.

Sums are added tap by tap, or in float64, since the order in which a library adds may depend on the size of the batch.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from asrnorm.core.randomness import GOLDEN, random_bits
from asrnorm.core.registry import Registry

TENSOR_CORRUPTIONS: Registry[Callable[..., Tensor]] = Registry("corruption of tensors")

# Added in gray levels before a truncation: float32 may give 99.99999 where the exact value is 100.
TIE = 2.0**-12
_BITS = 23  # with the half added below, all that float32 holds
_MOST_INVERTED = 12.0  # Poisson rates up to here are inverted term by term


class Settings:
    """The options of a corruption, in plain numbers: one row for all images, or a row for each severity.

    `row_n` is the row of each image; `None` if there is only one.
    """

    def __init__(self, rows: Sequence[Mapping[str, Any]], device: torch.device, row_n: Tensor | None = None) -> None:
        self.rows, self.device, self.row_n = tuple(rows), device, row_n

    def __getitem__(self, option: str) -> Tensor:
        """Return an option as float32 `(n, 1, 1, 1)`, or `(1, 1, 1, 1)` if all images have the same."""
        return self.pick(self.column(option)).float().view(-1, 1, 1, 1)

    def column(self, option: str) -> Tensor:
        """Return an option of every row as float64 `(s,)`."""
        if len(self.rows) == 1:
            return torch.full((1,), float(self.rows[0][option]), dtype=torch.float64, device=self.device)
        return table(tuple(float(row[option]) for row in self.rows), self.device)

    def pick(self, values_s: Tensor) -> Tensor:
        """Return the entry of each image's row from `(s, ...)`: `(n, ...)`, or `(1, ...)` if there is one row."""
        return values_s if self.row_n is None else values_s[self.row_n]

    def largest(self, option: str) -> float:
        """Return the largest value of an option over the rows."""
        return float(max(row[option] for row in self.rows))

    def choose(self, option: str, compute: Callable[[Any], Tensor]) -> Tensor:
        """Return `compute(value)` with each image's value of an option that sizes depend on.

        All distinct values are computed for all images.
        """
        first, *others = dict.fromkeys(row[option] for row in self.rows)
        chosen = compute(first)
        for value in others:
            is_own = self.pick(table(tuple(float(row[option] == value) for row in self.rows), self.device)) > 0
            chosen = torch.where(is_own.view(-1, *[1] * (chosen.ndim - 1)), compute(value), chosen)
        return chosen


@lru_cache(maxsize=1024)  # more than the presets need: a CUDA graph must not lose one
def table(values: tuple[Any, ...], device: torch.device) -> Tensor:
    """Return fixed numbers as a float64 tensor on `device`, copied there by the first call and cached."""
    return torch.tensor(values, dtype=torch.float64, device=device)


class Draws:
    """Random numbers of `n` images, each a hash of the image's key (int64) and its place in the image's stream.

    A generator has one stream for all images, and its state is on the host. The bits are the same on every device.
    """

    def __init__(self, keys_n: Tensor) -> None:
        self._keys_n, self._used = keys_n, 0

    def uniform(self, *shape: int, low: float = 0.0, high: float = 1.0) -> Tensor:
        """Draw float32 from U(low, high), both excluded: `(n, *shape)`."""
        count = math.prod(shape)
        index = torch.arange(self._used + 1, self._used + 1 + count, device=self._keys_n.device)
        self._used += count
        bits = random_bits(self._keys_n[:, None] + index * GOLDEN, _BITS)
        drawn = bits.float().add_(0.5).mul_(2.0**-_BITS).view(-1, *shape)
        return drawn if (low, high) == (0.0, 1.0) else drawn.mul_(high - low).add_(low)

    def normal(self, *shape: int) -> Tensor:
        """Draw float32 from N(0, 1): `(n, *shape)`."""
        return _to_normal(self.uniform(*shape))

    def poisson(self, rate_n: Tensor, largest: float) -> Tensor:
        """Draw Poisson counts with the given rates, images first; no rate is above `largest`.

        Small rates by inversion, large ones by the Cornish-Fisher expansion of the quantile to the third order.
        """
        drawn = self.uniform(*rate_n.shape[1:])
        most = min(largest, _MOST_INVERTED)
        small = rate_n.clamp(max=most)
        chance = torch.exp(-small)
        total, count = chance.clone(), torch.zeros_like(drawn)
        for k in range(1, int(most + 8 * math.sqrt(most)) + 10):
            count += drawn > total
            chance = chance.mul_(small).mul_(1 / k)
            total += chance
        if largest <= _MOST_INVERTED:
            return count
        z, sd = _to_normal(drawn), rate_n.sqrt()
        quantile = rate_n + sd * z + (z * z - 1) / 6 + (z - z**3) / (72 * sd)
        return torch.where(rate_n <= most, count, quantile.round().clamp_(min=0))


def _to_normal(uniform: Tensor) -> Tensor:
    return torch.erfinv(uniform * 2 - 1).mul_(math.sqrt(2))


def truncate_levels(x: Tensor) -> Tensor:
    """Return values in [0, 1], clipped and truncated to gray levels."""
    return (x.clamp(0, 1) * 255 + TIE).floor_() / 255


def round_levels(x: Tensor) -> Tensor:
    """Return values rounded to gray levels."""
    return (x * 255 + 0.5 + TIE).floor_() / 255
