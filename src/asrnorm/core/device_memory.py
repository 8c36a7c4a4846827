"""Calls that do not fit in the memory of a device: smaller ones in their place, or the size that would fit."""

import gc
import logging
from collections.abc import Callable

import torch
from torch import Tensor

from asrnorm.core.errors import DeviceMemoryError

logger = logging.getLogger("asrnorm")


class InParts:
    """Calls a function of a batch whose rows do not depend on each other in halves, once the whole does not fit.

    The size found is kept for further calls. Rounding may differ between sizes of a batch.

    Example:
        >>> InParts()(torch.square, torch.tensor([1.0, 2.0, 3.0]))
        tensor([1., 4., 9.])
    """

    def __init__(self) -> None:
        self._most: int | None = None

    def __call__(self, function: Callable[[Tensor], Tensor], batch: Tensor) -> Tensor:
        """Return the function's output for all rows; raise `DeviceMemoryError` if not even one fits."""
        size = min(self._most or len(batch), len(batch))
        while True:
            try:
                parts = [function(part) for part in batch.split(max(size, 1))]
                return parts[0] if len(parts) == 1 else torch.cat(parts)
            except torch.OutOfMemoryError:
                if size <= 1:
                    raise DeviceMemoryError("not enough memory for one image") from None
            size = self._most = size // 2  # outside the handler, whose traceback keeps tensors alive
            release_memory()
            logger.warning("not enough memory for the whole batch; going on with %s images at once", size)


def find_fitting(size: int, attempt: Callable[[int], object]) -> int:
    """Return the largest half, quarter, ... of a size for which `attempt` has enough memory; 0 if none does."""
    while size > 1:
        size //= 2
        release_memory()
        try:
            attempt(size)
        except torch.OutOfMemoryError:
            continue
        return size
    return 0


def release_memory() -> None:
    """Return the memory of tensors that are no longer used to the device."""
    gc.collect()
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()
