"""Precision of a run: float32, TF32 matrix products, bfloat16 by autocast, or float64."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Literal

import torch

Precision = Literal["float32", "tf32", "bfloat16", "float64"]


def weight_dtype(precision: Precision) -> torch.dtype:
    """Return the dtype of weights and images for a precision; `bfloat16` is autocast over float32."""
    return torch.float64 if precision == "float64" else torch.float32


def autocast(precision: Precision, device: torch.device) -> AbstractContextManager[object]:
    """Return the autocast context for the forward pass; the backward pass runs outside of it."""
    if precision != "bfloat16":
        return nullcontext()
    return torch.autocast(device.type, dtype=torch.bfloat16)


@contextmanager
def products(precision: Precision, device: torch.device) -> Iterator[None]:
    """Use TF32 for float32 matrix products under `tf32`, forward and backward; no effect on a CPU.

    Convolutions use TF32 under `float32` too, which is PyTorch's default.
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
