"""The maximum of each 2x2 square: a byte remembers which of the four it was, and no zeros are written before.

PyTorch's kernels for channels-last write eight bytes an index, and take several times as long on small maps.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from asrnorm.kernels import launch

_BLOCK = 512


@triton.jit
def corner(out, C, H, W, LAST: tl.constexpr):
    """Where the square of an output begins, and the strides of its rows and columns; sizes are the output's."""
    if LAST:
        c = out % C
        rest = out // C
        w = rest % W
        row = rest // W  # of all samples, each of H rows
        return (row * 2 * (2 * W) + 2 * w) * C + c, 2 * W * C, C
    else:
        w = out % W
        row = out // W
        return row * 2 * (2 * W) + 2 * w, 2 * W, 1


@triton.jit
def pool_kernel(
    x, y, which, count, C, H, W, LAST: tl.constexpr, KEEP: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """Write the largest of each square, the first of equals; a NaN is larger than anything, the last of several."""
    out = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = out < count
    at, down, right = corner(out, C, H, W, LAST)
    best = tl.load(x + at, mask=inside).to(tl.float32)
    place = tl.zeros([BLOCK], tl.int8)
    for step in tl.static_range(1, 4):
        value = tl.load(x + at + (step // 2) * down + (step % 2) * right, mask=inside).to(tl.float32)
        better = (value > best) | (value != value)
        best = tl.where(better, value, best)
        place = tl.where(better, step, place).to(tl.int8)
    tl.store(y + out, best.to(y.dtype.element_ty), mask=inside)
    if KEEP:
        tl.store(which + out, place, mask=inside)


@triton.jit
def spread_kernel(dy, which, dx, count, C, H, W, LAST: tl.constexpr, BLOCK: tl.constexpr):
    """Write the gradient of an output where its maximum was, and nothing at the three other places."""
    out = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = out < count
    at, down, right = corner(out, C, H, W, LAST)
    slope = tl.load(dy + out, mask=inside).to(tl.float32)
    place = tl.load(which + out, mask=inside)
    for step in tl.static_range(4):
        value = tl.where(place == step, slope, 0.0).to(dx.dtype.element_ty)
        tl.store(dx + at + (step // 2) * down + (step % 2) * right, value, mask=inside)


def _sizes(y: Tensor) -> tuple[int, int, int, int]:
    return y.numel(), y.shape[1], y.shape[2], y.shape[3]


def _options(whole: Tensor) -> dict[str, Any]:
    # By the whole map: a pooled one of a single position lies in both ways.
    return {"LAST": launch.memory_format(whole) is not torch.contiguous_format, "BLOCK": _BLOCK, "num_warps": 4}


class Pool(torch.autograd.Function):
    """The pooled map of a dense one with even sides."""

    @staticmethod
    @launch.on_tensor_device
    def forward(ctx: Any, x: Tensor) -> Tensor:
        """Return the maxima; which they were is kept where a gradient may be asked for."""
        layout = launch.memory_format(x)
        assert layout is not None
        n, c, h, w = x.shape
        y = torch.empty((n, c, h // 2, w // 2), dtype=x.dtype, device=x.device, memory_format=layout)
        keep = ctx.needs_input_grad[0]
        which = torch.empty_like(y, dtype=torch.int8) if keep else None
        if y.numel():
            pool_kernel[(triton.cdiv(y.numel(), _BLOCK),)](x, y, which, *_sizes(y), KEEP=keep, **_options(x))
        if which is not None:
            ctx.save_for_backward(which)
            ctx.layout = layout
        return y

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Tensor:
        """Return the gradient of the map, itself differentiable."""
        (which,) = ctx.saved_tensors
        spread: Tensor = Spread.apply(dy, which, ctx.layout)
        return spread


class Spread(torch.autograd.Function):
    """Gradients put where the maxima were; linear, so that its own gradient gathers them from there."""

    @staticmethod
    @launch.on_tensor_device
    def forward(ctx: Any, dy: Tensor, which: Tensor, layout: torch.memory_format) -> Tensor:
        """Return the map of gradients, which lies as the pooled one did."""
        ctx.save_for_backward(which)
        dy = dy.contiguous(memory_format=layout)
        n, c, h, w = dy.shape
        dx = torch.empty((n, c, 2 * h, 2 * w), dtype=dy.dtype, device=dy.device, memory_format=layout)
        if dy.numel():
            spread_kernel[(triton.cdiv(dy.numel(), _BLOCK),)](dy, which, dx, *_sizes(dy), **_options(dx))
        return dx

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        """Return the gradient of `dy`, by tensor operations, which know their own gradients."""
        (which,) = ctx.saved_tensors
        parts = (gradient[:, :, place // 2 :: 2, place % 2 :: 2] * (which == place) for place in range(4))
        return sum(parts, torch.zeros_like(gradient[:, :, ::2, ::2])), None, None


def max_pool(x: Tensor) -> Tensor:
    """Return the maximum of each 2x2 square of a map with even sides."""
    pooled: Tensor = Pool.apply(launch.dense(x))
    return pooled
