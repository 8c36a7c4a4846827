"""A whole sample in one program: statistics, networks and output. One launch instead of three.

For layers of few channels, whose weights are small beside a sample: every program reads them all. The activations are
held in registers (`resident.py`) or, where they do not fit, read twice, the second time from the cache.
"""

import triton
import triton.language as tl

from asrnorm.kernels.apply import rescaled
from asrnorm.kernels.gradient import BETA, GAMMA, MU, SIGMA, load_gate, squash
from asrnorm.kernels.moment import moments
from asrnorm.kernels.resident import held_moments, hold, put_output


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
    """Weights `(h, c)` of a decoder."""
    mask = (h < H)[:, None] & (c < C)[None, :]
    return tl.load(weight + h[:, None] + c[None, :] * H, mask=mask, other=0.0).to(tl.float32)


@triton.jit
def load_networks(enc_1, enc_2, dec_1, dec_2, h, c, H, C):
    """Weights of two encoders and two decoders."""
    first, second = load_encoder(enc_1, h, c, H, C), load_encoder(enc_2, h, c, H, C)
    return first, second, load_decoder(dec_1, h, c, H, C), load_decoder(dec_2, h, c, H, C)


@triton.jit
def load_bias(bias, i, size):
    """A bias, nothing where there is none."""
    if bias is not None:
        return tl.load(bias + i, mask=i < size, other=0.0).to(tl.float32)
    else:
        return tl.zeros(i.shape, tl.float32)


@triton.jit
def perceive(
    mean, std, weights, enc_1, enc_2, dec_1, dec_2, enc_b1, enc_b2, dec_b1, dec_b2, hidden, n, c, N, H, C,
    BLOCK_H: tl.constexpr, BLOCKS: tl.constexpr,
):  # fmt: skip
    """Outputs before their squashing of a network of the mean and one of the std; writes what their units sum up.

    `weights` are the first block of them, which was loaded ahead.
    """
    raw_1, raw_2 = load_bias(dec_b1, c, C), load_bias(dec_b2, c, C)
    for block in tl.static_range(BLOCKS):
        h = block * BLOCK_H + tl.arange(0, BLOCK_H)
        z_1, z_2 = tl.reduce((weights[0] * mean[None, :], weights[1] * std[None, :]), 1, add_both)
        z_1 += load_bias(enc_b1, h, H)
        z_2 += load_bias(enc_b2, h, H)
        tl.store(hidden + n * H + h, z_1, mask=h < H)
        tl.store(hidden + N * H + n * H + h, z_2, mask=h < H)
        z_1, z_2 = tl.maximum(z_1, 0.0)[:, None], tl.maximum(z_2, 0.0)[:, None]
        more_1, more_2 = tl.reduce((weights[2] * z_1, weights[3] * z_2), 0, add_both)
        raw_1 += more_1
        raw_2 += more_2
        if block + 1 < BLOCKS:
            weights = load_networks(enc_1, enc_2, dec_1, dec_2, h + BLOCK_H, c, H, C)
    return raw_1, raw_2


@triton.jit
def mix_one(raw, stat, logit, c, C, NET: tl.constexpr, STEP: tl.constexpr):
    """mu_stan or sigma_stan, or the learned part of gamma or beta, from a network's output."""
    learned = squash(raw, NET)
    if logit is not None:
        gate = load_gate(logit, c, c < C, STEP)
        learned *= gate
        if NET == MU or NET == SIGMA:
            learned += (1.0 - gate) * stat
    return learned


@triton.jit
def sample_kernel(
    x, y, stat, vec, hidden,
    enc_w, enc_b, mu_w, mu_b, sigma_w, sigma_b, lambda_mu, lambda_sigma,
    beta_enc_w, beta_enc_b, gamma_enc_w, gamma_enc_b, beta_w, beta_b, gamma_w, gamma_b, lambda_beta, lambda_gamma,
    gamma_bias, beta_bias, N, C, S, H, R, stride_c, stride_s, eps_in, eps_out, nc,
    STAN: tl.constexpr, RESCALE: tl.constexpr, STEP: tl.constexpr, RELU: tl.constexpr,
    BLOCK_C: tl.constexpr, BLOCK_S: tl.constexpr, BLOCK_H: tl.constexpr, BLOCK_R: tl.constexpr,
    BLOCKS_H: tl.constexpr, BLOCKS_R: tl.constexpr, TILES: tl.constexpr, FULL: tl.constexpr, RAW: tl.constexpr,
):  # fmt: skip
    """Write the output of one sample; for the way back its statistics and what its networks' units sum up.

    `TILES` are those of a sample that is held, 0 where it is read again. `RAW` asks for the networks' outputs in `vec`,
    for `sample_back.py`; else there is what was made of them, for `apply.py`.
    """
    n = tl.program_id(0).to(tl.int64)
    c, lane = tl.arange(0, BLOCK_C), tl.arange(0, BLOCK_S)
    mask_c = c < C
    at = n * C + c
    base = n * C * S + c * stride_c
    place = (c * stride_c)[:, None] + (lane * stride_s)[None, :]
    if TILES:
        held = hold(x + n * C * S, place, mask_c, lane, S, stride_s, BLOCK_S, TILES, FULL)
    # Before anything waits for the activations: the weights come with them.
    if STAN:
        stan = load_networks(enc_w, enc_w, mu_w, sigma_w, tl.arange(0, BLOCK_H), c, H, C)
    if RESCALE:
        rescale = load_networks(beta_enc_w, gamma_enc_w, beta_w, gamma_w, tl.arange(0, BLOCK_R), c, R, C)
    gamma = load_bias(gamma_bias, c, C)
    beta = load_bias(beta_bias, c, C)
    if TILES:
        mean, variance = held_moments(held, mask_c, lane, S, BLOCK_S, TILES, FULL)
    else:
        mean, variance = moments(x, base, mask_c, S, stride_s, BLOCK_S)
    std = tl.sqrt_rn(variance + eps_in)
    tl.store(stat + at, mean, mask=mask_c)
    tl.store(stat + nc + at, std, mask=mask_c)
    std = tl.where(mask_c, std, 0.0)
    mu, sigma = mean, std
    if STAN:
        raw_mu, raw_sigma = perceive(
            mean, std, stan, enc_w, enc_w, mu_w, sigma_w, enc_b, enc_b, mu_b, sigma_b, hidden, n, c, N, H, C,
            BLOCK_H, BLOCKS_H,
        )  # fmt: skip
        if RAW:
            tl.store(vec + at, raw_mu, mask=mask_c)
            tl.store(vec + nc + at, raw_sigma, mask=mask_c)
        mu = mix_one(raw_mu, mean, lambda_mu, c, C, MU, STEP)
        sigma = mix_one(raw_sigma, std, lambda_sigma, c, C, SIGMA, STEP)
    if RESCALE:
        raw_beta, raw_gamma = perceive(
            mean, std, rescale, beta_enc_w, gamma_enc_w, beta_w, gamma_w, beta_enc_b, gamma_enc_b, beta_b, gamma_b,
            hidden + 2 * N * H, n, c, N, R, C, BLOCK_R, BLOCKS_R,
        )  # fmt: skip
        if RAW:
            tl.store(vec + 2 * nc + at, raw_beta, mask=mask_c)
            tl.store(vec + 3 * nc + at, raw_gamma, mask=mask_c)
        beta += mix_one(raw_beta, mean, lambda_beta, c, C, BETA, STEP)
        gamma += mix_one(raw_gamma, std, lambda_gamma, c, C, GAMMA, STEP)
    if not RAW:
        tl.store(vec + at, mu, mask=mask_c)
        tl.store(vec + nc + at, sigma, mask=mask_c)
        tl.store(vec + 2 * nc + at, gamma, mask=mask_c)
        tl.store(vec + 3 * nc + at, beta, mask=mask_c)
    factor = gamma / tl.where(mask_c, sigma + eps_out, 1.0)
    if TILES:
        put_output(held, y + n * C * S, place, mask_c, lane, mu, factor, beta, S, stride_s, RELU, BLOCK_S, TILES, FULL)
    else:
        steps = tl.cdiv(S, BLOCK_S)
        for step in range(0, steps):
            # Backwards: what was read last is still in the cache.
            s = (steps - 1 - step) * BLOCK_S + lane
            mask = mask_c[:, None] & (s < S)[None, :]
            spot = base[:, None] + (s * stride_s)[None, :]
            z = rescaled(tl.load(x + spot, mask=mask, other=0.0).to(tl.float32), mu, factor, beta)
            if RELU:
                z = tl.where(z < 0, 0.0, z)
            tl.store(y + spot, z.to(y.dtype.element_ty), mask=mask)
