"""Adam on a GPU: torch's own fused step, and a kernel for each large tensor of a small network.

torch's fused step lets one block go through 65,536 values of a tensor, one part after the other. In a large network
many blocks do so at once. In a small one, as the Digits ConvNet, most of the GPU stands idle for the 100 microseconds
that this takes, where memory would allow 30.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

_LARGE = 1 << 13  # values from which a block takes longer than a launch
_MOST_LAUNCHES = 16  # more would cost more than they save
OLDEST = (7, 0)
"""Compute capability from which Triton makes code."""


class LargeAdam(torch.optim.Adam):
    """`torch.optim.Adam`, `fused` and `capturable`, its rates tensors; state and results are Adam's."""

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Do a step, the large tensors first and one by one."""
        large = [(group, value) for group in self.param_groups for value in group["params"] if self._is_large(value)]
        is_small_network = 0 < len(large) <= _MOST_LAUNCHES
        kernel = _find_kernel(large[0][1].device) if is_small_network and closure is None else None
        if kernel is None:
            return super().step(closure)
        gradients = [value.grad for _, value in large]
        for group, parameter in large:
            state = self.state[parameter]
            kernel(
                parameter,
                parameter.grad,
                state["exp_avg"],
                state["exp_avg_sq"],
                group["lr"],
                state["step"],
                betas=group["betas"],
                eps=group["eps"],
                weight_decay=group["weight_decay"],
            )
            parameter.grad = None  # torch's step leaves it alone
        torch._foreach_add_([self.state[parameter]["step"] for _, parameter in large], 1)
        super().step()
        for (_, parameter), gradient in zip(large, gradients, strict=True):
            parameter.grad = gradient
        return None

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
    if torch.cuda.get_device_capability(device) < OLDEST:
        return None
    try:
        from asrnorm.training.triton.adam import adam_step
    except Exception:  # a broken binary wheel may raise anything
        return None
    return adam_step
