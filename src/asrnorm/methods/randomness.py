"""Random numbers that a key fixes: the same after a resume, on every process, whatever else was drawn."""

import hashlib

import torch
from torch import Tensor

from asrnorm.coercion import as_whole_number


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
