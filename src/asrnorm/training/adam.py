"""Adam on a GPU: torch's own fused step, and one launch for all large tensors of a small network.

torch's fused step lets one block go through 65,536 values of a tensor, one part after the other. In a large network
many blocks do so at once. In a small one, as the Digits ConvNet, most of the GPU stands idle for the 100 microseconds
that this takes, where memory would allow 30.
"""

import os
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from asrnorm.core.settings import BACKEND_VARIABLE

_LARGE = 1 << 13  # values from which a block takes longer than a launch
_MOST_TENSORS = 16  # of a launch; a network of more has blocks enough for torch's step
OLDEST = (7, 0)
"""Compute capability from which Triton makes code."""


class LargeAdam(torch.optim.Adam):
    """`torch.optim.Adam`, `fused` and `capturable`, its rates tensors; state and results are Adam's."""

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Do a step, the large tensors first."""
        large = [[value for value in group["params"] if self._is_large(value)] for group in self.param_groups]
        every = [value for values in large for value in values]
        is_small_network = 0 < len(every) <= _MOST_TENSORS
        kernel = _find_kernel(every[0].device) if is_small_network and closure is None else None
        if kernel is None:
            return super().step(closure)
        gradients = [value.grad for value in every]
        for group, values in zip(self.param_groups, large, strict=True):
            if values:
                self._take(kernel, group, values)
        for value in every:
            value.grad = None  # torch's step leaves it alone
        super().step()
        for value, gradient in zip(every, gradients, strict=True):
            value.grad = gradient
        return None

    def _take(self, kernel: Callable[..., None], group: dict[str, Any], values: list[Tensor]) -> None:
        states = [self.state[value] for value in values]
        means, squares, steps = ([state[name] for state in states] for name in ("exp_avg", "exp_avg_sq", "step"))
        gradients = [value.grad for value in values]
        options = {name: group[name] for name in ("betas", "eps", "weight_decay")}
        kernel(values, gradients, means, squares, steps, group["lr"], **options)
        torch._foreach_add_(steps, 1)

    def _is_large(self, parameter: Tensor) -> bool:
        gradient = parameter.grad
        if gradient is None or parameter.numel() < _LARGE or parameter.dtype != torch.float32:
            return False
        state = self.state[parameter]
        tensors = (gradient, state["exp_avg"], state["exp_avg_sq"])
        dense = parameter.is_contiguous() or parameter.is_contiguous(memory_format=torch.channels_last)
        return dense and all(tensor.stride() == parameter.stride() for tensor in tensors)


@lru_cache(maxsize=16)
def _find_kernel(device: torch.device) -> Callable[..., None] | None:
    """The kernel where there is Triton; torch's step needs none, and is no other Adam."""
    if os.environ.get(BACKEND_VARIABLE) == "reference" or torch.cuda.get_device_capability(device) < OLDEST:
        return None
    try:
        from asrnorm.kernels.adam import adam_steps
    except Exception:  # a broken binary wheel may raise anything
        return None
    return adam_steps
