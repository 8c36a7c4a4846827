"""Max pooling of 2x2 squares, which stores the index of each maximum in one byte.

PyTorch's kernels for channels-last store eight bytes per index, fill the gradient with zeros first, and take several
times as long on small maps.
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
    """Offset of the square of an output, and the strides of its rows and columns; `C, H, W` are sizes of the output."""
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
    x, y, index, count, C, H, W, LAST: tl.constexpr, KEEP: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """Write the maximum of each square, the first of equals; NaN counts as the largest, the last of several."""
    out = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = out < count
    at, down, right = corner(out, C, H, W, LAST)
    best = tl.load(x + at, mask=inside).to(tl.float32)
    found = tl.zeros([BLOCK], tl.int8)
    for step in tl.static_range(1, 4):
        value = tl.load(x + at + (step // 2) * down + (step % 2) * right, mask=inside).to(tl.float32)
        better = (value > best) | (value != value)
        best = tl.where(better, value, best)
        found = tl.where(better, step, found).to(tl.int8)
    tl.store(y + out, best.to(y.dtype.element_ty), mask=inside)
    if KEEP:
        tl.store(index + out, found, mask=inside)


@triton.jit
def pool_backward_kernel(dy, index, dx, count, C, H, W, LAST: tl.constexpr, BLOCK: tl.constexpr):
    """Write the gradient of an output at the index of its maximum, and zero to the rest of the square."""
    out = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = out < count
    at, down, right = corner(out, C, H, W, LAST)
    slope = tl.load(dy + out, mask=inside).to(tl.float32)
    found = tl.load(index + out, mask=inside)
    for step in tl.static_range(4):
        value = tl.where(found == step, slope, 0.0).to(dx.dtype.element_ty)
        tl.store(dx + at + (step // 2) * down + (step % 2) * right, value, mask=inside)


def _sizes(y: Tensor) -> tuple[int, int, int, int]:
    return y.numel(), y.shape[1], y.shape[2], y.shape[3]


def _options(whole: Tensor) -> dict[str, Any]:
    # By the whole map: a pooled map with a single position has both memory formats.
    return {"LAST": launch.memory_format(whole) is not torch.contiguous_format, "BLOCK": _BLOCK, "num_warps": 4}


class Pool(torch.autograd.Function):
    """Max pooling of a dense map with even sides."""

    @staticmethod
    @launch.on_tensor_device
    def forward(ctx: Any, x: Tensor) -> Tensor:
        """Return the maxima; keep their indices where the input requires a gradient."""
        layout = launch.memory_format(x)
        assert layout is not None
        n, c, h, w = x.shape
        y = torch.empty((n, c, h // 2, w // 2), dtype=x.dtype, device=x.device, memory_format=layout)
        keep = ctx.needs_input_grad[0]
        index = torch.empty_like(y, dtype=torch.int8) if keep else None
        if y.numel():
            pool_kernel[(triton.cdiv(y.numel(), _BLOCK),)](x, y, index, *_sizes(y), KEEP=keep, **_options(x))
        if index is not None:
            ctx.save_for_backward(index)
            ctx.layout = layout
        return y

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Tensor:
        """Return the gradient of the map, itself differentiable."""
        (index,) = ctx.saved_tensors
        dx: Tensor = PoolBackward.apply(dy, index, ctx.layout)
        return dx


class PoolBackward(torch.autograd.Function):
    """The gradient of the map; linear in `dy`, so that its own gradient gathers the values at the maxima."""

    @staticmethod
    @launch.on_tensor_device
    def forward(ctx: Any, dy: Tensor, index: Tensor, layout: torch.memory_format) -> Tensor:
        """Return the gradient of the map, in the memory format of the map."""
        ctx.save_for_backward(index)
        dy = dy.contiguous(memory_format=layout)
        n, c, h, w = dy.shape
        dx = torch.empty((n, c, 2 * h, 2 * w), dtype=dy.dtype, device=dy.device, memory_format=layout)
        if dy.numel():
            pool_backward_kernel[(triton.cdiv(dy.numel(), _BLOCK),)](dy, index, dx, *_sizes(dy), **_options(dx))
        return dx

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        """Return the gradient of `dy` by tensor operations, which are differentiable."""
        (index,) = ctx.saved_tensors
        parts = (gradient[:, :, step // 2 :: 2, step % 2 :: 2] * (index == step) for step in range(4))
        return sum(parts, torch.zeros_like(gradient[:, :, ::2, ::2])), None, None


def max_pool(x: Tensor) -> Tensor:
    """Return the maximum of each 2x2 square of a map with even sides."""
    pooled: Tensor = Pool.apply(launch.dense(x))
    return pooled
