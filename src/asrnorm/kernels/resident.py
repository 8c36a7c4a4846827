"""Activations of a sample that stay in registers, in the 16 bits they came in: read once, gone over three times.

They lie as a tuple of tiles `(channels, positions)`, as many as a sample has; `launch.held_block` says where that fits.
Kernels are unrolled over the tuple, for registers have no addresses; Triton knows `+` of tuples but no unpacking.
"""

import triton
import triton.language as tl
from triton import knobs

from asrnorm.kernels.apply import rescaled

COMPILED: tl.constexpr = tl.constexpr(not knobs.runtime.interpret)


@triton.jit
def again(tile, TIME: tl.constexpr):
    """The tile, to be converted anew: else the compiler keeps the float32 of the last time, in twice the registers.

    The second and third index of a program are zero, which the compiler does not know.
    """
    if not COMPILED or tile.dtype.primitive_bitwidth != 16:
        return tile
    elif TIME == 1:
        return tl.inline_asm_elementwise(
            "{ .reg .b32 zero; mov.u32 zero, %ctaid.y; or.b32 $0, $1, zero; }",
            "=r,r", [tile], dtype=tile.dtype, is_pure=False, pack=2,
        )  # fmt: skip
    else:
        return tl.inline_asm_elementwise(
            "{ .reg .b32 zero; mov.u32 zero, %ctaid.z; or.b32 $0, $1, zero; }",
            "=r,r", [tile], dtype=tile.dtype, is_pure=False, pack=2,
        )  # fmt: skip


@triton.jit
def inside(mask_c, lane, S, k, BLOCK_S: tl.constexpr, FULL: tl.constexpr):
    """Where tile `k` of a sample has values: everywhere if it fills all its tiles."""
    if FULL:
        return tl.full([mask_c.shape[0], BLOCK_S], True, tl.int1)
    else:
        return mask_c[:, None] & (lane < S - k * BLOCK_S)[None, :]


@triton.jit
def hold(pointer, place, mask_c, lane, S, stride_s, BLOCK_S: tl.constexpr, TILES: tl.constexpr, FULL: tl.constexpr):
    """Read a whole sample; past the first cache, which is left to the weights."""
    held = ()
    for k in tl.static_range(TILES):
        at, mask = pointer + k * BLOCK_S * stride_s + place, inside(mask_c, lane, S, k, BLOCK_S, FULL)
        held = held + (tl.load(at, mask=mask, other=0.0, cache_modifier=".cg"),)  # type: ignore[assignment]  # noqa: RUF005
    return held


@triton.jit
def held_moments(held, mask_c, lane, S, BLOCK_S: tl.constexpr, TILES: tl.constexpr, FULL: tl.constexpr):
    """Mean and biased variance over the positions: first the mean, then the squares around it."""
    total = held[0].to(tl.float32)
    for k in tl.static_range(1, TILES):
        total += held[k].to(tl.float32)
    mean = tl.sum(total, 1) / S
    square = tl.zeros(total.shape, tl.float32)
    for k in tl.static_range(TILES):
        around = again(held[k], 1).to(tl.float32) - mean[:, None]
        around = tl.where(inside(mask_c, lane, S, k, BLOCK_S, FULL), around, 0.0)
        square += around * around
    return mean, tl.sum(square, 1) / S


@triton.jit
def put_output(
    held, y, place, mask_c, lane, mu, factor, beta, S, stride_s,
    RELU: tl.constexpr, BLOCK_S: tl.constexpr, TILES: tl.constexpr, FULL: tl.constexpr,
):  # fmt: skip
    """Write the output of a sample that is held."""
    for k in tl.static_range(TILES):
        z = rescaled(again(held[k], 2).to(tl.float32), mu, factor, beta)
        if RELU:
            z = tl.where(z < 0, 0.0, z)
        at = y + k * BLOCK_S * stride_s + place
        tl.store(at, z.to(y.dtype.element_ty), mask=inside(mask_c, lane, S, k, BLOCK_S, FULL))
