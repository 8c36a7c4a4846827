"""The four small networks as tiled matrix products over all samples, for layers of many channels.

Two launches: every hidden unit, then every output. The third axis of the grid is the network: mu, sigma, beta, gamma;
`stat (2, n, c)` is read by mu and beta in its first half, by sigma and gamma in its second.
"""

import triton
import triton.language as tl

from asrnorm.kernels.gradient import BETA, GAMMA, MU, SIGMA, load_gate, squash


@triton.jit
def multiply(acc, a, b, i, j, I, J, K, b_j, b_k, RELU: tl.constexpr, PRECISION: tl.constexpr, BLOCK_K: tl.constexpr):
    """Add `a b` to a tile: `a (i, k)` with rows of `K`, `b[k, j]` at `j * b_j + k * b_k`."""
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
def encode_tile(
    stat,
    weight,
    bias,
    z,
    n,
    N,
    H,
    C,
    PRECISION: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """Write what some hidden units sum up for some samples."""
    h = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    tile = tl.zeros([BLOCK_N, BLOCK], tl.float32)
    tile = add_bias(multiply(tile, stat, weight, n, h, N, H, C, C, 1, False, PRECISION, BLOCK_K), bias, h, H)
    tl.store(z + n[:, None] * H + h[None, :], tile, mask=(n < N)[:, None] & (h < H)[None, :])


@triton.jit
def encode_kernel(
    stat, z, enc_w, enc_b, beta_enc_w, beta_enc_b, gamma_enc_w, gamma_enc_b, N, C, H, R, nc,
    STAN: tl.constexpr, RESCALE: tl.constexpr, PRECISION: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Write the sums of all hidden units before their ReLU: `(2, n, h)`, then `(2, n, r)`."""
    n = tl.program_id(0).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    net = tl.program_id(2)
    first = tl.program_id(1) * BLOCK
    if net < 2:
        if STAN and first < H:
            encode_tile(stat + net * nc, enc_w, enc_b, z + net * N * H, n, N, H, C, PRECISION, BLOCK_N, BLOCK, BLOCK_K)
    elif net == 2:
        if RESCALE and first < R:
            encode_tile(stat, beta_enc_w, beta_enc_b, z + 2 * N * H, n, N, R, C, PRECISION, BLOCK_N, BLOCK, BLOCK_K)
    else:
        if RESCALE and first < R:
            place = z + 2 * N * H + N * R
            encode_tile(stat + nc, gamma_enc_w, gamma_enc_b, place, n, N, R, C, PRECISION, BLOCK_N, BLOCK, BLOCK_K)


@triton.jit
def decode_tile(
    z,
    weight,
    bias,
    n,
    c,
    N,
    H,
    C,
    PRECISION: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """Outputs of a network before their squashing."""
    tile = tl.zeros([BLOCK_N, BLOCK], tl.float32)
    return add_bias(multiply(tile, z, weight, n, c, N, C, H, H, 1, True, PRECISION, BLOCK_K), bias, c, C)


@triton.jit
def mix(raw, stat, logit, static, at, mask, c, C, NET: tl.constexpr, STEP: tl.constexpr):
    """From a network's output to what the sample is standardized or rescaled by."""
    value = squash(raw, NET)
    if logit is not None:
        gate = load_gate(logit, c, c < C, STEP)[None, :]
        value *= gate
        if NET == MU or NET == SIGMA:
            value += (1.0 - gate) * tl.load(stat + at, mask=mask, other=0.0)
    if NET == BETA or NET == GAMMA:
        value += tl.load(static + c, mask=c < C, other=0.0).to(tl.float32)[None, :]
    return value


@triton.jit
def decode_kernel(
    stat, z, vec, mu_w, mu_b, sigma_w, sigma_b, lambda_mu, lambda_sigma, beta_w, beta_b, gamma_w, gamma_b,
    lambda_beta, lambda_gamma, gamma_bias, beta_bias, N, C, H, R, nc,
    STAN: tl.constexpr, RESCALE: tl.constexpr, STEP: tl.constexpr, PRECISION: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Write `vec (4, n, c)`: mu_stan, sigma_stan, gamma, beta."""
    n = tl.program_id(0).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = (n < N)[:, None] & (c < C)[None, :]
    at = n[:, None] * C + c[None, :]
    z_r = z + 2 * N * H
    net = tl.program_id(2)
    if net == 0:
        if STAN:
            raw = decode_tile(z, mu_w, mu_b, n, c, N, H, C, PRECISION, BLOCK_N, BLOCK, BLOCK_K)
            value = mix(raw, stat, lambda_mu, None, at, mask, c, C, MU, STEP)
        else:
            value = tl.load(stat + at, mask=mask, other=0.0)
        tl.store(vec + at, value, mask=mask)
    elif net == 1:
        if STAN:
            raw = decode_tile(z + N * H, sigma_w, sigma_b, n, c, N, H, C, PRECISION, BLOCK_N, BLOCK, BLOCK_K)
            value = mix(raw, stat + nc, lambda_sigma, None, at, mask, c, C, SIGMA, STEP)
        else:
            value = tl.load(stat + nc + at, mask=mask, other=0.0)
        tl.store(vec + nc + at, value, mask=mask)
    elif net == 2:
        if RESCALE:
            raw = decode_tile(z_r, beta_w, beta_b, n, c, N, R, C, PRECISION, BLOCK_N, BLOCK, BLOCK_K)
            value = mix(raw, stat, lambda_beta, beta_bias, at, mask, c, C, BETA, STEP)
        else:
            value = add_bias(tl.zeros([BLOCK_N, BLOCK], tl.float32), beta_bias, c, C)
        tl.store(vec + 3 * nc + at, value, mask=mask)
    else:
        if RESCALE:
            raw = decode_tile(z_r + N * R, gamma_w, gamma_b, n, c, N, R, C, PRECISION, BLOCK_N, BLOCK, BLOCK_K)
            value = mix(raw, stat, lambda_gamma, gamma_bias, at, mask, c, C, GAMMA, STEP)
        else:
            value = add_bias(tl.zeros([BLOCK_N, BLOCK], tl.float32), gamma_bias, c, C)
        tl.store(vec + 2 * nc + at, value, mask=mask)
