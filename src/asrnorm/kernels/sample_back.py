"""A whole sample in one program on the way back: input gradient, and what the weights' gradients are made of.

The activations are read twice, the second time from the cache. Held in registers, as the forward pass does, input and
gradient of the output together leave none to the networks: on an H200 that was slower.
"""

import triton
import triton.language as tl

from asrnorm.kernels.apply import gradient_sums, input_gradient, rescaled, through_relu
from asrnorm.kernels.gradient import BETA, GAMMA, MU, SIGMA, gradients_of, load_gate, squash, squash_slope
from asrnorm.kernels.sample import load_encoder, mix_one


@triton.jit
def load_decoder_rows(weight, h, c, H, C):
    """Weights `(c, h)` of a decoder."""
    return tl.load(weight + c[:, None] * H + h[None, :], mask=(c < C)[:, None] & (h < H)[None, :], other=0.0).to(
        tl.float32
    )


@triton.jit
def learn_back(
    stat, raw, d_out, enc_w, dec_w, logit, hidden, delta, active, d_hidden, d_logit, n, c, H, C,
    NET: tl.constexpr, STEP: tl.constexpr, BLOCK_H: tl.constexpr,
):  # fmt: skip
    """Gradient of a network's statistic `(c,)`; writes what the gradients of its weights are made of."""
    learned = squash(raw, NET)
    d_raw = d_out * squash_slope(raw, learned, NET)
    d_stat = tl.zeros(stat.shape, tl.float32)
    if logit is not None:
        gate = load_gate(logit, c, c < C, STEP)
        mixed = learned
        if NET == MU or NET == SIGMA:
            mixed = learned - stat
            d_stat = (1.0 - gate) * d_out
        d_gate = tl.where(c < C, d_out * mixed * gate * (1.0 - gate), 0.0)
        if STEP == 0:
            tl.store(d_logit + n, tl.sum(d_gate, 0))
        else:
            tl.store(d_logit + n * C + c, d_gate, mask=c < C)
        d_raw *= gate
    d_raw = tl.where(c < C, d_raw, 0.0)
    tl.store(delta + n * C + c, d_raw, mask=c < C)
    for first in range(0, H, BLOCK_H):
        h = first + tl.arange(0, BLOCK_H)
        z = tl.load(hidden + n * H + h, mask=h < H, other=0.0)
        back = tl.sum(load_decoder_rows(dec_w, h, c, H, C) * d_raw[:, None], 0)
        back = tl.where(z > 0, back, 0.0)
        d_stat += tl.sum(load_encoder(enc_w, h, c, H, C) * back[:, None], 0)
        tl.store(active + n * H + h, tl.maximum(z, 0.0), mask=h < H)
        tl.store(d_hidden + n * H + h, back, mask=h < H)
    return d_stat


@triton.jit
def sample_back_kernel(
    x, dy, dx, stat, raw, hidden, ws,
    enc_w, mu_w, sigma_w, lambda_mu, lambda_sigma,
    beta_enc_w, gamma_enc_w, beta_w, gamma_w, lambda_beta, lambda_gamma,
    gamma_bias, beta_bias, N, C, S, H, R, stride_c, stride_s, eps_out, nc,
    STAN: tl.constexpr, RESCALE: tl.constexpr, STEP: tl.constexpr, RELU: tl.constexpr,
    BLOCK_C: tl.constexpr, BLOCK_S: tl.constexpr, BLOCK_H: tl.constexpr, BLOCK_R: tl.constexpr,
    STAGES: tl.constexpr,
):  # fmt: skip
    """Write the input's gradient of one sample, and fill its rows of `ws` (see `weight.py`)."""
    n = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, BLOCK_C)
    mask_c = c < C
    at = n * C + c
    base = n * C * S + c * stride_c
    mean = tl.load(stat + at, mask=mask_c, other=0.0)
    std = tl.load(stat + nc + at, mask=mask_c, other=0.0)
    raw_mu, raw_sigma, raw_beta, raw_gamma = mean, std, mean, std
    mu, sigma = mean, std
    if STAN:
        raw_mu = tl.load(raw + at, mask=mask_c, other=0.0)
        raw_sigma = tl.load(raw + nc + at, mask=mask_c, other=0.0)
        mu = mix_one(raw_mu, mean, lambda_mu, c, C, MU, STEP)
        sigma = mix_one(raw_sigma, std, lambda_sigma, c, C, SIGMA, STEP)
    gamma = tl.load(gamma_bias + c, mask=mask_c, other=0.0).to(tl.float32)
    beta = tl.load(beta_bias + c, mask=mask_c, other=0.0).to(tl.float32)
    if RESCALE:
        raw_beta = tl.load(raw + 2 * nc + at, mask=mask_c, other=0.0)
        raw_gamma = tl.load(raw + 3 * nc + at, mask=mask_c, other=0.0)
        beta += mix_one(raw_beta, mean, lambda_beta, c, C, BETA, STEP)
        gamma += mix_one(raw_gamma, std, lambda_gamma, c, C, GAMMA, STEP)
    sigma = tl.where(mask_c, sigma, 1.0)
    factor = gamma / (sigma + eps_out)
    plain, centered = gradient_sums(x, dy, base, mask_c, mean, mu, factor, beta, S, stride_s, RELU, BLOCK_S, STAGES)
    d_mu, d_sigma, d_gamma, d_beta = gradients_of(plain, centered, mu, sigma, gamma, eps_out, mean)
    act = ws + 8 * nc
    act_r = act + 4 * N * H
    logit = act_r + 4 * N * R
    step_l = N if STEP == 0 else nc
    d_mean, d_std = d_mu, d_sigma
    if STAN:
        d_mean = learn_back(
            mean, raw_mu, d_mu, enc_w, mu_w, lambda_mu, hidden, ws + 2 * nc, act, act + 2 * N * H, logit,
            n, c, H, C, MU, STEP, BLOCK_H,
        )  # fmt: skip
        d_std = learn_back(
            std, raw_sigma, d_sigma, enc_w, sigma_w, lambda_sigma, hidden + N * H, ws + 3 * nc, act + N * H,
            act + 3 * N * H, logit + step_l, n, c, H, C, SIGMA, STEP, BLOCK_H,
        )  # fmt: skip
    if RESCALE:
        units = hidden + 2 * N * H
        d_mean += learn_back(
            mean, raw_beta, d_beta, beta_enc_w, beta_w, lambda_beta, units, ws + 4 * nc, act_r, act_r + 2 * N * R,
            logit + 2 * step_l, n, c, R, C, BETA, STEP, BLOCK_R,
        )  # fmt: skip
        d_std += learn_back(
            std, raw_gamma, d_gamma, gamma_enc_w, gamma_w, lambda_gamma, units + N * R, ws + 5 * nc, act_r + N * R,
            act_r + 3 * N * R, logit + 3 * step_l, n, c, R, C, GAMMA, STEP, BLOCK_R,
        )  # fmt: skip
    tl.store(ws + at, mean, mask=mask_c)
    tl.store(ws + nc + at, std, mask=mask_c)
    tl.store(ws + 6 * nc + at, d_gamma, mask=mask_c)
    tl.store(ws + 7 * nc + at, d_beta, mask=mask_c)
    through_mean, through_std = d_mean / S, d_std / (S * tl.where(mask_c, std, 1.0))
    steps = tl.cdiv(S, BLOCK_S)
    for step in tl.range(0, steps, num_stages=STAGES):
        s = (steps - 1 - step) * BLOCK_S + tl.arange(0, BLOCK_S)
        mask = mask_c[:, None] & (s < S)[None, :]
        place = base[:, None] + (s * stride_s)[None, :]
        value = tl.load(x + place, mask=mask, other=0.0).to(tl.float32)
        slope = tl.load(dy + place, mask=mask, other=0.0).to(tl.float32)
        slope = through_relu(slope, rescaled(value, mu, factor, beta), RELU)
        tile = input_gradient(slope, value, mean, factor, through_mean, through_std)
        tl.store(dx + place, tile.to(dx.dtype.element_ty), mask=mask)
