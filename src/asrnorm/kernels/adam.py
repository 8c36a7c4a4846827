"""One Adam step on several tensors in one launch, one pass over memory."""

import math
from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

_BLOCK = 1024


@triton.jit
def _step(
    parameter_ptr, gradient_ptr, mean_ptr, square_ptr, lr_ptr, step_ptr, first, count,
    rest1, log_beta1, rest2, log_beta2, eps, decay, BLOCK: tl.constexpr,
):  # fmt: skip
    place = first + tl.arange(0, BLOCK)
    inside = place < count
    # The corrections in float64: in the first steps 1 - beta ** t is small against 1.
    number = (tl.load(step_ptr) + 1).to(tl.float64)
    correction1 = (1.0 - tl.exp(number * log_beta1)).to(tl.float32)
    correction2 = tl.sqrt(1.0 - tl.exp(number * log_beta2)).to(tl.float32)
    size = tl.load(lr_ptr) / correction1
    parameter = tl.load(parameter_ptr + place, mask=inside)
    gradient = tl.load(gradient_ptr + place, mask=inside) + decay * parameter
    # From the old value towards the new: .999 in float32 and the .001 beside it do not add up to one, and the mean of
    # squares would come out 1e-5 too large.
    mean = tl.load(mean_ptr + place, mask=inside)
    mean += rest1 * (gradient - mean)
    square = tl.load(square_ptr + place, mask=inside)
    square += rest2 * (gradient * gradient - square)
    tl.store(mean_ptr + place, mean, mask=inside)
    tl.store(square_ptr + place, square, mask=inside)
    tl.store(parameter_ptr + place, parameter - size * mean / (tl.sqrt(square) / correction2 + eps), mask=inside)


@triton.jit
def _steps(
    parameters, gradients, means, squares, steps, counts, lr_ptr,
    rest1, log_beta1, rest2, log_beta2, eps, decay, BLOCK: tl.constexpr,
):  # fmt: skip
    """A block of one of the tensors, which lie one after the other in the grid."""
    block = tl.program_id(0)
    for index in tl.static_range(len(parameters)):
        blocks = tl.cdiv(counts[index], BLOCK)
        if (block >= 0) & (block < blocks):
            _step(
                parameters[index], gradients[index], means[index], squares[index], lr_ptr, steps[index],
                block * BLOCK, counts[index], rest1, log_beta1, rest2, log_beta2, eps, decay, BLOCK,
            )  # fmt: skip
        block -= blocks


def adam_steps(
    parameters: Sequence[Tensor],
    gradients: Sequence[Tensor],
    means: Sequence[Tensor],
    squares: Sequence[Tensor],
    steps: Sequence[Tensor],
    lr: Tensor,
    *,
    betas: tuple[float, float],
    eps: float,
    weight_decay: float,
) -> None:
    """Do Adam's step on some tensors, in place; nothing is read back, and the caller counts `steps`.

    The tensors are float32 and dense, on one device; gradients and their running means have the strides of their
    parameters. `steps` (done before this one) and `lr` have one element each.
    """
    counts = tuple(parameter.numel() for parameter in parameters)
    factors = [number for beta in betas for number in (1 - beta, math.log(beta))]
    tensors = (tuple(kind) for kind in (parameters, gradients, means, squares, steps))
    with torch.cuda.device(parameters[0].device):
        _steps[(sum(triton.cdiv(count, _BLOCK) for count in counts),)](
            *tensors, counts, lr, *factors, eps, weight_decay, BLOCK=_BLOCK
        )
