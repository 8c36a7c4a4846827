r"""The two halves of a norm layer as operators of their own, with PyTorch operations between them.

For layers that mix statistics in their own ways (groups, batches, ILM's key groups): the moments of every channel of
every sample, then any computation that turns them into four vectors, then the pass that standardizes and rescales.
`with_moments` returns the activations together with their moments, so that both gradients of the input meet in one
pass. Calls that are not traced launch the kernels directly, as in `autograd.py`.
"""

from functools import lru_cache
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from asrnorm.kernels import launch
from asrnorm.kernels.asr_backward import gradient_sums_launch
from asrnorm.kernels.asr_forward import moments_launch, program_tile, rescale_launch
from asrnorm.kernels.autograd import differentiable_gradients
from asrnorm.kernels.compiled import Launch
from asrnorm.norms import reference


@triton.jit
def moments_backward_kernel(
    x, direct, stat, d_stat, dx, C, S, stride_c, stride_s, nc, BLOCK_C: tl.constexpr, BLOCK_S: tl.constexpr
):
    r"""Write $dx = \text{direct} + d\mu / S + 2\,d\mathrm{var}\,(x - \mu) / S$."""
    i, mask_c, at, mask = program_tile(C, S, stride_c, stride_s, BLOCK_C, BLOCK_S)
    mean = tl.load(stat + i, mask=mask_c, other=0.0)
    d_mean = tl.load(d_stat + i, mask=mask_c, other=0.0) / S
    d_variance = tl.load(d_stat + nc + i, mask=mask_c, other=0.0) * (2.0 / S)
    value = tl.load(x + at, mask=mask, other=0.0).to(tl.float32)
    total = tl.load(direct + at, mask=mask, other=0.0).to(tl.float32)
    total += d_mean[:, None] + d_variance[:, None] * (value - mean[:, None])
    tl.store(dx + at, total.to(dx.dtype.element_ty), mask=mask)


@lru_cache
def _moments_backward(layout: launch.Layout) -> Launch:
    block = launch.tile_block(layout)
    grid = launch.tile_grid(layout, block)
    return Launch(moments_backward_kernel, grid, (*layout[1:], layout.nc), block.options())


@launch.on_tensor_device
def channel_moments(x: Tensor) -> Tensor:
    """Return mean and biased variance of every channel of every sample, `(2, n, c)`."""
    x = launch.dense(x)
    stat = x.new_empty((2, *x.shape[:2]), dtype=torch.float32)
    if x.numel():
        moments_launch(launch.layout_of(x), None)(x, stat)
    return stat


@torch.library.custom_op("asrnorm::moments", channel_moments, mutates_args=()).register_fake
def _(x: Tensor) -> Tensor:
    return x.new_empty((2, *x.shape[:2]), dtype=torch.float32)


@launch.on_tensor_device
def channel_moments_backward(direct: Tensor, back: Tensor, x: Tensor, stat: Tensor) -> Tensor:
    """Return the gradient of the activations: `direct`, plus what flows back through their moments."""
    x = launch.dense(x)
    direct, back = launch.dense_like(direct, x), back.contiguous()
    dx = torch.empty_like(x)
    if x.numel():
        _moments_backward(launch.layout_of(x))(x, direct, stat, back, dx)
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
        if torch.is_grad_enabled():
            (through,) = differentiable_gradients(lambda x: torch.stack(reference.channel_moments(x)), [x], back)
            assert through is not None
            return direct + through
        traced = launch.is_traced(direct)
        dx: Tensor = (torch.ops.asrnorm.moments_backward if traced else channel_moments_backward)(direct, back, x, stat)
        return dx


def with_moments(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the activations to continue with, and mean and biased variance of their channels, `(n, c)` each."""
    x, stat = _WithMoments.apply(x)
    return x, stat[0], stat[1]


@launch.on_tensor_device
def rescale(x: Tensor, vec: Tensor, eps_out: float, relu: bool) -> Tensor:
    """Standardize and rescale by `vec (4, n, c)`: mean, deviation, gain, bias."""
    x = launch.dense(x)
    y = torch.empty_like(x)
    if x.numel():
        rescale_launch(launch.layout_of(x), eps_out, relu)(x, vec, y)
    return y


@torch.library.custom_op("asrnorm::rescale", rescale, mutates_args=()).register_fake
def _(x: Tensor, vec: Tensor, eps_out: float, relu: bool) -> Tensor:
    return launch.empty_dense(x)


@launch.on_tensor_device
def rescale_backward(dy: Tensor, x: Tensor, vec: Tensor, eps_out: float, relu: bool) -> tuple[Tensor, Tensor]:
    r"""Return $dx$ for a constant `vec`, and $\sum dy$ and $\sum dy\,(x - \mu)$ over the positions, `(2, n, c)`."""
    x = launch.dense(x)
    dy = launch.dense_like(dy, x)
    dx, sums = torch.empty_like(x), vec.new_empty((2, *x.shape[:2]))
    if x.numel():
        gradient_sums_launch(launch.layout_of(x), eps_out, relu)(x, dy, None, vec, sums, dx)
    return dx, sums


@torch.library.custom_op("asrnorm::rescale_backward", rescale_backward, mutates_args=()).register_fake
def _(dy: Tensor, x: Tensor, vec: Tensor, eps_out: float, relu: bool) -> tuple[Tensor, Tensor]:
    return launch.empty_dense(x), vec.new_empty((2, *x.shape[:2]))


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:2])
    ctx.options = inputs[2:]


def _gradients(ctx: Any, dy: Tensor) -> tuple[Any, ...]:
    (x, vec), (eps_out, relu) = ctx.saved_tensors, ctx.options
    if torch.is_grad_enabled():

        def layer(x: Tensor, vec: Tensor) -> Tensor:
            y = reference.standardize_rescale(x, *vec.unbind(0), eps=eps_out)
            return torch.relu(y) if relu else y

        return *differentiable_gradients(layer, [x, vec], dy), None, None
    traced = launch.is_traced(dy)
    dx, sums = (torch.ops.asrnorm.rescale_backward if traced else rescale_backward)(dy, x, vec, eps_out, relu)
    inverse = 1.0 / (vec[1] + eps_out)
    factor = vec[2] * inverse
    d_gain = sums[1] * inverse
    return dx, torch.stack([-factor * sums[0], -factor * d_gain, d_gain, sums[0]]), None, None


torch.library.register_autograd("asrnorm::rescale", _gradients, setup_context=_save)


class _Rescale(torch.autograd.Function):
    """The operator and its gradient without the registry."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Tensor:
        _save(ctx, inputs, inputs[0])
        return rescale(*inputs)

    backward = staticmethod(_gradients)


def standardize_rescale(x: Tensor, vec: Tensor, eps_out: float, relu: bool) -> Tensor:
    """Return the activations standardized and rescaled by `vec (4, n, c)`, through the operator where traced."""
    operator = torch.ops.asrnorm.rescale if launch.is_traced(x) else _Rescale.apply
    y: Tensor = operator(x, vec, eps_out, relu)
    return y
