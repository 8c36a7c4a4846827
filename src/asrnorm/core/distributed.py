"""Rank, world size and collectives of the processes of one run.

Every process draws the random numbers of the whole batch and uses its own share, so a run on several processes gives
the same numbers as a run on one.
"""

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as distributed
from torch import Tensor


@dataclass(frozen=True)
class World:
    """This process among the `size` processes of a run."""

    rank: int = 0
    size: int = 1

    def share(self, count: int) -> slice:
        """Return this process's slice of `count` items; the first ranks take one more if it does not divide evenly."""
        base, extra = divmod(count, self.size)
        start = self.rank * base + min(self.rank, extra)
        return slice(start, start + base + (self.rank < extra))

    def gather(self, tensor: Tensor) -> Tensor:
        """Concatenate the tensors of all processes on axis 0 in rank order; their lengths may differ."""
        if self.size == 1:
            return tensor
        lengths = [torch.zeros(1, dtype=torch.long, device=tensor.device) for _ in range(self.size)]
        distributed.all_gather(lengths, torch.tensor([tensor.shape[0]], device=tensor.device))
        longest = max(int(length) for length in lengths)
        padded = tensor.new_zeros((longest, *tensor.shape[1:]))
        padded[: tensor.shape[0]] = tensor
        parts = [torch.empty_like(padded) for _ in range(self.size)]
        distributed.all_gather(parts, padded)
        return torch.cat([part[: int(length)] for part, length in zip(parts, lengths, strict=True)])

    def sum(self, tensor: Tensor) -> Tensor:
        """Return the sum over all processes, detached; `sum_over_processes` is differentiable."""
        if self.size == 1:
            return tensor
        total = tensor.detach().clone()
        distributed.all_reduce(total)
        return total

    def sum_gradients(self, parameters: list[torch.nn.Parameter]) -> None:
        """Replace each gradient by its sum over the processes.

        Each process's loss is its share of the global mean, so the sum is the gradient of the global mean. DDP's hooks
        cannot do this: methods call parts of the model, which the hooks do not see. A parameter without a gradient on
        every process keeps `None`, as in a run on one process.
        """
        if self.size == 1:
            return
        used = [parameter.grad is not None for parameter in parameters]
        gradients = [p.grad if p.grad is not None else torch.zeros_like(p) for p in parameters]
        # Copying `used` to the device would synchronize in every step; nearly always all parameters are used.
        like = gradients[0]
        counts = like.new_ones(len(used)) if all(used) else like.new_tensor(used)
        flat = torch.cat([*(gradient.flatten() for gradient in gradients), counts])
        distributed.all_reduce(flat)
        anywhere = used if all(used) else (flat[-len(used) :] > 0).tolist()
        start = 0
        for parameter, gradient, is_used in zip(parameters, gradients, anywhere, strict=True):
            if is_used:
                parameter.grad = flat[start : start + gradient.numel()].view_as(gradient)
            start += gradient.numel()


ALONE = World()


def sum_over_processes(tensor: Tensor) -> Tensor:
    """Return the sum over all processes, differentiable any number of times."""
    total: Tensor = _Sum.apply(tensor)
    return total


class _Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: Tensor) -> Tensor:  # noqa: ARG004
        total = tensor.clone(memory_format=torch.contiguous_format)
        distributed.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:  # noqa: ARG004
        return sum_over_processes(gradients[0])
