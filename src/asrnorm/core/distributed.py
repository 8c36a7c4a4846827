"""The processes of one run: which of them this is, and what they tell each other.

Every process draws the randomness of the whole batch and takes its own share of it, so that a run on several
processes gives the numbers of a run on one.
"""

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as distributed
from torch import Tensor


@dataclass(frozen=True)
class World:
    """One of `size` processes that work on the same run.

    Example:
        >>> World().share(7), World(rank=1, size=2).share(7)
        (slice(0, 7, None), slice(4, 7, None))
    """

    rank: int = 0
    size: int = 1

    def share(self, count: int) -> slice:
        """Return this process's part of `count` things; earlier processes take one more where it does not divide."""
        base, extra = divmod(count, self.size)
        start = self.rank * base + min(self.rank, extra)
        return slice(start, start + base + (self.rank < extra))

    def gather(self, tensor: Tensor) -> Tensor:
        """Return the parts of all processes joined on axis 0, in order of rank; the parts may differ in length."""
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
        """Return the sum over all processes, without a gradient; `sum_over_processes` has one."""
        if self.size == 1:
            return tensor
        total = tensor.detach().clone()
        distributed.all_reduce(total)
        return total

    def sum_gradients(self, parameters: list[torch.nn.Parameter]) -> None:
        """Replace each gradient by the sum over the processes.

        Of losses that are each process's share of the global mean, that is the gradient of the global mean. Reduced
        here rather than by DDP's hooks: methods call parts of the model, which those hooks do not see. A parameter that
        no process has a gradient for stays without, as in a run on one.
        """
        if self.size == 1:
            return
        used = [parameter.grad is not None for parameter in parameters]
        gradients = [p.grad if p.grad is not None else torch.zeros_like(p) for p in parameters]
        # A copy of `used` would wait for the device in every step, and nearly always all are used.
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
    """Return the sum over all processes; the gradient is the sum of theirs, and can be differentiated again."""
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
