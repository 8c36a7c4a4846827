r"""Backward pass of ASR-Norm in Triton, fused or in passes as `asr_forward.py` describes.

With $y = (x - \mu_\text{stan}) f + \beta$, $f = \gamma / (\sigma_\text{stan} + \epsilon)$ and, over the positions,
$P = \sum dy$, $Q = \sum dy\,(x - \mu)$:

$d\beta = P$, $d\gamma = (Q + (\mu - \mu_\text{stan}) P) / (\sigma_\text{stan} + \epsilon)$,
$d\mu_\text{stan} = -f P$, $d\sigma_\text{stan} = -f\,d\gamma$.

The networks carry these four back to $d\mu$ and $d\sigma$ of the sample's own statistics, and
$dx = f\,dy + d\mu / S + d\sigma\,(x - \mu) / (S \sigma)$.

The gradients of the parameters are sums over the samples of what the kernels leave in a `Workspace`: all of a layer's
in one launch, in a fixed order, without atomic additions.
"""

from functools import lru_cache
from typing import Any, NamedTuple

import triton
import triton.language as tl

from asrnorm.kernels import launch
from asrnorm.kernels.asr_forward import (
    BETA,
    GAMMA,
    MU,
    REACH,
    SIGMA,
    PerNetwork,
    decode,
    hidden_units,
    load_encoder,
    load_gate,
    load_vec,
    mean_bounds,
    mix,
    mix_mean,
    multiply,
    program_channels,
    program_tile,
    rescaled,
    squash,
)
from asrnorm.kernels.compiled import Launch


class Workspace(NamedTuple):
    """Where the parts of the workspace start: pointers in a kernel, offsets on the host. Each has a row per sample."""

    stat: Any  # mean, std (2, n, c)
    d_raw: Any  # gradients of the networks' outputs before they are squashed (4, n, c)
    d_affine: Any  # of gamma and beta (2, n, c)
    hidden: PerNetwork  # hidden units after their ReLU, (n, h) or (n, r)
    d_hidden: PerNetwork  # gradients of their sums, likewise
    d_logits: Any  # gradients of the lambdas' logits (4, rows, 1 or c)


@triton.jit
def workspace(start, N, H, R, nc):
    """The workspace of a layer; its order is defined here alone."""
    h = start + 8 * nc
    r = h + 4 * N * H
    hidden = PerNetwork(h, h + N * H, r, r + N * R)
    d_hidden = PerNetwork(h + 2 * N * H, h + 3 * N * H, r + 2 * N * R, r + 3 * N * R)
    return Workspace(start, start + 2 * nc, start + 6 * nc, hidden, d_hidden, r + 4 * N * R)


def workspace_size(shape: launch.LayerShape) -> int:
    """Return how many numbers the workspace of a layer holds."""
    logits: int = workspace.fn(0, shape.x.num, shape.H, shape.R, shape.x.nc).d_logits
    return logits + 4 * shape.logit_rows * shape.L


# From the activations to the four vectors, and back to the activations


@triton.jit
def through_relu(dy, z, RELU: tl.constexpr):
    """The gradient before the ReLU; a NaN lets it pass, as in PyTorch."""
    return tl.where(z <= 0, 0.0, dy) if RELU else dy


@triton.jit
def gradient_sums(
    x, dy, dx, base, mask_c, center, mu, factor, beta, S, stride_s,
    RELU: tl.constexpr, BLOCK_S: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    r"""$\sum dy$ and $\sum dy\,(x - \text{center})$ over the positions; writes `factor * dy` to `dx`, where given."""
    lane = tl.arange(0, BLOCK_S)
    plain = tl.zeros([base.shape[0], BLOCK_S], tl.float32)
    centered = tl.zeros([base.shape[0], BLOCK_S], tl.float32)
    for step in tl.range(0, tl.cdiv(S, BLOCK_S), num_stages=STAGES):
        s = step * BLOCK_S + lane
        mask = mask_c[:, None] & (s < S)[None, :]
        at = base[:, None] + (s * stride_s)[None, :]
        value = tl.load(x + at, mask=mask, other=0.0).to(tl.float32)
        slope = tl.load(dy + at, mask=mask, other=0.0).to(tl.float32)
        slope = through_relu(slope, rescaled(value, mu, factor, beta), RELU)
        plain += slope
        centered += slope * (value - center[:, None])
        if dx is not None:
            tl.store(dx + at, (factor[:, None] * slope).to(dx.dtype.element_ty), mask=mask)
    return tl.sum(plain, 1), tl.sum(centered, 1)


@triton.jit
def gradient_sums_kernel(
    x, dy, stat, vec, sums, dx, C, S, stride_c, stride_s, eps_out, nc,
    RELU: tl.constexpr, BLOCK_C: tl.constexpr, BLOCK_S: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    r"""Write $P$ and $Q$ into `sums (2, n, c)`; without `stat`, $Q$ is around $\mu_\text{stan}$ and not $\mu$."""
    i, mask_c, base = program_channels(C, S, stride_c, BLOCK_C)
    mu, factor, beta = load_vec(vec, i, mask_c, nc, eps_out)
    center = mu
    if stat is not None:
        center = tl.load(stat + i, mask=mask_c, other=0.0)
    plain, centered = gradient_sums(
        x, dy, dx, base, mask_c, center, mu, factor, beta, S, stride_s, RELU, BLOCK_S, STAGES
    )
    tl.store(sums + i, plain, mask=mask_c)
    tl.store(sums + nc + i, centered, mask=mask_c)


@lru_cache
def gradient_sums_launch(layout: launch.Layout, eps_out: float, relu: bool) -> Launch:
    """Of `x`, `dy`, `stat`, `vec`, `sums (2, n, c)` and `dx`: write the sums, and `factor * dy` to `dx` where given."""
    block = launch.sweep_block(layout)
    options = {"RELU": relu, "STAGES": launch.stages(layout, block), **block.options()}
    return Launch(gradient_sums_kernel, launch.sweep_grid(layout, block), (*layout[1:], eps_out, layout.nc), options)


@triton.jit
def vec_gradients(plain, centered, mu, sigma, gamma, eps_out, mean):
    r"""$d\mu_\text{stan}, d\sigma_\text{stan}, d\gamma, d\beta$ from $P$ and $Q$."""
    inverse = 1.0 / (sigma + eps_out)
    d_gamma = (centered + (mean - mu) * plain) * inverse
    factor = gamma * inverse
    return -factor * plain, -factor * d_gamma, d_gamma, plain


@triton.jit
def load_vec_gradients(vec, sums, at, mask, nc, eps_out, mean):
    """`vec_gradients` of what the passes stored."""
    plain = tl.load(sums + at, mask=mask, other=0.0)
    centered = tl.load(sums + nc + at, mask=mask, other=0.0)
    mu = tl.load(vec + at, mask=mask, other=0.0)
    sigma = tl.load(vec + nc + at, mask=mask, other=1.0)
    gamma = tl.load(vec + 2 * nc + at, mask=mask, other=0.0)
    return vec_gradients(plain, centered, mu, sigma, gamma, eps_out, mean)


@triton.jit
def through_deviation(d_std, std, S):
    r"""$d\sigma / (S \sigma)$, zero where the variance overflowed."""
    return tl.where(std < 1.8e19, d_std / (S * std), 0.0)


@triton.jit
def input_gradient(x, dy, mean, mu, factor, beta, through_mean, through_std, RELU: tl.constexpr):
    r"""$dx = f\,dy + d\mu / S + d\sigma\,(x - \mu) / (S \sigma)$ of a tile, given the factors per channel."""
    value = x.to(tl.float32)
    slope = through_relu(dy.to(tl.float32), rescaled(value, mu, factor, beta), RELU)
    return factor[:, None] * slope + through_mean[:, None] + through_std[:, None] * (value - mean[:, None])


@triton.jit
def input_gradient_kernel(
    x, dy, stat, vec, d_stat, dx, C, S, stride_c, stride_s, eps_out, nc,
    RELU: tl.constexpr, BLOCK_C: tl.constexpr, BLOCK_S: tl.constexpr,
):  # fmt: skip
    r"""Write $dx$, given $d\mu$ and $d\sigma$ in `d_stat (2, n, c)`."""
    i, mask_c, at, mask = program_tile(C, S, stride_c, stride_s, BLOCK_C, BLOCK_S)
    mean = tl.load(stat + i, mask=mask_c, other=0.0)
    std = tl.load(stat + nc + i, mask=mask_c, other=1.0)
    mu, factor, beta = load_vec(vec, i, mask_c, nc, eps_out)
    through_mean = tl.load(d_stat + i, mask=mask_c, other=0.0) / S
    through_std = through_deviation(tl.load(d_stat + nc + i, mask=mask_c, other=0.0), std, S)
    value, slope = tl.load(x + at, mask=mask, other=0.0), tl.load(dy + at, mask=mask, other=0.0)
    tile = input_gradient(value, slope, mean, mu, factor, beta, through_mean, through_std, RELU)
    tl.store(dx + at, tile.to(dx.dtype.element_ty), mask=mask)


@lru_cache
def input_gradient_launch(layout: launch.Layout, eps_out: float, relu: bool) -> Launch:
    """Of `x`, `dy`, `stat`, `vec`, `d_stat (2, n, c)` and `dx`: write `dx`."""
    block = launch.tile_block(layout)
    sizes = *layout[1:], eps_out, layout.nc
    return Launch(input_gradient_kernel, launch.tile_grid(layout, block), sizes, {"RELU": relu, **block.options()})


# Networks, as matrix products over all samples


@triton.jit
def squash_slope(raw, squashed, NET: tl.constexpr):
    """Derivative of `squash`."""
    if NET == SIGMA:
        return tl.where(raw > 0, 1.0, 0.0)
    elif NET == BETA:
        return 1.0 - squashed * squashed
    elif NET == GAMMA:
        return squashed * (1.0 - squashed)
    else:
        return tl.full(raw.shape, 1.0, tl.float32)


@triton.jit
def mix_gradients(raw, d_out, stat, logit, c, C, NET: tl.constexpr, STEP: tl.constexpr):
    """Gradients of `mix`: of `raw`, of the logit in every channel (unused without one), and of `stat`."""
    learned = squash(raw, NET)
    d_raw = d_out * squash_slope(raw, learned, NET)
    d_logit, d_stat = d_raw, tl.zeros_like(d_raw)
    if logit is not None:
        gate = load_gate(logit, c, C, STEP)
        mixed = learned
        if NET == MU or NET == SIGMA:
            mixed = learned - stat
            d_stat = (1.0 - gate) * d_out
        d_logit = d_out * mixed * gate * (1.0 - gate)
        d_raw *= gate
    return d_raw, d_logit, d_stat


@triton.jit
def split_at_bounds(d_mu, mu, mean, std, logit, eps):
    r"""Shares of $d\mu_\text{stan}$: of the mixture or, at a bound of `mix_mean`, of $\mu$ and $\sigma$."""
    d_mixed, d_mean, d_std = d_mu, tl.zeros_like(d_mu), tl.zeros_like(d_mu)
    if logit is not None:
        least, most = mean_bounds(mean, std, eps)
        slope = REACH * (1.0 + eps / tl.where(std > 0, std * std, 1.0)) * d_mu
        d_std = tl.where(mu >= most, slope, tl.where(mu <= least, -slope, 0.0))
        is_bound = (mu <= least) | (mu >= most)
        d_mixed, d_mean = tl.where(is_bound, 0.0, d_mu), tl.where(is_bound, d_mu, 0.0)
    return d_mixed, d_mean, d_std


@triton.jit
def native_gradient(d_out, logit, c, C, STAN: tl.constexpr, STEP: tl.constexpr):
    r"""What flows past the standardization networks into the native statistic: $(1 - \lambda)$ of the gradient."""
    if STAN:
        if logit is None:
            return tl.zeros_like(d_out)
        else:
            return (1.0 - load_gate(logit, c, C, STEP)) * d_out
    else:
        return d_out


@triton.jit
def decoder_gradient(
    z, weight, bias, stat, d_out, logit, d_raw_out, d_logit_out, at, mask, n, c, N, H, C,
    NET: tl.constexpr, STEP: tl.constexpr, PRECISION: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Write the gradients of a network's outputs before they are squashed, and of its lambda's logit."""
    raw = decode(z, weight, bias, n, c, N, H, C, PRECISION, BLOCK_K)
    d_raw, d_logit, _ = mix_gradients(raw, d_out, tl.load(stat + at, mask=mask, other=0.0), logit, c, C, NET, STEP)
    if logit is not None:
        d_logit = tl.where(mask, d_logit, 0.0)
        if STEP == 0:  # a sum for every sample and tile of channels
            tl.store(d_logit_out + n * tl.num_programs(1) + tl.program_id(1), tl.sum(d_logit, 1), mask=n < N)
        else:
            tl.store(d_logit_out + at, d_logit, mask=mask)
    tl.store(d_raw_out + at, d_raw, mask=mask)


@triton.jit
def decoder_gradient_kernel(
    stat, vec, hidden, sums, ws, mu_w, mu_b, sigma_w, sigma_b, lambda_mu, lambda_sigma,
    beta_w, beta_b, gamma_w, gamma_b, lambda_beta, lambda_gamma, eps_in, eps_out, N, C, H, R, nc,
    STAN: tl.constexpr, RESCALE: tl.constexpr, STEP: tl.constexpr, PRECISION: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    r"""Write $d\,\mathrm{dec}(\cdot)$ of the four networks, $d\lambda$, and the statistics, $d\gamma$ and $d\beta$."""
    n = tl.program_id(0).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = (n < N)[:, None] & (c < C)[None, :]
    at = n[:, None] * C + c[None, :]
    mean = tl.load(stat + at, mask=mask, other=0.0)
    d_mu, d_sigma, d_gamma, d_beta = load_vec_gradients(vec, sums, at, mask, nc, eps_out, mean)
    z, w = hidden_units(hidden, N, H, R), workspace(ws, N, H, R, nc)
    rows = N * tl.num_programs(1) if STEP == 0 else nc
    net = tl.program_id(2)
    if net == MU:
        tl.store(w.stat + at, mean, mask=mask)
        if STAN:
            mu = tl.load(vec + at, mask=mask, other=0.0)
            std = tl.load(stat + nc + at, mask=mask, other=1.0)
            d_mixed, _, _ = split_at_bounds(d_mu, mu, mean, std, lambda_mu, eps_in)
            decoder_gradient(
                z.mu, mu_w, mu_b, stat, d_mixed, lambda_mu, w.d_raw, w.d_logits, at, mask, n, c, N, H, C,
                MU, STEP, PRECISION, BLOCK_K,
            )  # fmt: skip
    elif net == SIGMA:
        tl.store(w.stat + nc + at, tl.load(stat + nc + at, mask=mask, other=0.0), mask=mask)
        if STAN:
            decoder_gradient(
                z.sigma, sigma_w, sigma_b, stat + nc, d_sigma, lambda_sigma, w.d_raw + nc, w.d_logits + rows,
                at, mask, n, c, N, H, C, SIGMA, STEP, PRECISION, BLOCK_K,
            )  # fmt: skip
    elif net == BETA:
        tl.store(w.d_affine + nc + at, d_beta, mask=mask)
        if RESCALE:
            decoder_gradient(
                z.beta, beta_w, beta_b, stat, d_beta, lambda_beta, w.d_raw + 2 * nc, w.d_logits + 2 * rows,
                at, mask, n, c, N, R, C, BETA, STEP, PRECISION, BLOCK_K,
            )  # fmt: skip
    else:
        tl.store(w.d_affine + at, d_gamma, mask=mask)
        if RESCALE:
            decoder_gradient(
                z.gamma, gamma_w, gamma_b, stat, d_gamma, lambda_gamma, w.d_raw + 3 * nc, w.d_logits + 3 * rows,
                at, mask, n, c, N, R, C, GAMMA, STEP, PRECISION, BLOCK_K,
            )  # fmt: skip


@triton.jit
def hidden_gradient(d_raw, weight, z, active, d_z, n, h, N, H, C, PRECISION: tl.constexpr, BLOCK_K: tl.constexpr):
    r"""Write $dz = 1_{z > 0}\,\mathrm{dec}^T d\text{raw}$ of some hidden units, and $\mathrm{ReLU}(z)$."""
    back = tl.zeros([n.shape[0], h.shape[0]], tl.float32)
    back = multiply(back, d_raw, weight, n, h, N, H, C, 1, H, False, PRECISION, BLOCK_K)
    mask = (n < N)[:, None] & (h < H)[None, :]
    at = n[:, None] * H + h[None, :]
    sums = tl.load(z + at, mask=mask, other=0.0)
    tl.store(d_z + at, tl.where(sums > 0, back, 0.0), mask=mask)
    tl.store(active + at, tl.maximum(sums, 0.0), mask=mask)


@triton.jit
def hidden_gradient_kernel(
    hidden, ws, mu_w, sigma_w, beta_w, gamma_w, N, C, H, R, nc,
    STAN: tl.constexpr, RESCALE: tl.constexpr, PRECISION: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    r"""Write $dz$ and $\mathrm{ReLU}(z)$ of all hidden units."""
    n = tl.program_id(0).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    first = tl.program_id(1) * BLOCK
    h = first + tl.arange(0, BLOCK)
    z, w = hidden_units(hidden, N, H, R), workspace(ws, N, H, R, nc)
    active, d_z = w.hidden, w.d_hidden
    net = tl.program_id(2)
    d_raw = w.d_raw + net * nc
    if net == MU:
        if STAN and first < H:
            hidden_gradient(d_raw, mu_w, z.mu, active.mu, d_z.mu, n, h, N, H, C, PRECISION, BLOCK_K)
    elif net == SIGMA:
        if STAN and first < H:
            hidden_gradient(d_raw, sigma_w, z.sigma, active.sigma, d_z.sigma, n, h, N, H, C, PRECISION, BLOCK_K)
    elif net == BETA:
        if RESCALE and first < R:
            hidden_gradient(d_raw, beta_w, z.beta, active.beta, d_z.beta, n, h, N, R, C, PRECISION, BLOCK_K)
    else:
        if RESCALE and first < R:
            hidden_gradient(d_raw, gamma_w, z.gamma, active.gamma, d_z.gamma, n, h, N, R, C, PRECISION, BLOCK_K)


@triton.jit
def statistic_gradient_kernel(
    stat, vec, sums, d_stat, ws, enc_w, beta_enc_w, gamma_enc_w, lambda_mu, lambda_sigma, eps_in, eps_out,
    N, C, H, R, nc,
    STAN: tl.constexpr, RESCALE: tl.constexpr, STEP: tl.constexpr, PRECISION: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    r"""Write $d\mu$ and $d\sigma$ into `d_stat (2, n, c)`: native share plus $\mathrm{enc}^T dz$ of the networks."""
    n = tl.program_id(0).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = (n < N)[:, None] & (c < C)[None, :]
    at = n[:, None] * C + c[None, :]
    mean = tl.load(stat + at, mask=mask, other=0.0)
    d_mu, d_sigma, _, _ = load_vec_gradients(vec, sums, at, mask, nc, eps_out, mean)
    bound_mean, bound_std = tl.zeros_like(d_mu), tl.zeros_like(d_mu)
    if STAN:
        mu = tl.load(vec + at, mask=mask, other=0.0)
        std = tl.load(stat + nc + at, mask=mask, other=1.0)
        d_mu, bound_mean, bound_std = split_at_bounds(d_mu, mu, mean, std, lambda_mu, eps_in)
    side = tl.program_id(2)
    d_z = workspace(ws, N, H, R, nc).d_hidden
    if side == 0:
        total = native_gradient(d_mu, lambda_mu, c, C, STAN, STEP) + bound_mean
        if RESCALE:
            total = multiply(total, d_z.beta, beta_enc_w, n, c, N, C, R, 1, C, False, PRECISION, BLOCK_K)
    else:
        total = native_gradient(d_sigma, lambda_sigma, c, C, STAN, STEP) + bound_std
        if RESCALE:
            total = multiply(total, d_z.gamma, gamma_enc_w, n, c, N, C, R, 1, C, False, PRECISION, BLOCK_K)
    if STAN:
        total = multiply(total, d_z.mu + side * N * H, enc_w, n, c, N, C, H, 1, C, False, PRECISION, BLOCK_K)
    tl.store(d_stat + side * nc + at, total, mask=mask)


# One program per sample, which reads the activations twice, the second time from the cache. In registers, as in the
# forward pass, input and gradient of the output would leave none to the networks: on an H200 that was slower.


@triton.jit
def load_decoder_rows(weight, h, c, H, C):
    """Weights `(c, h)` of a decoder."""
    mask = (c < C)[:, None] & (h < H)[None, :]
    return tl.load(weight + c[:, None] * H + h[None, :], mask=mask, other=0.0).to(tl.float32)


@triton.jit
def network_gradient(
    stat, raw, d_out, enc_w, dec_w, logit, z, active, d_z, d_raw_out, d_logit_out, n, c, H, C,
    NET: tl.constexpr, STEP: tl.constexpr, BLOCK_H: tl.constexpr,
):  # fmt: skip
    """Gradient `(c,)` of a network's statistic; writes the parts of the workspace that belong to the network."""
    d_raw, d_logit, d_stat = mix_gradients(raw, d_out, stat, logit, c, C, NET, STEP)
    if logit is not None:
        d_logit = tl.where(c < C, d_logit, 0.0)
        if STEP == 0:
            tl.store(d_logit_out + n, tl.sum(d_logit, 0))
        else:
            tl.store(d_logit_out + n * C + c, d_logit, mask=c < C)
    d_raw = tl.where(c < C, d_raw, 0.0)
    tl.store(d_raw_out + n * C + c, d_raw, mask=c < C)
    for first in range(0, H, BLOCK_H):
        h = first + tl.arange(0, BLOCK_H)
        sums = tl.load(z + n * H + h, mask=h < H, other=0.0)
        back = tl.sum(load_decoder_rows(dec_w, h, c, H, C) * d_raw[:, None], 0)
        back = tl.where(sums > 0, back, 0.0)
        d_stat += tl.sum(load_encoder(enc_w, h, c, H, C) * back[:, None], 0)
        tl.store(active + n * H + h, tl.maximum(sums, 0.0), mask=h < H)
        tl.store(d_z + n * H + h, back, mask=h < H)
    return d_stat


@triton.jit
def fused_backward_kernel(
    x, dy, dx, saved, ws,
    enc_w, mu_w, sigma_w, lambda_mu, lambda_sigma,
    beta_enc_w, gamma_enc_w, beta_w, gamma_w, lambda_beta, lambda_gamma,
    gamma_bias, beta_bias, N, C, S, H, R, stride_c, stride_s, eps_in, eps_out, nc,
    STAN: tl.constexpr, RESCALE: tl.constexpr, STEP: tl.constexpr, RELU: tl.constexpr,
    BLOCK_C: tl.constexpr, BLOCK_S: tl.constexpr, BLOCK_H: tl.constexpr, BLOCK_R: tl.constexpr,
    STAGES: tl.constexpr,
):  # fmt: skip
    r"""Write $dx$ of one sample, and its rows of the workspace."""
    n = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, BLOCK_C)
    mask_c = c < C
    i = n * C + c
    base = n * C * S + c * stride_c
    stat, raw = saved, saved + 2 * nc
    mean = tl.load(stat + i, mask=mask_c, other=0.0)
    std = tl.load(stat + nc + i, mask=mask_c, other=0.0)
    mu, sigma = mean, std
    if STAN:
        raw_mu = tl.load(raw + i, mask=mask_c, other=0.0)
        raw_sigma = tl.load(raw + nc + i, mask=mask_c, other=0.0)
        mu = mix_mean(raw_mu, mean, std, lambda_mu, eps_in, c, C, STEP)
        sigma = mix(raw_sigma, std, lambda_sigma, c, C, SIGMA, STEP)
    gamma = tl.load(gamma_bias + c, mask=mask_c, other=0.0).to(tl.float32)
    beta = tl.load(beta_bias + c, mask=mask_c, other=0.0).to(tl.float32)
    if RESCALE:
        raw_beta = tl.load(raw + 2 * nc + i, mask=mask_c, other=0.0)
        raw_gamma = tl.load(raw + 3 * nc + i, mask=mask_c, other=0.0)
        beta += mix(raw_beta, mean, lambda_beta, c, C, BETA, STEP)
        gamma += mix(raw_gamma, std, lambda_gamma, c, C, GAMMA, STEP)
    sigma = tl.where(mask_c, sigma, 1.0)
    factor = gamma / (sigma + eps_out)
    plain, centered = gradient_sums(
        x, dy, None, base, mask_c, mean, mu, factor, beta, S, stride_s, RELU, BLOCK_S, STAGES
    )
    d_mu, d_sigma, d_gamma, d_beta = vec_gradients(plain, centered, mu, sigma, gamma, eps_out, mean)
    z, w = hidden_units(saved + 6 * nc, N, H, R), workspace(ws, N, H, R, nc)
    active, d_z = w.hidden, w.d_hidden
    rows = N if STEP == 0 else nc
    d_mean, d_std = d_mu, d_sigma
    if STAN:
        d_mixed, bound_mean, bound_std = split_at_bounds(d_mu, mu, mean, std, lambda_mu, eps_in)
        d_mean = bound_mean + network_gradient(
            mean, raw_mu, d_mixed, enc_w, mu_w, lambda_mu, z.mu, active.mu, d_z.mu, w.d_raw, w.d_logits,
            n, c, H, C, MU, STEP, BLOCK_H,
        )  # fmt: skip
        d_std = bound_std + network_gradient(
            std, raw_sigma, d_sigma, enc_w, sigma_w, lambda_sigma, z.sigma, active.sigma, d_z.sigma, w.d_raw + nc,
            w.d_logits + rows, n, c, H, C, SIGMA, STEP, BLOCK_H,
        )  # fmt: skip
    if RESCALE:
        d_mean += network_gradient(
            mean, raw_beta, d_beta, beta_enc_w, beta_w, lambda_beta, z.beta, active.beta, d_z.beta, w.d_raw + 2 * nc,
            w.d_logits + 2 * rows, n, c, R, C, BETA, STEP, BLOCK_R,
        )  # fmt: skip
        d_std += network_gradient(
            std, raw_gamma, d_gamma, gamma_enc_w, gamma_w, lambda_gamma, z.gamma, active.gamma, d_z.gamma,
            w.d_raw + 3 * nc, w.d_logits + 3 * rows, n, c, R, C, GAMMA, STEP, BLOCK_R,
        )  # fmt: skip
    tl.store(w.stat + i, mean, mask=mask_c)
    tl.store(w.stat + nc + i, std, mask=mask_c)
    tl.store(w.d_affine + i, d_gamma, mask=mask_c)
    tl.store(w.d_affine + nc + i, d_beta, mask=mask_c)
    through_mean, through_std = d_mean / S, through_deviation(d_std, tl.where(mask_c, std, 1.0), S)
    steps = tl.cdiv(S, BLOCK_S)
    for step in tl.range(0, steps, num_stages=STAGES):
        s = (steps - 1 - step) * BLOCK_S + tl.arange(0, BLOCK_S)
        mask = mask_c[:, None] & (s < S)[None, :]
        at = base[:, None] + (s * stride_s)[None, :]
        value, slope = tl.load(x + at, mask=mask, other=0.0), tl.load(dy + at, mask=mask, other=0.0)
        tile = input_gradient(value, slope, mean, mu, factor, beta, through_mean, through_std, RELU)
        tl.store(dx + at, tile.to(dx.dtype.element_ty), mask=mask)


# Gradients of the parameters


@triton.jit
def sample_product(
    acc, ws, left, right, i, j, I, J, begin, end, BLOCK_N: tl.constexpr, PRECISION: tl.constexpr
):  # fmt: skip
    """Add `left^T right` of a range of samples to a tile: `(n, i)` and `(n, j)` at those offsets of the workspace."""
    for first in range(begin, end, BLOCK_N):
        n = first + tl.arange(0, BLOCK_N)
        a = tl.load(ws + left + i[:, None] + n[None, :] * I, mask=(i < I)[:, None] & (n < end)[None, :], other=0.0)
        b = tl.load(ws + right + n[:, None] * J + j[None, :], mask=(n < end)[:, None] & (j < J)[None, :], other=0.0)
        acc = tl.dot(a, b, acc, input_precision=PRECISION)
    return acc


@triton.jit
def weight_gradient_kernel(
    ws, out, N, C, H, R, L, logit_rows, nc, share, logit_share, size,
    STAN: tl.constexpr, RESCALE: tl.constexpr, ENCODERS: tl.constexpr,
    TILE: tl.constexpr, BLOCK_N: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    r"""Write the gradients of all parameters, summed over a share of the samples.

    Those of decoders are $\sum d\text{raw}\,\mathrm{ReLU}(z)^T$, of encoders $\sum dz\,\mu^T$ and $\sum dz\,\sigma^T$,
    added where an encoder reads both; all others are plain sums.

    A program takes one tile of one matrix or one stretch of one vector, in the order of `flat_params`:

        mu_w, sigma_w (2, c, h)   enc_w (h, c)   beta_w, gamma_w (2, c, r)   encoder(s) of the rescaling (1 or 2, r, c)
        mu_b, sigma_b, beta_b, gamma_b, gamma_bias, beta_bias (6, c)   enc_b (h)   rescaling's (1 or 2, r)
        logits (4, 1 or c)

    The second axis of the grid is a share of the samples, whose sums have a row of `out` of their own.
    """
    pid = tl.program_id(0)
    part = tl.program_id(1)
    begin, end = part * share, tl.minimum(part * share + share, N)
    out += part * size
    tiles_c, tiles_h, tiles_r = tl.cdiv(C, TILE), tl.cdiv(H, TILE), tl.cdiv(R, TILE)
    stan, rescale = tiles_c * tiles_h, tiles_c * tiles_r
    stan_tiles = 3 * stan if STAN else 0
    matrices = stan_tiles + (2 + ENCODERS) * rescale if RESCALE else stan_tiles
    w = workspace(0 * nc, N, H, R, nc)  # offsets
    hidden, d_z = w.hidden, w.d_hidden
    out_r = 3 * C * H
    out_v = out_r + (2 + ENCODERS) * C * R
    span = tl.arange(0, TILE)
    if pid < matrices:
        if pid < stan_tiles:
            net = pid // stan
            tile = pid % stan
            offset = net * C * H
            if net < 2:
                left, right, second, second_right = w.d_raw + net * nc, hidden.mu + net * N * H, -1, -1
                I, J = C, H
            else:  # the encoder, which reads both statistics
                left, right, second, second_right = d_z.mu, w.stat, d_z.sigma, nc
                I, J = H, C
        else:
            rest = pid - stan_tiles
            net = rest // rescale
            tile = rest % rescale
            offset = out_r + net * C * R
            if net < 2:
                left, right, second, second_right = w.d_raw + (2 + net) * nc, hidden.beta + net * N * R, -1, -1
                I, J = C, R
            else:
                which = net - 2
                left, right, second, second_right = d_z.beta + which * N * R, which * nc, -1, -1
                if ENCODERS == 1:
                    second, second_right = d_z.gamma, nc
                I, J = R, C
        tiles_j = tl.cdiv(J, TILE)
        i, j = (tile // tiles_j) * TILE + span, (tile % tiles_j) * TILE + span
        acc = tl.zeros([TILE, TILE], tl.float32)
        acc = sample_product(acc, ws, left, right, i, j, I, J, begin, end, BLOCK_N, PRECISION)
        if second >= 0:
            acc = sample_product(acc, ws, second, second_right, i, j, I, J, begin, end, BLOCK_N, PRECISION)
        tl.store(out + offset + i[:, None] * J + j[None, :], acc, mask=(i < I)[:, None] & (j < J)[None, :])
    else:
        rest = pid - matrices
        first_logit = 6 * tiles_c + tiles_h + ENCODERS * tiles_r
        if rest < 6 * tiles_c:  # d_raw and d_affine are neighbors
            which = rest // tiles_c
            left, second, I, offset, tile = w.d_raw + which * nc, -1, C, out_v + which * C, rest % tiles_c
        elif rest < 6 * tiles_c + tiles_h:
            left, second, I, offset, tile = d_z.mu, d_z.sigma, H, out_v + 6 * C, rest - 6 * tiles_c
        elif rest < first_logit:
            which = (rest - 6 * tiles_c - tiles_h) // tiles_r
            tile = (rest - 6 * tiles_c - tiles_h) % tiles_r
            left, second, I, offset = d_z.beta + which * N * R, -1, R, out_v + 6 * C + H + which * R
            if ENCODERS == 1:
                second = d_z.gamma
        else:
            tiles_l = tl.cdiv(L, TILE)
            which = (rest - first_logit) // tiles_l
            tile = (rest - first_logit) % tiles_l
            left, second, I = w.d_logits + which * logit_rows * L, -1, L
            offset = out_v + 6 * C + H + ENCODERS * R + which * L
        i = tile * TILE + span
        total = tl.zeros([TILE, BLOCK_N], tl.float32)
        if rest >= first_logit and L == 1:  # one number of many rows: the whole tile is rows
            last = tl.minimum(part * logit_share + logit_share, logit_rows)
            for first in range(part * logit_share, last, TILE * BLOCK_N):
                row = first + span[:, None] * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
                total += tl.load(ws + left + row, mask=row < last, other=0.0)
            tl.store(out + offset, tl.sum(tl.sum(total, 1), 0))
        else:
            for first in range(begin, end, BLOCK_N):
                n = first + tl.arange(0, BLOCK_N)
                at = i[:, None] + n[None, :] * I
                inside = (i < I)[:, None] & (n < end)[None, :]
                total += tl.load(ws + left + at, mask=inside, other=0.0)
                if second >= 0:
                    total += tl.load(ws + second + at, mask=inside, other=0.0)
            tl.store(out + offset + i, tl.sum(total, 1), mask=i < I)


@triton.jit
def sum_parts_kernel(parts, out, size, PARTS: tl.constexpr, BLOCK: tl.constexpr):
    """Write the sum of the partial sums, added one after the other."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.float32)
    for part in tl.static_range(PARTS):
        total += tl.load(parts + part * size + at, mask=at < size, other=0.0)
    tl.store(out + at, total, mask=at < size)
