"""Random numbers that a key fixes: the same after a resume, on every process, whatever else was drawn.

Uniform numbers that are a function of a key and a place: drawn on the device, the same in a captured step.

A generator keeps its state on the host, which a CUDA graph does not see. SplitMix64 (Steele, Lea and Flood, 2014)
needs no state: the number at a place is a hash of the place and the key.
"""

import hashlib
import math
from collections.abc import Sequence

import torch
from torch import Tensor

from asrnorm.core.config import as_whole_number


def keyed_generator(*key: int | str, device: torch.device | str = "cpu") -> torch.Generator:
    """Return a generator whose stream is fixed by the key.

    Args:
        *key: names and whole numbers; 7 is the same of Python, NumPy and PyTorch.
        device: of the generator.

    Raises:
        InputTypeError: a part is neither.

    Example:
        >>> a, b = (torch.rand(1, generator=keyed_generator(0, 7, "mask")).item() for _ in range(2))
        >>> a == b
        True
    """
    plain = tuple(part if isinstance(part, str) else as_whole_number(part, "a seed or step") for part in key)
    digest = hashlib.sha256(repr(plain).encode()).digest()
    return torch.Generator(device).manual_seed(int.from_bytes(digest[:8], "little") >> 1)


def draw_key(generator: torch.Generator) -> Tensor:
    """Return a number that stands for a generator, to draw on the device with.

    Example:
        >>> draw_key(torch.Generator().manual_seed(7))
        tensor(7)
    """
    return torch.tensor(generator.initial_seed())


_GOLDEN = 0x9E3779B97F4A7C15 - (1 << 64)
_FIRST = 0xBF58476D1CE4E5B9 - (1 << 64)
_SECOND = 0x94D049BB133111EB - (1 << 64)
_WORD = 64


def uniform_noise(key: Tensor, shape: Sequence[int], *, start: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return numbers in [0, 1) on the device of the key; nothing is read from it.

    Args:
        key: int64, one element.
        shape: of the result.
        start: place of the first number in the stream of the key.
        dtype: float32 or float64, of which all bits are drawn.

    Example:
        >>> whole = uniform_noise(torch.tensor(7), (4, 3))
        >>> bool((whole[2:] == uniform_noise(torch.tensor(7), (2, 3), start=6)).all())
        True
    """
    place = torch.arange(start + 1, start + 1 + math.prod(shape), device=key.device)
    x = place.mul_(_GOLDEN).add_(key.view(()))
    x = (x ^ _shift(x, 30)).mul_(_FIRST)
    x = (x ^ _shift(x, 27)).mul_(_SECOND)
    x = x ^ _shift(x, 31)
    bits = 53 if dtype == torch.float64 else 24
    return _shift(x, _WORD - bits).to(dtype).mul_(2.0**-bits).view(*shape)


def _shift(x: Tensor, count: int) -> Tensor:
    """Shift to the right with zeros from the left; torch's `>>` brings the sign."""
    return (x >> count).bitwise_and_((1 << (_WORD - count)) - 1)
