"""Convolutions with short sums as matrix products, with one row per output position.

The rows are gathered from the input, which the cache holds, and never stored. The gradient of the weights is summed in
parts, one program per part, and then over the parts, in a fixed order.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from asrnorm.kernels import launch

_POSITIONS = 128  # of a program's output
_TERMS = 16  # of a product at a time
_PART_POSITIONS = 32  # of a part's sum at a time
_PROGRAMS = 128  # that fill a GPU
_WARPS = 4
_SUMMED = 4096  # values that a program sums over the parts


@triton.jit
def square_of(p, OH, OW, stride_n, stride_h, stride_w):
    """Offset of the square of an output position in the input."""
    row = p // OW
    return (row // OH).to(tl.int64) * stride_n + (row % OH) * stride_h + (p % OW) * stride_w


@triton.jit
def term_of(k, stride_c, stride_h, stride_w, C: tl.constexpr, KH: tl.constexpr, KW: tl.constexpr, LAST: tl.constexpr):
    """Offset of a term in its square; terms have the order of the weights of an output."""
    if LAST:
        return k // (KW * C) * stride_h + k // C % KW * stride_w + k % C * stride_c
    else:
        return k // (KH * KW) * stride_c + k // KW % KH * stride_h + k % KW * stride_w


@triton.jit
def convolve_kernel(
    x, weight, bias, y, count, O, OH, OW, stride_n, stride_c, stride_h, stride_w,
    C: tl.constexpr, KH: tl.constexpr, KW: tl.constexpr, LAST: tl.constexpr,
    BLOCK_P: tl.constexpr, BLOCK_O: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Write the outputs of some positions."""
    K: tl.constexpr = C * KH * KW
    p = tl.program_id(0) * BLOCK_P + tl.arange(0, BLOCK_P)
    o = tl.arange(0, BLOCK_O)
    square = square_of(p, OH, OW, stride_n, stride_h, stride_w)
    total = tl.zeros([BLOCK_P, BLOCK_O], tl.float32)
    for first in tl.static_range(0, K, BLOCK_K):
        k = first + tl.arange(0, BLOCK_K)
        term = term_of(k, stride_c, stride_h, stride_w, C, KH, KW, LAST)
        inside = (p < count)[:, None] & (k < K)[None, :]
        rows = tl.load(x + square[:, None] + term[None, :], mask=inside, other=0.0)
        columns = tl.load(weight + k[:, None] + o[None, :] * K, mask=(k < K)[:, None] & (o < O)[None, :], other=0.0)
        total = tl.dot(rows, columns, total, input_precision="tf32")
    if bias is not None:
        total += tl.load(bias + o, mask=o < O, other=0.0)[None, :]
    inside = (p < count)[:, None] & (o < O)[None, :]
    tl.store(y + p.to(tl.int64)[:, None] * O + o[None, :], total, mask=inside)


@triton.jit
def part_kernel(
    x, dy, parts, count, tiles, O, OH, OW, stride_n, stride_c, stride_h, stride_w,
    C: tl.constexpr, KH: tl.constexpr, KW: tl.constexpr, LAST: tl.constexpr,
    BLOCK_P: tl.constexpr, BLOCK_O: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Write the partial gradients of weights and bias from some positions."""
    K: tl.constexpr = C * KH * KW
    part = tl.program_id(0)
    k = tl.arange(0, BLOCK_K)
    o = tl.arange(0, BLOCK_O)
    term = term_of(k, stride_c, stride_h, stride_w, C, KH, KW, LAST)
    total = tl.zeros([BLOCK_K, BLOCK_O], tl.float32)
    plain = tl.zeros([BLOCK_O], tl.float32)
    for tile in range(0, tiles):
        p = (part * tiles + tile) * BLOCK_P + tl.arange(0, BLOCK_P)
        square = square_of(p, OH, OW, stride_n, stride_h, stride_w)
        inside = (k < K)[:, None] & (p < count)[None, :]
        columns = tl.load(x + square[None, :] + term[:, None], mask=inside, other=0.0)
        inside = (p < count)[:, None] & (o < O)[None, :]
        slopes = tl.load(dy + p.to(tl.int64)[:, None] * O + o[None, :], mask=inside, other=0.0)
        total = tl.dot(columns, slopes, total, input_precision="tf32")
        plain += tl.sum(slopes, 0)
    base = parts + part * ((K + 1) * O)
    tl.store(base + k[:, None] * O + o[None, :], total, mask=(k < K)[:, None] & (o < O)[None, :])
    tl.store(base + K * O + o, plain, mask=o < O)


@triton.jit
def total_kernel(parts, d_weight, d_bias, count, O, K, BLOCK_N: tl.constexpr, BLOCK: tl.constexpr):
    """Write the gradients, summed over the parts."""
    e = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    n = tl.arange(0, BLOCK_N)
    size = (K + 1) * O
    inside = (n < count)[:, None] & (e < size)[None, :]
    total = tl.sum(tl.load(parts + n[:, None] * size + e[None, :], mask=inside, other=0.0), 0)
    k, o = e // O, e % O
    tl.store(d_weight + o * K + k, total, mask=k < K)
    if d_bias is not None:
        tl.store(d_bias + o, total, mask=k == K)


def _shape(x: Tensor, weight: Tensor) -> dict[str, Any]:
    _, channels, height, width = weight.shape
    stride_n, stride_c, stride_h, stride_w = x.stride()
    return {
        "O": len(weight), "OH": x.shape[2] - height + 1, "OW": x.shape[3] - width + 1,
        "stride_n": stride_n, "stride_c": stride_c, "stride_h": stride_h, "stride_w": stride_w,
        "C": channels, "KH": height, "KW": width,
        "LAST": launch.memory_format(weight) is not torch.contiguous_format,
        "BLOCK_O": max(16, launch.power_of_two(len(weight))),
    }  # fmt: skip


class Convolve(torch.autograd.Function):
    """A convolution with dense weights, whose output is channels-last."""

    @staticmethod
    @launch.on_tensor_device
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """Return the maps."""
        ctx.save_for_backward(x, weight)
        ctx.has_bias = bias is not None
        shape = _shape(x, weight)
        size = (len(x), shape["O"], shape["OH"], shape["OW"])
        y = torch.empty(size, dtype=x.dtype, device=x.device, memory_format=torch.channels_last)
        count = y.numel() // shape["O"]
        grid = (launch.count_blocks(count, _POSITIONS),)
        options = {"BLOCK_P": _POSITIONS, "BLOCK_K": _TERMS, "num_warps": _WARPS}
        convolve_kernel[grid](x, weight, bias, y, count, **shape, **options)
        return y

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """Return the gradients; PyTorch computes that of the input, and all that are differentiated again."""
        x, weight = ctx.saved_tensors
        wanted = [*ctx.needs_input_grad[:2], ctx.has_bias and ctx.needs_input_grad[2]]
        if torch.is_grad_enabled():
            return _by_pytorch(dy, x, weight, wanted)
        d_weight, d_bias = _weight_gradients(dy, x, weight) if wanted[1] or wanted[2] else (None, None)
        d_x = _by_pytorch(dy, x, weight, [True, False, False])[0] if wanted[0] else None
        return d_x, d_weight if wanted[1] else None, d_bias if wanted[2] else None


def _by_pytorch(
    dy: Tensor, x: Tensor, weight: Tensor, wanted: list[bool]
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    sizes = [len(weight)] if wanted[2] else None
    d_x, d_weight, d_bias = torch.ops.aten.convolution_backward(
        dy, x, weight, sizes, [1, 1], [0, 0], [1, 1], False, [0, 0], 1, wanted
    )
    return d_x, d_weight, d_bias


@launch.on_tensor_device
def _weight_gradients(dy: Tensor, x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    dy = dy.contiguous(memory_format=torch.channels_last)
    terms, outputs = weight[0].numel(), len(weight)
    count = dy.numel() // outputs
    block = max(16, launch.power_of_two(terms))
    tiles = launch.count_blocks(count, _PART_POSITIONS * _PROGRAMS)
    num = launch.count_blocks(count, _PART_POSITIONS * tiles)
    parts = torch.empty((num, terms + 1, outputs), dtype=torch.float32, device=x.device)
    options = {"BLOCK_P": _PART_POSITIONS, "BLOCK_K": block, "num_warps": _WARPS, "num_stages": 2}
    part_kernel[num,](x, dy, parts, count, tiles, **_shape(x, weight), **options)
    d_weight, d_bias = torch.empty_like(weight), torch.empty(outputs, dtype=weight.dtype, device=x.device)
    rows = launch.power_of_two(num)
    values = max(1, _SUMMED // rows)
    grid = (launch.count_blocks((terms + 1) * outputs, values),)
    total_kernel[grid](parts, d_weight, d_bias, num, outputs, terms, BLOCK_N=rows, BLOCK=values, num_warps=4)
    return d_weight, d_bias


def convolve(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Return the convolution of maps `(n, c, h, w)` with dense weights, stride 1, no padding, in channels-last."""
    maps: Tensor = Convolve.apply(x, weight, bias)
    return maps
