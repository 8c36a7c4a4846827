"""The way back through the four networks, for layers of many channels.

Three launches: what flows into the decoders, into the hidden units, into the statistics. Buffers lie as `weight.py`
says.
"""

import triton
import triton.language as tl

from asrnorm.kernels.gradient import BETA, GAMMA, MU, SIGMA, load_gate, squash, squash_slope, vec_gradients
from asrnorm.kernels.network import decode_tile, multiply


@triton.jit
def delta_tile(raw, d_out, stat, logit, delta, d_logit, n, at, mask, c, N, C, NET: tl.constexpr, STEP: tl.constexpr):
    """Write the gradient of a network's output before its squashing, and of its lambda."""
    learned = squash(raw, NET)
    d_raw = d_out * squash_slope(raw, learned, NET)
    if logit is not None:
        gate = load_gate(logit, c, c < C, STEP)[None, :]
        mixed = learned
        if NET == MU or NET == SIGMA:
            mixed = learned - tl.load(stat + at, mask=mask, other=0.0)
        d_gate = tl.where(mask, d_out * mixed * gate * (1.0 - gate), 0.0)
        if STEP == 0:  # a sum for every sample and tile of channels
            tl.store(d_logit + n * tl.num_programs(1) + tl.program_id(1), tl.sum(d_gate, 1), mask=n < N)
        else:
            tl.store(d_logit + at, d_gate, mask=mask)
        d_raw *= gate
    tl.store(delta + at, d_raw, mask=mask)


@triton.jit
def delta_kernel(
    stat, vec, z, sums, ws, mu_w, mu_b, sigma_w, sigma_b, lambda_mu, lambda_sigma, beta_w, beta_b, gamma_w, gamma_b,
    lambda_beta, lambda_gamma, eps_out, N, C, H, R, nc,
    STAN: tl.constexpr, RESCALE: tl.constexpr, STEP: tl.constexpr, PRECISION: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Write the deltas of the four decoders, the gradients of the lambdas, and copies of what `weight.py` reads."""
    n = tl.program_id(0).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = (n < N)[:, None] & (c < C)[None, :]
    at = n[:, None] * C + c[None, :]
    mean = tl.load(stat + at, mask=mask, other=0.0)
    d_mu, d_sigma, d_gamma, d_beta = vec_gradients(vec, sums, at, mask, nc, eps_out, mean)
    z_r = z + 2 * N * H
    logit = ws + 8 * nc + 4 * N * H + 4 * N * R
    step = N * tl.num_programs(1) if STEP == 0 else nc
    net = tl.program_id(2)
    if net == 0:
        tl.store(ws + at, mean, mask=mask)
        if STAN:
            raw = decode_tile(z, mu_w, mu_b, n, c, N, H, C, PRECISION, BLOCK_N, BLOCK, BLOCK_K)
            delta_tile(raw, d_mu, stat, lambda_mu, ws + 2 * nc, logit, n, at, mask, c, N, C, MU, STEP)
    elif net == 1:
        tl.store(ws + nc + at, tl.load(stat + nc + at, mask=mask, other=0.0), mask=mask)
        if STAN:
            raw = decode_tile(z + N * H, sigma_w, sigma_b, n, c, N, H, C, PRECISION, BLOCK_N, BLOCK, BLOCK_K)
            place = logit + step
            delta_tile(raw, d_sigma, stat + nc, lambda_sigma, ws + 3 * nc, place, n, at, mask, c, N, C, SIGMA, STEP)
    elif net == 2:
        tl.store(ws + 7 * nc + at, d_beta, mask=mask)
        if RESCALE:
            raw = decode_tile(z_r, beta_w, beta_b, n, c, N, R, C, PRECISION, BLOCK_N, BLOCK, BLOCK_K)
            place = logit + 2 * step
            delta_tile(raw, d_beta, stat, lambda_beta, ws + 4 * nc, place, n, at, mask, c, N, C, BETA, STEP)
    else:
        tl.store(ws + 6 * nc + at, d_gamma, mask=mask)
        if RESCALE:
            raw = decode_tile(z_r + N * R, gamma_w, gamma_b, n, c, N, R, C, PRECISION, BLOCK_N, BLOCK, BLOCK_K)
            place = logit + 3 * step
            delta_tile(raw, d_gamma, stat, lambda_gamma, ws + 5 * nc, place, n, at, mask, c, N, C, GAMMA, STEP)


@triton.jit
def hidden_tile(
    delta,
    weight,
    z,
    active,
    d_z,
    n,
    N,
    H,
    C,
    PRECISION: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """Write the gradient of some hidden units' sums, and their activity."""
    h = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    back = tl.zeros([BLOCK_N, BLOCK], tl.float32)
    back = multiply(back, delta, weight, n, h, N, H, C, 1, H, False, PRECISION, BLOCK_K)
    mask = (n < N)[:, None] & (h < H)[None, :]
    at = n[:, None] * H + h[None, :]
    sums = tl.load(z + at, mask=mask, other=0.0)
    tl.store(d_z + at, tl.where(sums > 0, back, 0.0), mask=mask)
    tl.store(active + at, tl.maximum(sums, 0.0), mask=mask)


@triton.jit
def hidden_kernel(
    z, ws, mu_w, sigma_w, beta_w, gamma_w, N, C, H, R, nc,
    STAN: tl.constexpr, RESCALE: tl.constexpr, PRECISION: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Write the gradients of all hidden units."""
    n = tl.program_id(0).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    first = tl.program_id(1) * BLOCK
    z_r = z + 2 * N * H
    act = ws + 8 * nc
    act_r = act + 4 * N * H
    net = tl.program_id(2)
    if net == 0:
        if STAN and first < H:
            hidden_tile(ws + 2 * nc, mu_w, z, act, act + 2 * N * H, n, N, H, C, PRECISION, BLOCK_N, BLOCK, BLOCK_K)
    elif net == 1:
        if STAN and first < H:
            hidden_tile(
                ws + 3 * nc,
                sigma_w,
                z + N * H,
                act + N * H,
                act + 3 * N * H,
                n,
                N,
                H,
                C,
                PRECISION,
                BLOCK_N,
                BLOCK,
                BLOCK_K,
            )
    elif net == 2:
        if RESCALE and first < R:
            hidden_tile(
                ws + 4 * nc, beta_w, z_r, act_r, act_r + 2 * N * R, n, N, R, C, PRECISION, BLOCK_N, BLOCK, BLOCK_K
            )
    else:
        if RESCALE and first < R:
            hidden_tile(
                ws + 5 * nc,
                gamma_w,
                z_r + N * R,
                act_r + N * R,
                act_r + 3 * N * R,
                n,
                N,
                R,
                C,
                PRECISION,
                BLOCK_N,
                BLOCK,
                BLOCK_K,
            )


@triton.jit
def native_share(d_out, logit, c, C, STAN: tl.constexpr, STEP: tl.constexpr):
    """What flows past the standardization network, into the native statistic."""
    if STAN:
        if logit is None:
            return tl.zeros_like(d_out)
        else:
            return (1.0 - load_gate(logit, c, c < C, STEP))[None, :] * d_out
    else:
        return d_out


@triton.jit
def statistic_kernel(
    stat, vec, sums, back, ws, enc_w, beta_enc_w, gamma_enc_w, lambda_mu, lambda_sigma, eps_out, N, C, H, R, nc,
    STAN: tl.constexpr, RESCALE: tl.constexpr, STEP: tl.constexpr, PRECISION: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Write `back (2, n, c)`, the gradient of mean and std."""
    n = tl.program_id(0).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = (n < N)[:, None] & (c < C)[None, :]
    at = n[:, None] * C + c[None, :]
    mean = tl.load(stat + at, mask=mask, other=0.0)
    d_mu, d_sigma, _, _ = vec_gradients(vec, sums, at, mask, nc, eps_out, mean)
    side = tl.program_id(2)
    d_z = ws + 8 * nc + (2 + side) * N * H
    d_r = ws + 8 * nc + 4 * N * H + (2 + side) * N * R
    if side == 0:
        total = native_share(d_mu, lambda_mu, c, C, STAN, STEP)
        if RESCALE:
            total = multiply(total, d_r, beta_enc_w, n, c, N, C, R, 1, C, False, PRECISION, BLOCK_K)
    else:
        total = native_share(d_sigma, lambda_sigma, c, C, STAN, STEP)
        if RESCALE:
            total = multiply(total, d_r, gamma_enc_w, n, c, N, C, R, 1, C, False, PRECISION, BLOCK_K)
    if STAN:
        total = multiply(total, d_z, enc_w, n, c, N, C, H, 1, C, False, PRECISION, BLOCK_K)
    tl.store(back + side * nc + at, total, mask=mask)
