r"""Mean and standard deviation of every channel of every sample, on tiles of `(channels, positions)`.

Every lane of a tile keeps Welford's running mean and sum of squares of the positions it sees; the lanes are joined by
within plus between at the end. Nothing is ever squared before the mean is taken off: channels far from zero keep
their digits.
"""

import triton
import triton.language as tl


@triton.jit
def moments(x, base, mask_c, S, stride_s, BLOCK_S: tl.constexpr):
    """Mean and biased variance over the positions; `base` are the offsets of the channels' first positions."""
    lane = tl.arange(0, BLOCK_S)
    mean = tl.zeros([base.shape[0], BLOCK_S], tl.float32)
    square = tl.zeros([base.shape[0], BLOCK_S], tl.float32)
    for step in range(0, tl.cdiv(S, BLOCK_S)):
        s = step * BLOCK_S + lane
        mask = mask_c[:, None] & (s < S)[None, :]
        value = tl.load(x + base[:, None] + (s * stride_s)[None, :], mask=mask, other=0.0).to(tl.float32)
        delta = tl.where(mask, value - mean, 0.0)
        mean += delta * (1.0 / (step + 1))
        square += delta * (value - mean)
    # How many positions a lane saw: none where the map is smaller than the tile.
    count = ((S - lane + BLOCK_S - 1) // BLOCK_S).to(tl.float32)[None, :]
    joint = tl.sum(mean * count, 1) / S
    between = mean - joint[:, None]
    variance = tl.sum(square + count * between * between, 1) / S
    return joint, variance


@triton.jit
def moments_at_once(x, base, mask_c, S, stride_s, BLOCK_S: tl.constexpr):
    """The same where one tile holds all positions: first the mean, then the squares around it."""
    s = tl.arange(0, BLOCK_S)
    mask = mask_c[:, None] & (s < S)[None, :]
    value = tl.load(x + base[:, None] + (s * stride_s)[None, :], mask=mask, other=0.0).to(tl.float32)
    mean = tl.sum(value, 1) / S
    around = tl.where(mask, value - mean[:, None], 0.0)
    return mean, tl.sum(around * around, 1) / S


@triton.jit
def moment_kernel(
    x, stat, C, S, stride_c, stride_s, eps, nc, BLOCK_C: tl.constexpr, BLOCK_S: tl.constexpr, ONCE: tl.constexpr
):
    """Write mean and `sqrt(variance + eps)` into `stat (2, n, c)`; a program takes some channels of a sample."""
    n = tl.program_id(0).to(tl.int64)
    c = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    base = n * C * S + c * stride_c
    if ONCE:
        mean, variance = moments_at_once(x, base, c < C, S, stride_s, BLOCK_S)
    else:
        mean, variance = moments(x, base, c < C, S, stride_s, BLOCK_S)
    tl.store(stat + n * C + c, mean, mask=c < C)
    tl.store(stat + nc + n * C + c, tl.sqrt_rn(variance + eps), mask=c < C)
