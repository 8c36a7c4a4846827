r"""Statistics of groups of channels in one kernel each way: group, layer and switchable normalization.

$m_c$ and $u_c$ are the mean and variance of a channel, $M = \overline{m}$ and $V = \overline{u + (m - M)^2}$ those of a
group of $K$ channels; $\mu_c = a_0 m_c + a_1 M$ and $\sigma_c^2 = b_0 u_c + b_1 V + \epsilon$. In switchable
normalization, with one group and unbiased variances, $a$ and $b$ are the softmax of logits; else $a_1 = b_1 = 1$.
Backward, from $P = \sum dy$ and $Q = \sum dy (x - \mu)$ over the positions:
$d\mu = -\gamma P / \sigma$, $dq = -\gamma Q / 2\sigma^3$, $dV = b_1 \sum_c dq$,
$dm = a_0 d\mu + a_1 \overline{d\mu} + 2 dV (m - M) / K$, $du = b_0 dq + dV / K$.

PyTorch's operations would need some fifty launches per layer on tensors of a few kilobytes, which take longer than the
passes over the activations in `moments_rescale.py`.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from asrnorm.kernels import launch, moments_rescale
from asrnorm.kernels.asr_forward import store_four
from asrnorm.kernels.autograd import differentiable_gradients
from asrnorm.kernels.compiled import Launch
from asrnorm.norms import reference

_CHANNELS_PER_WARP, _MAX_WARPS = 64, 8


@triton.jit
def load_shares(logits):
    """The shares of instance and group: the softmax of two logits, or all to the group."""
    if logits is None:
        return 0.0, 1.0
    else:
        first = tl.load(logits).to(tl.float32)
        second = tl.load(logits + 1).to(tl.float32)
        top = tl.maximum(first, second)
        first, second = tl.exp(first - top), tl.exp(second - top)
        return first / (first + second), second / (first + second)


@triton.jit
def group_channels(C, K, BLOCK_G: tl.constexpr, BLOCK_K: tl.constexpr):
    """Channels `(g, k)` and where there are such."""
    g, k = tl.arange(0, BLOCK_G), tl.arange(0, BLOCK_K)
    c = g[:, None] * K + k[None, :]
    return c, (c < C) & (k < K)[None, :]


@triton.jit
def load_moments(stat, i, mask, K, nc, correction):
    """$m$ and $u$ of a sample's channels `(g, k)`, the deviations $m - M$, and $M$ and $V$ `(g, 1)`."""
    mean = tl.load(stat + i, mask=mask, other=0.0)
    variance = tl.load(stat + nc + i, mask=mask, other=0.0) * correction
    whole = (tl.sum(mean, 1) / K)[:, None]
    centered = tl.where(mask, mean - whole, 0.0)
    return mean, variance, centered, whole, ((tl.sum(variance, 1) + tl.sum(centered * centered, 1)) / K)[:, None]


@triton.jit
def mix_kernel(
    stat, mean_logits, var_logits, gain, bias, vec, C, K, nc, correction, eps,
    BLOCK_G: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    r"""Write $\mu, \sigma$, gain and bias into `vec (4, n, c)`, from mean and biased variance in `stat (2, n, c)`."""
    c, mask = group_channels(C, K, BLOCK_G, BLOCK_K)
    i = tl.program_id(0).to(tl.int64) * C + c
    mean, variance, _, whole, group_variance = load_moments(stat, i, mask, K, nc, correction)
    a0, a1 = load_shares(mean_logits)
    b0, b1 = load_shares(var_logits)
    std = tl.sqrt_rn(b0 * variance + b1 * group_variance + eps)
    gain_c, bias_c = tl.load(gain + c, mask=mask).to(tl.float32), tl.load(bias + c, mask=mask).to(tl.float32)
    store_four(vec, i, mask, nc, a0 * mean + a1 * whole, std, gain_c, bias_c)


@triton.jit
def mix_backward_kernel(
    stat, sums, vec, mean_logits, var_logits, d_stat, parts, C, K, nc, correction,
    BLOCK_G: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Write the gradients of mean and biased variance into `d_stat (2, n, c)`, and a sample's share of the parameters'.

    `parts (n, 2c + 4)` holds the shares of gain, bias, logits of the means and logits of the variances.
    """
    n = tl.program_id(0).to(tl.int64)
    c, mask = group_channels(C, K, BLOCK_G, BLOCK_K)
    i = n * C + c
    mean, variance, centered, whole, group_variance = load_moments(stat, i, mask, K, nc, correction)
    std = tl.load(vec + nc + i, mask=mask, other=1.0)
    gain = tl.load(vec + 2 * nc + i, mask=mask, other=0.0)
    d_bias = tl.load(sums + i, mask=mask, other=0.0)
    d_gain = tl.load(sums + nc + i, mask=mask, other=0.0) / std
    a0, a1 = load_shares(mean_logits)
    b0, b1 = load_shares(var_logits)
    d_mu = -gain * d_bias / std
    d_q = -0.5 * gain * d_gain / (std * std)
    sum_mu, sum_q = tl.sum(d_mu, 1)[:, None], tl.sum(d_q, 1)[:, None]
    d_group = b1 * sum_q / K
    tl.store(d_stat + i, a0 * d_mu + a1 * sum_mu / K + 2.0 * d_group * centered, mask=mask)
    tl.store(d_stat + nc + i, correction * (b0 * d_q + d_group), mask=mask)
    if parts is not None:
        row = parts + n * (2 * C + 4)
        tl.store(row + c, d_gain, mask=mask)
        tl.store(row + C + c, d_bias, mask=mask)
        if mean_logits is not None:
            # Of a softmax of two: the gradients of both logits are one number and its negative.
            of_means = a0 * a1 * tl.sum(tl.sum(d_mu * (mean - whole), 1), 0)
            of_variances = b0 * b1 * tl.sum(tl.sum(d_q * (variance - group_variance), 1), 0)
            tl.store(row + 2 * C, of_means)
            tl.store(row + 2 * C + 1, -of_means)
            tl.store(row + 2 * C + 2, of_variances)
            tl.store(row + 2 * C + 3, -of_variances)


class Mix(NamedTuple):
    """How a layer mixes statistics: groups, whether variances are unbiased, epsilon, and a ReLU at the end."""

    groups: int
    unbiased: bool
    eps: float
    relu: bool


@lru_cache(maxsize=1024)
def _launches(x: launch.Layout, mix: Mix) -> tuple[Launch, Launch]:
    """Return the launches of both kernels."""
    width = x.channels // mix.groups
    blocks = launch.power_of_two(mix.groups), launch.power_of_two(width)
    warps = min(max(blocks[0] * blocks[1] // _CHANNELS_PER_WARP, 1), _MAX_WARPS)
    options = {"BLOCK_G": blocks[0], "BLOCK_K": blocks[1], "num_warps": warps}
    sizes = x.channels, width, x.nc, x.positions / (x.positions - 1) if mix.unbiased else 1.0
    forward = Launch(mix_kernel, (x.num,), (*sizes, mix.eps), options)
    return forward, Launch(mix_backward_kernel, (x.num,), sizes, options)


class _GroupNorm(torch.autograd.Function):
    @staticmethod
    @launch.on_tensor_device
    def forward(ctx: Any, x: Tensor, *rest: Any) -> Tensor:
        x, parameters, mix = launch.dense(x), rest[:4], rest[4]
        stat = moments_rescale.channel_moments(x)
        vec = stat.new_empty((4, *x.shape[:2]))
        _launches(launch.layout_of(x), mix)[0](stat, *parameters, vec)
        ctx.save_for_backward(x, stat, vec, *parameters)
        ctx.mix = mix
        return moments_rescale.rescale(x, vec, 0.0, mix.relu)

    @staticmethod
    @launch.on_tensor_device
    def backward(ctx: Any, dy: Tensor) -> tuple[Any, ...]:
        x, stat, vec, *parameters = ctx.saved_tensors
        if torch.is_grad_enabled():
            return *differentiable_gradients(_reference(ctx.mix), [x, *parameters], dy), None
        layout = launch.layout_of(x)
        direct, sums = moments_rescale.rescale_backward(dy, x, vec, 0.0, ctx.mix.relu)
        d_stat = torch.empty_like(stat)
        has_parameters = any(ctx.needs_input_grad[1:5])
        parts = stat.new_empty((layout.num, 2 * layout.channels + 4)) if has_parameters else None
        _launches(layout, ctx.mix)[1](stat, sums, vec, *parameters[:2], d_stat, parts)
        dx = moments_rescale.channel_moments_backward(direct, d_stat, x, stat)
        if parts is None:
            return dx, *(None,) * 5
        gain, bias, *logits = parts.sum(0).split([layout.channels, layout.channels, 2, 2])
        pairs = zip((*logits, gain, bias), parameters, strict=True)
        return dx, *(None if v is None else g.to(v.dtype) for g, v in pairs), None


def _reference(mix: Mix) -> Callable[..., Tensor]:
    """Return the same function in PyTorch's operations, for second derivatives."""

    def layer(x: Tensor, mean_logits: Tensor | None, var_logits: Tensor | None, gain: Tensor, bias: Tensor) -> Tensor:
        own = reference.channel_moments(x)
        if mean_logits is None or var_logits is None:
            mean, variance = reference.group_moments(*own, mix.groups)
            vectors = mean, torch.sqrt(variance + mix.eps), gain, bias
        else:
            moments = reference.sample_moments(*own, x[0, 0].numel())
            vectors = reference.switched_vectors(moments, mean_logits, var_logits, gain, bias, eps=mix.eps)
        y = reference.standardize_rescale(x, *vectors, eps=0.0)
        return torch.relu(y) if mix.relu else y

    return layer


def switch_norm(
    x: Tensor, mean_logits: Tensor, var_logits: Tensor, gain: Tensor, bias: Tensor, eps: float, relu: bool
) -> Tensor:
    """Return the activations standardized by a mixture of instance and layer, and rescaled; not for traced calls."""
    dense = (value.contiguous() for value in (mean_logits, var_logits, gain, bias))
    y: Tensor = _GroupNorm.apply(x, *dense, Mix(1, True, eps, relu))
    return y


def group_norm(x: Tensor, groups: int, gain: Tensor, bias: Tensor, eps: float, relu: bool) -> Tensor:
    """Return the activations standardized over groups of channels, and rescaled; not for traced calls."""
    y: Tensor = _GroupNorm.apply(x, None, None, gain.contiguous(), bias.contiguous(), Mix(groups, False, eps, relu))
    return y
