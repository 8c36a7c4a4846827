"""The two halves of a norm layer apart, with anything written in PyTorch between them.

For layers whose statistics are mixed in ways of their own (groups, batches, ILM's key groups): moments of every channel
of every sample first, then whatever makes four numbers of them, then the pass that standardizes and rescales.
`with_moments` hands the activations on together with their moments, so that both gradients of the input meet in one
pass. As in `autograd.py`, what nobody traces passes the registry by.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from asrnorm.kernels import launch, layer
from asrnorm.kernels.apply import load_vec, rescaled, through_relu
from asrnorm.kernels.moment import moments, moments_at_once
from asrnorm.norms import reference


@triton.jit
def variance_kernel(
    x, stat, C, S, stride_c, stride_s, nc, BLOCK_C: tl.constexpr, BLOCK_S: tl.constexpr, ONCE: tl.constexpr
):
    """Write mean and biased variance into `stat (2, n, c)`."""
    n = tl.program_id(0).to(tl.int64)
    c = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    base = n * C * S + c * stride_c
    if ONCE:
        mean, variance = moments_at_once(x, base, c < C, S, stride_s, BLOCK_S)
    else:
        mean, variance = moments(x, base, c < C, S, stride_s, BLOCK_S)
    tl.store(stat + n * C + c, mean, mask=c < C)
    tl.store(stat + nc + n * C + c, variance, mask=c < C)


@triton.jit
def variance_back_kernel(
    x, direct, stat, back, dx, C, S, stride_c, stride_s, nc, BLOCK_C: tl.constexpr, BLOCK_S: tl.constexpr
):
    """Add what flows back through the moments to what reached the activations directly."""
    n = tl.program_id(0).to(tl.int64)
    c = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    s = tl.program_id(2) * BLOCK_S + tl.arange(0, BLOCK_S)
    mask = (c < C)[:, None] & (s < S)[None, :]
    place = n * C + c
    at = n * C * S + (c * stride_c)[:, None] + (s * stride_s)[None, :]
    mean = tl.load(stat + place, mask=c < C, other=0.0)
    d_mean = tl.load(back + place, mask=c < C, other=0.0) / S
    d_variance = tl.load(back + nc + place, mask=c < C, other=0.0) * (2.0 / S)
    value = tl.load(x + at, mask=mask, other=0.0).to(tl.float32)
    total = tl.load(direct + at, mask=mask, other=0.0).to(tl.float32)
    total += d_mean[:, None] + d_variance[:, None] * (value - mean[:, None])
    tl.store(dx + at, total.to(dx.dtype.element_ty), mask=mask)


@triton.jit
def rescale_back_kernel(
    x, dy, vec, sums, dx, C, S, stride_c, stride_s, eps_out, nc,
    RELU: tl.constexpr, BLOCK_C: tl.constexpr, BLOCK_S: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Write `factor * dy`, and the sums over the positions of `dy` and of `dy (x - mu)`."""
    n = tl.program_id(0).to(tl.int64)
    c = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    place = n * C + c
    mu, factor, beta = load_vec(vec, place, c < C, nc, eps_out)
    base = n * C * S + c * stride_c
    plain = tl.zeros([BLOCK_C, BLOCK_S], tl.float32)
    centered = tl.zeros([BLOCK_C, BLOCK_S], tl.float32)
    for step in tl.range(0, tl.cdiv(S, BLOCK_S), num_stages=STAGES):
        s = step * BLOCK_S + tl.arange(0, BLOCK_S)
        mask = (c < C)[:, None] & (s < S)[None, :]
        at = base[:, None] + (s * stride_s)[None, :]
        value = tl.load(x + at, mask=mask, other=0.0).to(tl.float32)
        slope = tl.load(dy + at, mask=mask, other=0.0).to(tl.float32)
        slope = through_relu(slope, rescaled(value, mu, factor, beta), RELU)
        plain += slope
        centered += slope * (value - mu[:, None])
        tl.store(dx + at, (factor[:, None] * slope).to(dx.dtype.element_ty), mask=mask)
    tl.store(sums + place, tl.sum(plain, 1), mask=c < C)
    tl.store(sums + nc + place, tl.sum(centered, 1), mask=c < C)


@launch.on_its_device
def channel_moments(x: Tensor) -> Tensor:
    """Mean and biased variance of every channel of every sample, `(2, n, c)`."""
    x = launch.dense(x)
    p = launch.planes(x)
    stat = x.new_empty((2, p.num, p.channels), dtype=torch.float32)
    if x.numel():
        block = launch.sweep_block(p)
        variance_kernel[(p.num, launch.count_blocks(p.channels, block.channels))](
            x, stat, p.channels, p.positions, p.stride_c, p.stride_s, p.num * p.channels,
            BLOCK_C=block.channels, BLOCK_S=block.positions, ONCE=p.positions <= block.positions,
            num_warps=block.warps,
        )  # fmt: skip
    return stat


@torch.library.custom_op("asrnorm::moments", channel_moments, mutates_args=()).register_fake
def _(x: Tensor) -> Tensor:
    return x.new_empty((2, *x.shape[:2]), dtype=torch.float32)


@launch.on_its_device
def channel_moments_backward(direct: Tensor, back: Tensor, x: Tensor, stat: Tensor) -> Tensor:
    """Gradient of the activations: `direct`, plus what flows back through their moments."""
    x = launch.dense(x)
    direct, back = launch.dense_like(direct, x), back.contiguous()
    p = launch.planes(x)
    dx = torch.empty_like(x)
    if x.numel():
        block = launch.tile_block(p)
        variance_back_kernel[layer.tiles(p, block)](
            x, direct, stat, back, dx, p.channels, p.positions, p.stride_c, p.stride_s, p.num * p.channels,
            BLOCK_C=block.channels, BLOCK_S=block.positions, num_warps=block.warps,
        )  # fmt: skip
    return dx


@torch.library.custom_op("asrnorm::moments_backward", channel_moments_backward, mutates_args=()).register_fake
def _(direct: Tensor, back: Tensor, x: Tensor, stat: Tensor) -> Tensor:
    return launch.empty_dense(x)


class _WithMoments(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        stat: Tensor = torch.ops.asrnorm.moments(x) if launch.is_traced(x) else channel_moments(x)
        ctx.save_for_backward(x, stat)
        return x.view_as(x), stat

    @staticmethod
    def backward(ctx: Any, direct: Tensor, back: Tensor) -> Tensor:
        x, stat = ctx.saved_tensors
        if not torch.is_grad_enabled():
            traced = launch.is_traced(direct)
            through_moments = torch.ops.asrnorm.moments_backward if traced else channel_moments_backward
            dx: Tensor = through_moments(direct, back, x, stat)
            return dx
        # create_graph=True: through the reference, whose every step has a derivative.
        moments_again = torch.stack(reference.channel_moments(x))
        (through,) = torch.autograd.grad(moments_again, x, back, create_graph=True)
        return direct + through


def with_moments(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the activations to go on with, and mean and biased variance of their channels, `(n, c)` each."""
    x, stat = _WithMoments.apply(x)
    return x, stat[0], stat[1]


@launch.on_its_device
def rescale(x: Tensor, vec: Tensor, eps_out: float, relu: bool) -> Tensor:
    """Standardize and rescale by `vec (4, n, c)`: mean, deviation, gain, bias."""
    x = launch.dense(x)
    y = torch.empty_like(x)
    if x.numel():
        layer.rescale(x, launch.planes(x), vec, y, eps_out, relu)
    return y


@torch.library.custom_op("asrnorm::rescale", rescale, mutates_args=()).register_fake
def _(x: Tensor, vec: Tensor, eps_out: float, relu: bool) -> Tensor:
    return launch.empty_dense(x)


@launch.on_its_device
def rescale_backward(dy: Tensor, x: Tensor, vec: Tensor, eps_out: float, relu: bool) -> tuple[Tensor, Tensor]:
    """Gradient of the activations, and the sums over positions that the gradient of `vec` is made of."""
    x = launch.dense(x)
    dy = launch.dense_like(dy, x)
    p = launch.planes(x)
    dx, sums = torch.empty_like(x), vec.new_empty((2, p.num, p.channels))
    if x.numel():
        block = launch.sweep_block(p)
        rescale_back_kernel[(p.num, launch.count_blocks(p.channels, block.channels))](
            x, dy, vec, sums, dx, p.channels, p.positions, p.stride_c, p.stride_s, eps_out, p.num * p.channels,
            RELU=relu, BLOCK_C=block.channels, BLOCK_S=block.positions,
            STAGES=launch.stages(p, block), num_warps=block.warps,
        )  # fmt: skip
    return dx, sums


@torch.library.custom_op("asrnorm::rescale_backward", rescale_backward, mutates_args=()).register_fake
def _(dy: Tensor, x: Tensor, vec: Tensor, eps_out: float, relu: bool) -> tuple[Tensor, Tensor]:
    return launch.empty_dense(x), vec.new_empty((2, *x.shape[:2]))


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:2])
    ctx.options = inputs[2:]


def _backward(ctx: Any, dy: Tensor) -> tuple[Any, ...]:
    (x, vec), (eps_out, relu) = ctx.saved_tensors, ctx.options
    if torch.is_grad_enabled():
        y = reference.standardize_rescale(x, *vec.unbind(0), eps=eps_out)
        y = torch.relu(y) if relu else y
        wanted = [value for value in (x, vec) if value.requires_grad]
        grads = iter(torch.autograd.grad(y, wanted, dy, create_graph=True))
        return (*(next(grads) if value.requires_grad else None for value in (x, vec)), None, None)
    through = torch.ops.asrnorm.rescale_backward if launch.is_traced(dy) else rescale_backward
    dx, sums = through(dy, x, vec, eps_out, relu)
    inverse = 1.0 / (vec[1] + eps_out)
    factor = vec[2] * inverse
    d_gain = sums[1] * inverse
    return dx, torch.stack([-factor * sums[0], -factor * d_gain, d_gain, sums[0]]), None, None


torch.library.register_autograd("asrnorm::rescale", _backward, setup_context=_keep)


class _Direct(torch.autograd.Function):
    """The operator and its gradient without the registry."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, vec: Tensor, eps_out: float, relu: bool) -> Tensor:
        _keep(ctx, (x, vec, eps_out, relu), x)
        return rescale(x, vec, eps_out, relu)

    backward = staticmethod(_backward)


def apply(x: Tensor, vec: Tensor, eps_out: float, relu: bool) -> Tensor:
    """Return the activations standardized and rescaled by `vec`, directly or through the operator."""
    way = torch.ops.asrnorm.rescale if launch.is_traced(x) else _Direct.apply
    y: Tensor = way(x, vec, eps_out, relu)
    return y
