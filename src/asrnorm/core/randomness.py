"""Random numbers fixed by a key: the same after a resume and on every process, whatever else was drawn."""

import hashlib
import math
from collections.abc import Sequence

import torch
from torch import Tensor

from asrnorm.core.config import as_whole_number


def keyed_generator(*key: int | str, device: torch.device | str = "cpu") -> torch.Generator:
    """Return a generator whose stream is fixed by the key: names and whole numbers, a 7 being the same in any library.

    Example:
        >>> a, b = (torch.rand(1, generator=keyed_generator(0, 7, "mask")).item() for _ in range(2))
        >>> a == b
        True
    """
    plain = tuple(part if isinstance(part, str) else as_whole_number(part, "a seed or step") for part in key)
    digest = hashlib.sha256(repr(plain).encode()).digest()
    return torch.Generator(device).manual_seed(int.from_bytes(digest[:8], "little") >> 1)


def draw_key(generator: torch.Generator) -> Tensor:
    """Return the seed of a generator as a tensor: the key for `uniform_noise`."""
    return torch.tensor(generator.initial_seed())


# SplitMix64 (Steele, Lea and Flood, 2014) as signed 64-bit integers.
GOLDEN = 0x9E3779B97F4A7C15 - (1 << 64)
_FIRST = 0xBF58476D1CE4E5B9 - (1 << 64)
_SECOND = 0x94D049BB133111EB - (1 << 64)
_WORD = 64


def uniform_noise(key: Tensor, shape: Sequence[int], *, start: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return numbers in [0, 1) on the device of the key, without reading the key on the host.

    A generator keeps its state on the host, where a CUDA graph does not see it. SplitMix64 has no state: each number is
    a hash of the key (int64) and of its index in the stream, which begins at `start`. All bits of float32 or float64
    are drawn.

    Example:
        >>> whole = uniform_noise(torch.tensor(7), (4, 3))
        >>> bool((whole[2:] == uniform_noise(torch.tensor(7), (2, 3), start=6)).all())
        True
    """
    index = torch.arange(start + 1, start + 1 + math.prod(shape), device=key.device)
    return _to_float(index.mul_(GOLDEN).add_(key.view(())), dtype).view(*shape)


def uniform_rows(keys: Tensor, shape: Sequence[int]) -> Tensor:
    """Return `uniform_noise` of each key, float32 `(n, *shape)`: the numbers of a row depend on its own key alone.

    Example:
        >>> rows = uniform_rows(torch.tensor([7, 8]), (4, 3))
        >>> bool((rows[1] == uniform_noise(torch.tensor(8), (4, 3))).all())
        True
    """
    index = torch.arange(1, 1 + math.prod(shape), device=keys.device)
    return _to_float(index.mul_(GOLDEN) + keys.view(-1, 1), torch.float32).view(-1, *shape)


def normal_rows(keys: Tensor, shape: Sequence[int]) -> Tensor:
    """Return standard normal numbers, float32 `(n, *shape)`, by the inverse of the distribution function."""
    return uniform_rows(keys, shape).mul_(2).sub_(1).clamp_(min=2.0**-24 - 1).erfinv_().mul_(math.sqrt(2))


def draw_keys(count: int, generator: torch.Generator) -> Tensor:
    """Return `count` keys for `uniform_rows`, int64 on the generator's device."""
    return torch.randint(-(1 << 62), 1 << 62, (count,), generator=generator, device=generator.device)


def random_bits(position: Tensor, bits: int) -> Tensor:
    """Return whole numbers below `2**bits`; number i of the stream of a key is at position `key + (i + 1) * GOLDEN`."""
    x = (position ^ _shift(position, 30)).mul_(_FIRST)
    x = (x ^ _shift(x, 27)).mul_(_SECOND)
    x = x ^ _shift(x, 31)
    return _shift(x, _WORD - bits) if bits < _WORD else x


def _to_float(position: Tensor, dtype: torch.dtype) -> Tensor:
    bits = 53 if dtype == torch.float64 else 24
    return random_bits(position, bits).to(dtype).mul_(2.0**-bits)


def _shift(x: Tensor, count: int) -> Tensor:
    """Shift right and fill with zeros; torch's `>>` fills with the sign bit."""
    return (x >> count).bitwise_and_((1 << (_WORD - count)) - 1)
