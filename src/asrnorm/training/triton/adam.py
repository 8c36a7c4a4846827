"""Adam's step on one tensor: one pass over memory, a program for every few values."""

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

_BLOCK = 1024


@triton.jit
def _step(
    parameter_ptr,
    gradient_ptr,
    mean_ptr,
    square_ptr,
    lr_ptr,
    step_ptr,
    count,
    rest1,
    log_beta1,
    rest2,
    log_beta2,
    eps,
    decay,
    BLOCK: tl.constexpr,
):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
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


def adam_step(
    parameter: Tensor,
    gradient: Tensor,
    mean: Tensor,
    square: Tensor,
    lr: Tensor,
    step: Tensor,
    *,
    betas: tuple[float, float],
    eps: float,
    weight_decay: float,
) -> None:
    """Do Adam's step on one tensor, in place; nothing is read back, and `step` is left to the caller to count.

    Args:
        parameter: float32 and dense.
        gradient: of the same strides, as the two that follow.
        mean: running mean of the gradients.
        square: running mean of their squares.
        lr: float32, one element on the device.
        step: steps done before this one, likewise.
        betas: of the two means.
        eps: added to the denominator.
        weight_decay: times the parameter is added to the gradient.
    """
    count = parameter.numel()
    factors = [number for beta in betas for number in (1 - beta, math.log(beta))]
    with torch.cuda.device(parameter.device):
        _step[(triton.cdiv(count, _BLOCK),)](
            parameter, gradient, mean, square, lr, step, count, *factors, eps, weight_decay, BLOCK=_BLOCK
        )
