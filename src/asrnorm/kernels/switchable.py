r"""Switchable normalization of instance and layer: the mixture in one kernel each way, a program a sample.

With $m_c$ and $u_c$ the mean and unbiased variance of a channel, $M = \overline{m}$,
$V = \overline{u} + \overline{(m - M)^2}$, and softmax weights $a$, $b$: $\mu_c = a_0 m_c + a_1 M$,
$\sigma_c^2 = b_0 u_c + b_1 V + \epsilon$. Back from $P = \sum dy$ and $Q = \sum dy (x - \mu)$ over the positions:
$d\mu = -\gamma P / \sigma$, $dq = -\gamma Q / 2\sigma^3$, $dV = b_1 \sum_c dq$,
$dm = a_0 d\mu + a_1 \overline{d\mu} + 2 dV (m - M) / C$, $du = b_0 dq + dV / C$.

In PyTorch's operations that is some fifty launches a layer on tensors of a few kilobytes, which take longer than the
passes over the activations, those of `moments_rescale.py`.
"""

from collections.abc import Sequence
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from asrnorm.kernels import launch, moments_rescale
from asrnorm.norms import reference

_CHANNELS_PER_WARP, _MOST_WARPS = 64, 8


@triton.jit
def weights(logits):
    """Return the softmax of two logits."""
    first = tl.load(logits).to(tl.float32)
    second = tl.load(logits + 1).to(tl.float32)
    top = tl.maximum(first, second)
    first, second = tl.exp(first - top), tl.exp(second - top)
    return first / (first + second), second / (first + second)


@triton.jit
def pooled(mean, variance, inside, C):
    """Return a sample's deviations from its mean over the channels, that mean, and the variance over everything."""
    whole = tl.sum(mean, 0) / C
    centered = tl.where(inside, mean - whole, 0.0)
    return centered, whole, (tl.sum(variance, 0) + tl.sum(centered * centered, 0)) / C


@triton.jit
def mix_kernel(stat, mean_logits, var_logits, gain, bias, vec, C, nc, correction, eps, BLOCK: tl.constexpr):
    """Write mean, deviation, gain and bias into `vec (4, n, c)`, from mean and biased variance in `stat (2, n, c)`."""
    c = tl.arange(0, BLOCK)
    inside = c < C
    place = tl.program_id(0).to(tl.int64) * C + c
    mean = tl.load(stat + place, mask=inside, other=0.0)
    variance = tl.load(stat + nc + place, mask=inside, other=0.0) * correction
    _, whole, layer_variance = pooled(mean, variance, inside, C)
    a0, a1 = weights(mean_logits)
    b0, b1 = weights(var_logits)
    std = tl.sqrt_rn(b0 * variance + b1 * layer_variance + eps)
    tl.store(vec + place, a0 * mean + a1 * whole, mask=inside)
    tl.store(vec + nc + place, std, mask=inside)
    tl.store(vec + 2 * nc + place, tl.load(gain + c, mask=inside).to(tl.float32), mask=inside)
    tl.store(vec + 3 * nc + place, tl.load(bias + c, mask=inside).to(tl.float32), mask=inside)


@triton.jit
def mix_back_kernel(
    stat, sums, vec, mean_logits, var_logits, back, parts, C, nc, correction,
    PARAMETERS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Write the gradient of mean and biased variance into `back (2, n, c)`, and a sample's share of the parameters'.

    `parts (n, 2c + 4)` has those of gain, bias, logits of the means and logits of the variances.
    """
    n = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, BLOCK)
    inside = c < C
    place = n * C + c
    mean = tl.load(stat + place, mask=inside, other=0.0)
    variance = tl.load(stat + nc + place, mask=inside, other=0.0) * correction
    std = tl.load(vec + nc + place, mask=inside, other=1.0)
    gain = tl.load(vec + 2 * nc + place, mask=inside, other=0.0)
    d_bias = tl.load(sums + place, mask=inside, other=0.0)
    d_gain = tl.load(sums + nc + place, mask=inside, other=0.0) / std
    centered, whole, layer_variance = pooled(mean, variance, inside, C)
    a0, a1 = weights(mean_logits)
    b0, b1 = weights(var_logits)
    d_mu = -gain * d_bias / std
    d_q = -0.5 * gain * d_gain / (std * std)
    sum_mu, sum_q = tl.sum(d_mu, 0), tl.sum(d_q, 0)
    d_layer = b1 * sum_q / C
    tl.store(back + place, a0 * d_mu + a1 * sum_mu / C + 2.0 * d_layer * centered, mask=inside)
    tl.store(back + nc + place, correction * (b0 * d_q + d_layer), mask=inside)
    if PARAMETERS:
        row = parts + n * (2 * C + 4)
        tl.store(row + c, d_gain, mask=inside)
        tl.store(row + C + c, d_bias, mask=inside)
        # Of a softmax of two: the gradients of both logits are one number and its negative.
        of_means = a0 * a1 * (tl.sum(d_mu * mean, 0) - whole * sum_mu)
        of_variances = b0 * b1 * (tl.sum(d_q * variance, 0) - layer_variance * sum_q)
        tl.store(row + 2 * C, of_means)
        tl.store(row + 2 * C + 1, -of_means)
        tl.store(row + 2 * C + 2, of_variances)
        tl.store(row + 2 * C + 3, -of_variances)


def _options(channels: int) -> dict[str, int]:
    block = launch.power_of_two(channels)
    return {"BLOCK": block, "num_warps": min(max(block // _CHANNELS_PER_WARP, 1), _MOST_WARPS)}


def _correction(p: launch.Planes) -> float:
    return p.positions / (p.positions - 1)


class _Switch(torch.autograd.Function):
    @staticmethod
    @launch.on_its_device
    def forward(
        ctx: Any,
        x: Tensor,
        mean_logits: Tensor,
        var_logits: Tensor,
        gain: Tensor,
        bias: Tensor,
        eps: float,
        relu: bool,
    ) -> Tensor:
        x = launch.dense(x)
        p = launch.planes(x)
        stat = moments_rescale.channel_moments(x)
        vec = stat.new_empty((4, p.num, p.channels))
        mix_kernel[(p.num,)](
            stat, mean_logits, var_logits, gain, bias, vec, p.channels, p.num * p.channels, _correction(p), eps,
            **_options(p.channels),
        )  # fmt: skip
        ctx.save_for_backward(x, stat, vec, mean_logits, var_logits, gain, bias)
        ctx.options = eps, relu
        return moments_rescale.rescale(x, vec, 0.0, relu)

    @staticmethod
    @launch.on_its_device
    def backward(ctx: Any, dy: Tensor) -> tuple[Any, ...]:
        x, stat, vec, *parameters = ctx.saved_tensors
        eps, relu = ctx.options
        if torch.is_grad_enabled():  # create_graph=True: the kernels have no derivative of their own
            return (*_differentiable_gradients(dy, x, parameters, eps, relu), None, None)
        p = launch.planes(x)
        direct, sums = moments_rescale.rescale_backward(dy, x, vec, 0.0, relu)
        wanted = ctx.needs_input_grad[1:5]
        back = torch.empty_like(stat)
        parts = stat.new_empty((p.num, 2 * p.channels + 4)) if any(wanted) else None
        mix_back_kernel[(p.num,)](
            stat, sums, vec, *parameters[:2], back, parts, p.channels, p.num * p.channels, _correction(p),
            PARAMETERS=parts is not None, **_options(p.channels),
        )  # fmt: skip
        dx = moments_rescale.channel_moments_backward(direct, back, x, stat)
        if parts is None:
            return dx, *(None,) * 6
        gain, bias, *logits = parts.sum(0).split([p.channels, p.channels, 2, 2])
        return dx, *(g.to(v.dtype) for g, v in zip((*logits, gain, bias), parameters, strict=True)), None, None


def _differentiable_gradients(
    dy: Tensor, x: Tensor, parameters: Sequence[Tensor], eps: float, relu: bool
) -> list[Tensor | None]:
    inputs = [x, *parameters]
    moments = reference.sample_moments(*reference.channel_moments(x), launch.planes(x).positions)
    y = reference.standardize_rescale(x, *reference.switched_vectors(moments, *parameters, eps=eps), eps=0.0)
    y = torch.relu(y) if relu else y
    grads = iter(torch.autograd.grad(y, [v for v in inputs if v.requires_grad], dy, create_graph=True))
    return [next(grads) if value.requires_grad else None for value in inputs]


def switch_norm(
    x: Tensor, mean_logits: Tensor, var_logits: Tensor, gain: Tensor, bias: Tensor, eps: float, relu: bool
) -> Tensor:
    """Return the activations standardized by a mixture of instance and layer, and rescaled; not to be traced."""
    dense = (value.contiguous() for value in (mean_logits, var_logits, gain, bias))
    y: Tensor = _Switch.apply(x, *dense, eps, relu)
    return y
