"""In which precision a network computes: that of its weights, float32 in TF32 products, or bfloat16 by autocast."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Literal

import torch

Precision = Literal["float32", "tf32", "bfloat16", "float64"]


def weight_dtype(precision: Precision) -> torch.dtype:
    """Return the dtype of the weights of a network that computes so.

    Example:
        >>> weight_dtype("tf32"), weight_dtype("float64")
        (torch.float32, torch.float64)
    """
    return torch.float64 if precision == "float64" else torch.float32


def autocast(precision: Precision, device: torch.device) -> AbstractContextManager[object]:
    """Return the context in which a network is called; the way back is outside of it."""
    if precision != "bfloat16":
        return nullcontext()
    return torch.autocast(device.type, dtype=torch.bfloat16)


@contextmanager
def products(precision: Precision, device: torch.device) -> Iterator[None]:
    """Let matrix products of float32 take TF32 where `tf32` asks for it, forward and back; a CPU knows none.

    Convolutions take it under `float32` too, as PyTorch does unless told otherwise.

    Example:
        >>> with products("tf32", torch.device("cpu")):
        ...     torch.get_float32_matmul_precision()
        'highest'
    """
    if precision != "tf32" or device.type != "cuda":
        yield
        return
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
