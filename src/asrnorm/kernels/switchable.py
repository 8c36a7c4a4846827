r"""Switchable normalization of instance and layer: the mixture of statistics in one kernel each way.

With $m_c$ and $u_c$ the mean and unbiased variance of a channel, $M = \overline{m}$,
$V = \overline{u} + \overline{(m - M)^2}$, and softmax weights $a$, $b$: $\mu_c = a_0 m_c + a_1 M$,
$\sigma_c^2 = b_0 u_c + b_1 V + \epsilon$. Backward, from $P = \sum dy$ and $Q = \sum dy (x - \mu)$ over the positions:
$d\mu = -\gamma P / \sigma$, $dq = -\gamma Q / 2\sigma^3$, $dV = b_1 \sum_c dq$,
$dm = a_0 d\mu + a_1 \overline{d\mu} + 2 dV (m - M) / C$, $du = b_0 dq + dV / C$.

PyTorch's operations would need some fifty launches per layer on tensors of a few kilobytes, which take longer than the
passes over the activations in `moments_rescale.py`.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from asrnorm.kernels import launch, moments_rescale
from asrnorm.kernels.asr_forward import store_four
from asrnorm.kernels.autograd import differentiable_gradients
from asrnorm.norms import reference

_CHANNELS_PER_WARP, _MAX_WARPS = 64, 8


@triton.jit
def softmax_of_two(logits):
    """The softmax of two logits."""
    first = tl.load(logits).to(tl.float32)
    second = tl.load(logits + 1).to(tl.float32)
    top = tl.maximum(first, second)
    first, second = tl.exp(first - top), tl.exp(second - top)
    return first / (first + second), second / (first + second)


@triton.jit
def load_moments(stat, i, mask, C, nc, correction):
    """$m$ and $u$ of a sample's channels, its deviations $m - M$, and $M$ and $V$."""
    mean = tl.load(stat + i, mask=mask, other=0.0)
    variance = tl.load(stat + nc + i, mask=mask, other=0.0) * correction
    whole = tl.sum(mean, 0) / C
    centered = tl.where(mask, mean - whole, 0.0)
    return mean, variance, centered, whole, (tl.sum(variance, 0) + tl.sum(centered * centered, 0)) / C


@triton.jit
def mix_kernel(stat, mean_logits, var_logits, gain, bias, vec, C, nc, correction, eps, BLOCK: tl.constexpr):
    r"""Write $\mu, \sigma$, gain and bias into `vec (4, n, c)`, from mean and biased variance in `stat (2, n, c)`."""
    c = tl.arange(0, BLOCK)
    mask = c < C
    i = tl.program_id(0).to(tl.int64) * C + c
    mean, variance, _, whole, layer_variance = load_moments(stat, i, mask, C, nc, correction)
    a0, a1 = softmax_of_two(mean_logits)
    b0, b1 = softmax_of_two(var_logits)
    std = tl.sqrt_rn(b0 * variance + b1 * layer_variance + eps)
    gain_c, bias_c = tl.load(gain + c, mask=mask).to(tl.float32), tl.load(bias + c, mask=mask).to(tl.float32)
    store_four(vec, i, mask, nc, a0 * mean + a1 * whole, std, gain_c, bias_c)


@triton.jit
def mix_backward_kernel(
    stat, sums, vec, mean_logits, var_logits, d_stat, parts, C, nc, correction,
    PARAMETERS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Write the gradients of mean and biased variance into `d_stat (2, n, c)`, and a sample's share of the parameters'.

    `parts (n, 2c + 4)` holds the shares of gain, bias, logits of the means and logits of the variances.
    """
    n = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, BLOCK)
    mask = c < C
    i = n * C + c
    mean, variance, centered, whole, layer_variance = load_moments(stat, i, mask, C, nc, correction)
    std = tl.load(vec + nc + i, mask=mask, other=1.0)
    gain = tl.load(vec + 2 * nc + i, mask=mask, other=0.0)
    d_bias = tl.load(sums + i, mask=mask, other=0.0)
    d_gain = tl.load(sums + nc + i, mask=mask, other=0.0) / std
    a0, a1 = softmax_of_two(mean_logits)
    b0, b1 = softmax_of_two(var_logits)
    d_mu = -gain * d_bias / std
    d_q = -0.5 * gain * d_gain / (std * std)
    sum_mu, sum_q = tl.sum(d_mu, 0), tl.sum(d_q, 0)
    d_layer = b1 * sum_q / C
    tl.store(d_stat + i, a0 * d_mu + a1 * sum_mu / C + 2.0 * d_layer * centered, mask=mask)
    tl.store(d_stat + nc + i, correction * (b0 * d_q + d_layer), mask=mask)
    if PARAMETERS:
        row = parts + n * (2 * C + 4)
        tl.store(row + c, d_gain, mask=mask)
        tl.store(row + C + c, d_bias, mask=mask)
        # Of a softmax of two: the gradients of both logits are one number and its negative.
        of_means = a0 * a1 * (tl.sum(d_mu * mean, 0) - whole * sum_mu)
        of_variances = b0 * b1 * (tl.sum(d_q * variance, 0) - layer_variance * sum_q)
        tl.store(row + 2 * C, of_means)
        tl.store(row + 2 * C + 1, -of_means)
        tl.store(row + 2 * C + 2, of_variances)
        tl.store(row + 2 * C + 3, -of_variances)


def _options(channels: int) -> dict[str, int]:
    block = launch.power_of_two(channels)
    return {"BLOCK": block, "num_warps": min(max(block // _CHANNELS_PER_WARP, 1), _MAX_WARPS)}


def _sizes(x: launch.Layout) -> tuple[int, int, float]:
    """Return channels, `nc`, and the factor from biased to unbiased variance."""
    return x.channels, x.nc, x.positions / (x.positions - 1)


class _SwitchNorm(torch.autograd.Function):
    @staticmethod
    @launch.on_tensor_device
    def forward(ctx: Any, x: Tensor, *rest: Any) -> Tensor:
        x = launch.dense(x)
        parameters, (eps, relu) = rest[:4], rest[4:]
        layout = launch.layout_of(x)
        stat = moments_rescale.channel_moments(x)
        vec = stat.new_empty((4, *x.shape[:2]))
        mix_kernel[(layout.num,)](stat, *parameters, vec, *_sizes(layout), eps, **_options(layout.channels))
        ctx.save_for_backward(x, stat, vec, *parameters)
        ctx.options = eps, relu
        return moments_rescale.rescale(x, vec, 0.0, relu)

    @staticmethod
    @launch.on_tensor_device
    def backward(ctx: Any, dy: Tensor) -> tuple[Any, ...]:
        x, stat, vec, *parameters = ctx.saved_tensors
        eps, relu = ctx.options
        layout = launch.layout_of(x)
        if torch.is_grad_enabled():

            def layer(x: Tensor, *parameters: Tensor) -> Tensor:
                moments = reference.sample_moments(*reference.channel_moments(x), layout.positions)
                vectors = reference.switched_vectors(moments, *parameters, eps=eps)
                y = reference.standardize_rescale(x, *vectors, eps=0.0)
                return torch.relu(y) if relu else y

            return *differentiable_gradients(layer, [x, *parameters], dy), None, None
        direct, sums = moments_rescale.rescale_backward(dy, x, vec, 0.0, relu)
        d_stat = torch.empty_like(stat)
        has_parameters = any(ctx.needs_input_grad[1:5])
        parts = stat.new_empty((layout.num, 2 * layout.channels + 4)) if has_parameters else None
        mix_backward_kernel[(layout.num,)](
            stat, sums, vec, *parameters[:2], d_stat, parts, *_sizes(layout),
            PARAMETERS=has_parameters, **_options(layout.channels),
        )  # fmt: skip
        dx = moments_rescale.channel_moments_backward(direct, d_stat, x, stat)
        if parts is None:
            return dx, *(None,) * 6
        gain, bias, *logits = parts.sum(0).split([layout.channels, layout.channels, 2, 2])
        return dx, *(g.to(v.dtype) for g, v in zip((*logits, gain, bias), parameters, strict=True)), None, None


def switch_norm(
    x: Tensor, mean_logits: Tensor, var_logits: Tensor, gain: Tensor, bias: Tensor, eps: float, relu: bool
) -> Tensor:
    """Return the activations standardized by a mixture of instance and layer, and rescaled; not for traced calls."""
    dense = (value.contiguous() for value in (mean_logits, var_logits, gain, bias))
    y: Tensor = _SwitchNorm.apply(x, *dense, eps, relu)
    return y
