r"""Forward pass of ASR-Norm: the equations of `asrnorm.norms.reference.asr_norm` in Triton.

A layer runs in one of two ways, which agree to rounding:

- fused: one program per sample computes statistics, networks and output (`fused_forward_kernel`). For layers of few
  channels, whose weights are small compared with a sample, because every program reads all of them.
- in passes: `moments_kernel`, `encode_kernel` and `decode_kernel`, which compute the networks as matrix products over
  all samples, and `rescale_kernel`. For layers of many channels, and for few, large samples.

Buffers are float32. `stat (2, n, c)` holds $\mu, \sigma$; `vec (4, n, c)` holds $\mu_\text{stan}, \sigma_\text{stan},
\gamma, \beta$; `hidden` holds the sums of the hidden units before their ReLU (`hidden_units`). Kernels call the numbers
of samples, channels, positions and hidden units `N, C, S, H, R`, and `N * C`, the size of an `(n, c)` part, `nc`.
"""

from functools import lru_cache
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from triton import knobs

from asrnorm.kernels import launch
from asrnorm.kernels.compiled import Launch
from asrnorm.norms import reference

MU: tl.constexpr = tl.constexpr(0)
SIGMA: tl.constexpr = tl.constexpr(1)
BETA: tl.constexpr = tl.constexpr(2)
GAMMA: tl.constexpr = tl.constexpr(3)
COMPILED: tl.constexpr = tl.constexpr(not knobs.runtime.interpret)
REACH: tl.constexpr = tl.constexpr(reference.REACH)
MOST: tl.constexpr = tl.constexpr(torch.finfo(torch.float32).max)


# Addresses


class PerNetwork(NamedTuple):
    """One pointer for each of the four networks, in the order of `MU, SIGMA, BETA, GAMMA`."""

    mu: Any
    sigma: Any
    beta: Any
    gamma: Any


@triton.jit
def hidden_units(buffer, N, H, R):
    """Where each network starts in a buffer of hidden units: mu, sigma `(2, n, h)`, then beta, gamma `(2, n, r)`."""
    beta = buffer + 2 * N * H
    return PerNetwork(buffer, buffer + N * H, beta, beta + N * R)


@triton.jit
def program_channels(C, S, stride_c, BLOCK_C: tl.constexpr):
    """For a program that sweeps some channels of a sample: indices into `(n, c)`, mask, offsets of first positions."""
    n = tl.program_id(0).to(tl.int64)
    c = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    return n * C + c, c < C, n * C * S + c * stride_c


@triton.jit
def program_tile(C, S, stride_c, stride_s, BLOCK_C: tl.constexpr, BLOCK_S: tl.constexpr):
    """For a program that takes one tile: indices into `(n, c)` and their mask, offsets of the tile and their mask."""
    n = tl.program_id(0).to(tl.int64)
    c = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    s = tl.program_id(2) * BLOCK_S + tl.arange(0, BLOCK_S)
    mask = (c < C)[:, None] & (s < S)[None, :]
    return n * C + c, c < C, n * C * S + (c * stride_c)[:, None] + (s * stride_s)[None, :], mask


# Moments of a channel of a sample


@triton.jit
def moments(x, base, mask_c, S, stride_s, BLOCK_S: tl.constexpr):
    r"""$\mathrm{mean}_s(x)$ and $\mathrm{var}_s(x)$, biased; `base` are the offsets of the channels' first positions.

    Every lane of a tile keeps Welford's running mean and sum of squares of the positions it sees; at the end the lanes
    are pooled, within plus between. No value is squared before the mean is subtracted, so channels far from zero keep
    their digits.
    """
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
def moments_of_tile(x, base, mask_c, S, stride_s, BLOCK_S: tl.constexpr):
    """The same where one tile holds all positions: first the mean, then the squares around it."""
    s = tl.arange(0, BLOCK_S)
    mask = mask_c[:, None] & (s < S)[None, :]
    value = tl.load(x + base[:, None] + (s * stride_s)[None, :], mask=mask, other=0.0).to(tl.float32)
    mean = tl.sum(value, 1) / S
    around = tl.where(mask, value - mean[:, None], 0.0)
    return mean, tl.sum(around * around, 1) / S


@triton.jit
def moments_kernel(
    x, stat, C, S, stride_c, stride_s, eps, nc, BLOCK_C: tl.constexpr, BLOCK_S: tl.constexpr, ONCE: tl.constexpr
):
    r"""Write $\mu$ and $\sigma = \sqrt{\mathrm{var} + \epsilon}$ into `stat (2, n, c)`; without `eps` the variance."""
    i, mask_c, base = program_channels(C, S, stride_c, BLOCK_C)
    if ONCE:
        mean, spread = moments_of_tile(x, base, mask_c, S, stride_s, BLOCK_S)
    else:
        mean, spread = moments(x, base, mask_c, S, stride_s, BLOCK_S)
    spread = tl.where(spread > MOST, MOST, spread)
    if eps is not None:
        spread = tl.sqrt_rn(spread + eps)
    tl.store(stat + i, mean, mask=mask_c)
    tl.store(stat + nc + i, spread, mask=mask_c)


@lru_cache
def moments_launch(layout: launch.Layout, eps: float | None) -> Launch:
    """Of `x` and `stat (2, n, c)`: write the mean and the deviation, or the variance where `eps` is `None`."""
    block = launch.sweep_block(layout)
    options = {"ONCE": layout.positions <= block.positions, **block.options()}
    return Launch(moments_kernel, launch.sweep_grid(layout, block), (*layout[1:], eps, layout.nc), options)


# Networks


@triton.jit
def squash(raw, NET: tl.constexpr):
    """What the last layer of a network goes through: identity (mu), ReLU (sigma), tanh (beta) or sigmoid (gamma)."""
    if NET == SIGMA:
        return tl.where(raw < 0, 0.0, raw)
    elif NET == BETA:
        small = tl.exp(-2.0 * tl.abs(raw))
        size = (1.0 - small) / (1.0 + small)
        return tl.where(raw < 0, -size, size)
    elif NET == GAMMA:
        return 1.0 / (1.0 + tl.exp(-raw))
    else:
        return raw


@triton.jit
def load_gate(logit, c, C, STEP: tl.constexpr):
    r"""$\lambda$ of every channel, the sigmoid of its logit; `STEP` is 0 where one lambda serves all channels."""
    raw = tl.load(logit + c * STEP, mask=c < C, other=0.0).to(tl.float32)
    return 1.0 / (1.0 + tl.exp(-raw))


@triton.jit
def mix(raw, stat, logit, c, C, NET: tl.constexpr, STEP: tl.constexpr):
    r"""$\lambda\,\mathrm{squash}(\text{raw})$, plus $(1 - \lambda)$ times the statistic in the networks mu and sigma.

    Channels are the last axis of `raw` and `stat`. Without a logit $\lambda$ is one.
    """
    value = squash(raw, NET)
    if logit is not None:
        gate = load_gate(logit, c, C, STEP)
        value *= gate
        if NET == MU or NET == SIGMA:
            value += (1.0 - gate) * stat
    return value


@triton.jit
def mean_bounds(mean, std, eps):
    """Least and most of a mixed mean: `REACH` deviations of the variance without `eps` around the sample's own."""
    # The factor is a power of two: the product is exact, so fusing it with the sum cannot round it in another way.
    reach = REACH * (std - eps / tl.where(std > 0, std, 1.0))
    return mean - reach, mean + reach


@triton.jit
def mix_mean(raw, mean, std, logit, eps, c, C, STEP: tl.constexpr):
    r"""$\mu_\text{stan}$: `mix` of the network mu, within `mean_bounds` where there is a residual term."""
    value = mix(raw, mean, logit, c, C, MU, STEP)
    if logit is not None:
        least, most = mean_bounds(mean, std, eps)
        value = tl.where(value < least, least, value)
        value = tl.where(value > most, most, value)
    return value


@triton.jit
def multiply(acc, a, b, i, j, I, J, K, b_j, b_k, RELU: tl.constexpr, PRECISION: tl.constexpr, BLOCK_K: tl.constexpr):
    """Add `a b` to a tile: `a (i, k)` with rows of `K`, after a ReLU if so asked, `b[k, j]` at `j * b_j + k * b_k`."""
    for first in range(0, K, BLOCK_K):
        k = first + tl.arange(0, BLOCK_K)
        left = tl.load(a + i[:, None] * K + k[None, :], mask=(i < I)[:, None] & (k < K)[None, :], other=0.0)
        if RELU:
            left = tl.maximum(left, 0.0)
        mask = (k < K)[:, None] & (j < J)[None, :]
        right = tl.load(b + j[None, :] * b_j + k[:, None] * b_k, mask=mask, other=0.0).to(tl.float32)
        acc = tl.dot(left, right, acc, input_precision=PRECISION)
    return acc


@triton.jit
def add_bias(tile, bias, j, J):
    """Add a bias to every row, where there is one."""
    if bias is not None:
        tile += tl.load(bias + j, mask=j < J, other=0.0).to(tl.float32)[None, :]
    return tile


@triton.jit
def encode(stat, weight, bias, z, n, h, N, H, C, PRECISION: tl.constexpr, BLOCK_K: tl.constexpr):
    r"""Write $z = \mathrm{enc}(\text{stat})$ of some samples and hidden units."""
    tile = tl.zeros([n.shape[0], h.shape[0]], tl.float32)
    tile = add_bias(multiply(tile, stat, weight, n, h, N, H, C, C, 1, False, PRECISION, BLOCK_K), bias, h, H)
    tl.store(z + n[:, None] * H + h[None, :], tile, mask=(n < N)[:, None] & (h < H)[None, :])


@triton.jit
def encode_kernel(
    stat, hidden, enc_w, enc_b, beta_enc_w, beta_enc_b, gamma_enc_w, gamma_enc_b, N, C, H, R, nc,
    STAN: tl.constexpr, RESCALE: tl.constexpr, PRECISION: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    r"""Write the sums of all hidden units; the third axis of the grid is the network.

    These are $f_\text{enc}(\mu), f_\text{enc}(\sigma), \psi_\text{enc}(\mu)$ and $\phi_\text{enc}(\sigma)$.
    """
    n = tl.program_id(0).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    net = tl.program_id(2)
    first = tl.program_id(1) * BLOCK
    h = first + tl.arange(0, BLOCK)
    z = hidden_units(hidden, N, H, R)
    if net < 2:
        if STAN and first < H:
            encode(stat + net * nc, enc_w, enc_b, hidden + net * N * H, n, h, N, H, C, PRECISION, BLOCK_K)
    elif net == BETA:
        if RESCALE and first < R:
            encode(stat, beta_enc_w, beta_enc_b, z.beta, n, h, N, R, C, PRECISION, BLOCK_K)
    else:
        if RESCALE and first < R:
            encode(stat + nc, gamma_enc_w, gamma_enc_b, z.gamma, n, h, N, R, C, PRECISION, BLOCK_K)


@triton.jit
def decode(z, weight, bias, n, c, N, H, C, PRECISION: tl.constexpr, BLOCK_K: tl.constexpr):
    r"""$\mathrm{dec}(\mathrm{ReLU}(z))$, the outputs of a network before they are squashed."""
    tile = tl.zeros([n.shape[0], c.shape[0]], tl.float32)
    return add_bias(multiply(tile, z, weight, n, c, N, C, H, H, 1, True, PRECISION, BLOCK_K), bias, c, C)


@triton.jit
def decode_and_mix(
    stat, z, vec, weight, bias, logit, static, eps, n, c, N, H, C, nc,
    LEARNED: tl.constexpr, NET: tl.constexpr, STEP: tl.constexpr, PRECISION: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Write one part of `vec`: the mixed output of a network, or its statistic or zero without one, plus `static`."""
    mask = (n < N)[:, None] & (c < C)[None, :]
    at = n[:, None] * C + c[None, :]
    if LEARNED:
        raw = decode(z, weight, bias, n, c, N, H, C, PRECISION, BLOCK_K)
        value = tl.load(stat + at, mask=mask, other=0.0)
        if NET == MU:
            value = mix_mean(raw, value, tl.load(stat + nc + at, mask=mask, other=1.0), logit, eps, c, C, STEP)
        else:
            value = mix(raw, value, logit, c, C, NET, STEP)
    elif NET == MU or NET == SIGMA:
        value = tl.load(stat + at, mask=mask, other=0.0)
    else:
        value = tl.zeros([n.shape[0], c.shape[0]], tl.float32)
    tl.store(vec + at, add_bias(value, static, c, C), mask=mask)


@triton.jit
def decode_kernel(
    stat, hidden, vec, mu_w, mu_b, sigma_w, sigma_b, lambda_mu, lambda_sigma, beta_w, beta_b, gamma_w, gamma_b,
    lambda_beta, lambda_gamma, gamma_bias, beta_bias, eps_in, N, C, H, R, nc,
    STAN: tl.constexpr, RESCALE: tl.constexpr, STEP: tl.constexpr, PRECISION: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    r"""Write `vec (4, n, c)`: $\mu_\text{stan}, \sigma_\text{stan}$ (equations 6, 7), $\gamma, \beta$ (8, 9)."""
    n = tl.program_id(0).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    z = hidden_units(hidden, N, H, R)
    net = tl.program_id(2)
    if net == MU:
        decode_and_mix(
            stat, z.mu, vec, mu_w, mu_b, lambda_mu, None, eps_in, n, c, N, H, C, nc,
            STAN, MU, STEP, PRECISION, BLOCK_K,
        )  # fmt: skip
    elif net == SIGMA:
        decode_and_mix(
            stat + nc, z.sigma, vec + nc, sigma_w, sigma_b, lambda_sigma, None, eps_in, n, c, N, H, C, nc,
            STAN, SIGMA, STEP, PRECISION, BLOCK_K,
        )  # fmt: skip
    elif net == BETA:
        decode_and_mix(
            stat, z.beta, vec + 3 * nc, beta_w, beta_b, lambda_beta, beta_bias, eps_in, n, c, N, R, C, nc,
            RESCALE, BETA, STEP, PRECISION, BLOCK_K,
        )  # fmt: skip
    else:
        decode_and_mix(
            stat, z.gamma, vec + 2 * nc, gamma_w, gamma_b, lambda_gamma, gamma_bias, eps_in, n, c, N, R, C, nc,
            RESCALE, GAMMA, STEP, PRECISION, BLOCK_K,
        )  # fmt: skip


# Standardization and rescaling


@triton.jit
def load_vec(vec, i, mask, nc, eps_out):
    r"""$\mu_\text{stan}$, the factor $\gamma / (\sigma_\text{stan} + \epsilon)$, and $\beta$."""
    mu = tl.load(vec + i, mask=mask, other=0.0)
    sigma = tl.load(vec + nc + i, mask=mask, other=1.0)
    gamma = tl.load(vec + 2 * nc + i, mask=mask, other=0.0)
    beta = tl.load(vec + 3 * nc + i, mask=mask, other=0.0)
    return mu, gamma / (sigma + eps_out), beta


@triton.jit
def rescaled(x, mu, factor, beta):
    """`(x - mu) * factor + beta` on a tile `(channels, positions)`; `a * x + b` would cancel far from zero."""
    return (x - mu[:, None]) * factor[:, None] + beta[:, None]


@triton.jit
def output_of(x, mu, factor, beta, RELU: tl.constexpr):
    """The output of a tile: rescaled, then an optional ReLU, which lets NaN pass as PyTorch's does."""
    z = rescaled(x.to(tl.float32), mu, factor, beta)
    if RELU:
        z = tl.where(z < 0, 0.0, z)
    return z


@triton.jit
def rescale_kernel(
    x, vec, y, C, S, stride_c, stride_s, eps_out, nc, RELU: tl.constexpr, BLOCK_C: tl.constexpr, BLOCK_S: tl.constexpr
):
    r"""Write $y = (x - \mu_\text{stan}) \gamma / (\sigma_\text{stan} + \epsilon) + \beta$ (equation 3)."""
    i, mask_c, at, mask = program_tile(C, S, stride_c, stride_s, BLOCK_C, BLOCK_S)
    mu, factor, beta = load_vec(vec, i, mask_c, nc, eps_out)
    z = output_of(tl.load(x + at, mask=mask, other=0.0), mu, factor, beta, RELU)
    tl.store(y + at, z.to(y.dtype.element_ty), mask=mask)


@lru_cache
def rescale_launch(layout: launch.Layout, eps_out: float, relu: bool) -> Launch:
    """Of `x`, `vec (4, n, c)` and `y`: write `x` standardized and rescaled by `vec`."""
    block = launch.tile_block(layout)
    sizes = *layout[1:], eps_out, layout.nc
    return Launch(rescale_kernel, launch.tile_grid(layout, block), sizes, {"RELU": relu, **block.options()})


# A sample in registers: a tuple of tiles `(channels, positions)` in the dtype of the input, read once and used three
# times. Loops over the tuple are unrolled, because registers have no addresses. Triton's tuples know `+` but no
# unpacking. `launch.register_tiles` says which samples fit.


@triton.jit
def reload(tile, TIME: tl.constexpr):
    """The tile, to be converted again; otherwise the compiler keeps its float32 values, in twice the registers.

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
def tile_mask(mask_c, lane, S, k, BLOCK_S: tl.constexpr, FULL: tl.constexpr):
    """Where tile `k` of a sample has values: everywhere if the sample fills all its tiles."""
    if FULL:
        return tl.full([mask_c.shape[0], BLOCK_S], True, tl.int1)
    else:
        return mask_c[:, None] & (lane < S - k * BLOCK_S)[None, :]


@triton.jit
def load_sample(x, at, mask_c, lane, S, stride_s, BLOCK_S: tl.constexpr, TILES: tl.constexpr, FULL: tl.constexpr):
    """Load a whole sample, bypassing the first cache, which is left to the weights."""
    tiles = ()
    for k in tl.static_range(TILES):
        mask = tile_mask(mask_c, lane, S, k, BLOCK_S, FULL)
        tile = tl.load(x + k * BLOCK_S * stride_s + at, mask=mask, other=0.0, cache_modifier=".cg")
        tiles = tiles + (tile,)  # type: ignore[assignment]  # noqa: RUF005
    return tiles


@triton.jit
def moments_in_registers(tiles, mask_c, lane, S, BLOCK_S: tl.constexpr, TILES: tl.constexpr, FULL: tl.constexpr):
    """Mean and biased variance over the positions: first the mean, then the squares around it."""
    total = tiles[0].to(tl.float32)
    for k in tl.static_range(1, TILES):
        total += tiles[k].to(tl.float32)
    mean = tl.sum(total, 1) / S
    square = tl.zeros(total.shape, tl.float32)
    for k in tl.static_range(TILES):
        around = reload(tiles[k], 1).to(tl.float32) - mean[:, None]
        around = tl.where(tile_mask(mask_c, lane, S, k, BLOCK_S, FULL), around, 0.0)
        square += around * around
    return mean, tl.sum(square, 1) / S


# One program per sample


@triton.jit
def add_both(a, b, more_a, more_b):
    """Two sums at a time."""
    return a + more_a, b + more_b


@triton.jit
def load_encoder(weight, h, c, H, C):
    """Weights `(h, c)` of an encoder."""
    mask = (h < H)[:, None] & (c < C)[None, :]
    return tl.load(weight + h[:, None] * C + c[None, :], mask=mask, other=0.0).to(tl.float32)


@triton.jit
def load_decoder(weight, h, c, H, C):
    """Weights of a decoder, transposed to `(h, c)`."""
    mask = (h < H)[:, None] & (c < C)[None, :]
    return tl.load(weight + h[:, None] + c[None, :] * H, mask=mask, other=0.0).to(tl.float32)


@triton.jit
def load_networks(enc_1, enc_2, dec_1, dec_2, h, c, H, C):
    """Weights of two encoders and two decoders."""
    first, second = load_encoder(enc_1, h, c, H, C), load_encoder(enc_2, h, c, H, C)
    return first, second, load_decoder(dec_1, h, c, H, C), load_decoder(dec_2, h, c, H, C)


@triton.jit
def load_bias(bias, i, size):
    """A bias, zero where there is none."""
    if bias is not None:
        return tl.load(bias + i, mask=i < size, other=0.0).to(tl.float32)
    else:
        return tl.zeros(i.shape, tl.float32)


@triton.jit
def two_networks(
    mean, std, weights, enc_1, enc_2, dec_1, dec_2, enc_b1, enc_b2, dec_b1, dec_b2, z_mean, z_std, n, c, H, C,
    BLOCK_H: tl.constexpr, BLOCKS: tl.constexpr,
):  # fmt: skip
    r"""$\mathrm{dec}(\mathrm{ReLU}(\mathrm{enc}(\cdot)))$ of the mean by one network and of the std by another.

    Writes the sums of their hidden units. `weights` is the first block of weights, which the caller loads ahead.
    """
    raw_1, raw_2 = load_bias(dec_b1, c, C), load_bias(dec_b2, c, C)
    for block in tl.static_range(BLOCKS):
        h = block * BLOCK_H + tl.arange(0, BLOCK_H)
        z_1, z_2 = tl.reduce((weights[0] * mean[None, :], weights[1] * std[None, :]), 1, add_both)
        z_1 += load_bias(enc_b1, h, H)
        z_2 += load_bias(enc_b2, h, H)
        tl.store(z_mean + n * H + h, z_1, mask=h < H)
        tl.store(z_std + n * H + h, z_2, mask=h < H)
        z_1, z_2 = tl.maximum(z_1, 0.0)[:, None], tl.maximum(z_2, 0.0)[:, None]
        more_1, more_2 = tl.reduce((weights[2] * z_1, weights[3] * z_2), 0, add_both)
        raw_1 += more_1
        raw_2 += more_2
        if block + 1 < BLOCKS:
            weights = load_networks(enc_1, enc_2, dec_1, dec_2, h + BLOCK_H, c, H, C)
    return raw_1, raw_2


@triton.jit
def store_four(buffer, i, mask, nc, first, second, third, fourth):
    """Write the four parts of a buffer `(4, n, c)`."""
    tl.store(buffer + i, first, mask=mask)
    tl.store(buffer + nc + i, second, mask=mask)
    tl.store(buffer + 2 * nc + i, third, mask=mask)
    tl.store(buffer + 3 * nc + i, fourth, mask=mask)


@triton.jit
def fused_forward_kernel(
    x, y, saved,
    enc_w, enc_b, mu_w, mu_b, sigma_w, sigma_b, lambda_mu, lambda_sigma,
    beta_enc_w, beta_enc_b, gamma_enc_w, gamma_enc_b, beta_w, beta_b, gamma_w, gamma_b, lambda_beta, lambda_gamma,
    gamma_bias, beta_bias, N, C, S, H, R, stride_c, stride_s, eps_in, eps_out, nc,
    STAN: tl.constexpr, RESCALE: tl.constexpr, STEP: tl.constexpr, RELU: tl.constexpr,
    BLOCK_C: tl.constexpr, BLOCK_S: tl.constexpr, BLOCK_H: tl.constexpr, BLOCK_R: tl.constexpr,
    BLOCKS_H: tl.constexpr, BLOCKS_R: tl.constexpr, TILES: tl.constexpr, FULL: tl.constexpr, RAW: tl.constexpr,
):  # fmt: skip
    r"""Write $y$ of one sample (equations 3 to 9), and `saved` for the backward pass: `stat`, `vec` and `hidden`.

    `TILES` is the number of tiles of a sample in registers, 0 for a sample that is read twice. With `RAW`, `vec` holds
    the outputs of the networks mu, sigma, beta and gamma before they are squashed, for `fused_backward_kernel`.
    """
    n = tl.program_id(0).to(tl.int64)
    c, lane = tl.arange(0, BLOCK_C), tl.arange(0, BLOCK_S)
    mask_c = c < C
    i = n * C + c
    base = n * C * S + c * stride_c
    at = (c * stride_c)[:, None] + (lane * stride_s)[None, :]
    stat, vec, z = saved, saved + 2 * nc, hidden_units(saved + 6 * nc, N, H, R)
    if TILES:
        tiles = load_sample(x + n * C * S, at, mask_c, lane, S, stride_s, BLOCK_S, TILES, FULL)
    # The weights are requested before anything waits for the activations.
    if STAN:
        stan = load_networks(enc_w, enc_w, mu_w, sigma_w, tl.arange(0, BLOCK_H), c, H, C)
    if RESCALE:
        rescale = load_networks(beta_enc_w, gamma_enc_w, beta_w, gamma_w, tl.arange(0, BLOCK_R), c, R, C)
    gamma = load_bias(gamma_bias, c, C)
    beta = load_bias(beta_bias, c, C)
    if TILES:
        mean, variance = moments_in_registers(tiles, mask_c, lane, S, BLOCK_S, TILES, FULL)
    else:
        mean, variance = moments(x, base, mask_c, S, stride_s, BLOCK_S)
    std = tl.sqrt_rn(tl.where(variance > MOST, MOST, variance) + eps_in)
    tl.store(stat + i, mean, mask=mask_c)
    tl.store(stat + nc + i, std, mask=mask_c)
    std = tl.where(mask_c, std, 0.0)
    mu, sigma = mean, std
    if STAN:
        raw_mu, raw_sigma = two_networks(
            mean, std, stan, enc_w, enc_w, mu_w, sigma_w, enc_b, enc_b, mu_b, sigma_b, z.mu, z.sigma, n, c, H, C,
            BLOCK_H, BLOCKS_H,
        )  # fmt: skip
        if RAW:
            tl.store(vec + i, raw_mu, mask=mask_c)
            tl.store(vec + nc + i, raw_sigma, mask=mask_c)
        mu = mix_mean(raw_mu, mean, std, lambda_mu, eps_in, c, C, STEP)
        sigma = mix(raw_sigma, std, lambda_sigma, c, C, SIGMA, STEP)
    if RESCALE:
        raw_beta, raw_gamma = two_networks(
            mean, std, rescale, beta_enc_w, gamma_enc_w, beta_w, gamma_w, beta_enc_b, gamma_enc_b, beta_b, gamma_b,
            z.beta, z.gamma, n, c, R, C, BLOCK_R, BLOCKS_R,
        )  # fmt: skip
        if RAW:
            tl.store(vec + 2 * nc + i, raw_beta, mask=mask_c)
            tl.store(vec + 3 * nc + i, raw_gamma, mask=mask_c)
        beta += mix(raw_beta, mean, lambda_beta, c, C, BETA, STEP)
        gamma += mix(raw_gamma, std, lambda_gamma, c, C, GAMMA, STEP)
    if not RAW:
        store_four(vec, i, mask_c, nc, mu, sigma, gamma, beta)
    factor = gamma / tl.where(mask_c, sigma + eps_out, 1.0)
    if TILES:
        for k in tl.static_range(TILES):
            out = output_of(reload(tiles[k], 2), mu, factor, beta, RELU).to(y.dtype.element_ty)
            tl.store(
                y + n * C * S + k * BLOCK_S * stride_s + at, out, mask=tile_mask(mask_c, lane, S, k, BLOCK_S, FULL)
            )
    else:
        steps = tl.cdiv(S, BLOCK_S)
        for step in range(0, steps):
            # Backwards: the positions read last are still in the cache.
            s = (steps - 1 - step) * BLOCK_S + lane
            mask = mask_c[:, None] & (s < S)[None, :]
            spot = base[:, None] + (s * stride_s)[None, :]
            out = output_of(tl.load(x + spot, mask=mask, other=0.0), mu, factor, beta, RELU)
            tl.store(y + spot, out.to(y.dtype.element_ty), mask=mask)
