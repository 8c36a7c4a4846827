"""Random numbers fixed by a key: the same after a resume and on every process, whatever else was drawn."""

import hashlib
import math
from collections.abc import Sequence

import torch
from torch import Tensor

from asrnorm.core.config import as_whole_number
from asrnorm.core.splitmix import GOLDEN, random_bits


def keyed_generator(*key: int | str, device: torch.device | str = "cpu") -> torch.Generator:
    """Return a generator whose stream is fixed by the key.

    Args:
        *key: names and whole numbers; a 7 from Python, NumPy and PyTorch is the same.
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
    """Return the seed of a generator as a tensor: the key for `uniform_noise`."""
    return torch.tensor(generator.initial_seed())


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
    bits = 53 if dtype == torch.float64 else 24
    return random_bits(index.mul_(GOLDEN).add_(key.view(())), bits).to(dtype).mul_(2.0**-bits).view(*shape)
