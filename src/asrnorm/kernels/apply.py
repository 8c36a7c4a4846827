r"""The passes over whole activations: standardize and rescale; the sums of the backward pass; the input's gradient.

`vec (4, n, c)` holds mu_stan, sigma_stan, gamma and beta of every channel of every sample.
"""

import triton
import triton.language as tl


@triton.jit
def load_vec(vec, at, mask, nc, eps_out):
    """Return what is subtracted, the factor `gamma / (sigma_stan + eps)`, and what is added."""
    mu = tl.load(vec + at, mask=mask, other=0.0)
    sigma = tl.load(vec + nc + at, mask=mask, other=1.0)
    gamma = tl.load(vec + 2 * nc + at, mask=mask, other=0.0)
    beta = tl.load(vec + 3 * nc + at, mask=mask, other=0.0)
    return mu, gamma / (sigma + eps_out), beta


@triton.jit
def rescaled(x, mu, factor, beta):
    """`(x - mu) * factor + beta` on a tile `(channels, positions)`; not a * x + b, which cancels far from zero."""
    return (x - mu[:, None]) * factor[:, None] + beta[:, None]


@triton.jit
def through_relu(dy, z, RELU: tl.constexpr):
    """The gradient before the ReLU; a NaN lets it pass, as in PyTorch."""
    return tl.where(z <= 0, 0.0, dy) if RELU else dy


@triton.jit
def apply_kernel(
    x, vec, y, C, S, stride_c, stride_s, eps_out, nc, RELU: tl.constexpr, BLOCK_C: tl.constexpr, BLOCK_S: tl.constexpr
):
    """Write the output; a program takes one tile."""
    n = tl.program_id(0).to(tl.int64)
    c = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    s = tl.program_id(2) * BLOCK_S + tl.arange(0, BLOCK_S)
    mask = (c < C)[:, None] & (s < S)[None, :]
    at = n * C * S + (c * stride_c)[:, None] + (s * stride_s)[None, :]
    mu, factor, beta = load_vec(vec, n * C + c, c < C, nc, eps_out)
    z = rescaled(tl.load(x + at, mask=mask, other=0.0).to(tl.float32), mu, factor, beta)
    if RELU:
        z = tl.where(z < 0, 0.0, z)
    tl.store(y + at, z.to(y.dtype.element_ty), mask=mask)


@triton.jit
def gradient_sums(
    x, dy, base, mask_c, mean, mu, factor, beta, S, stride_s,
    RELU: tl.constexpr, BLOCK_S: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Sum over the positions of the gradient, and of the gradient times `x - mean`."""
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
        centered += slope * (value - mean[:, None])
    return tl.sum(plain, 1), tl.sum(centered, 1)


@triton.jit
def sum_kernel(
    x,
    dy,
    stat,
    vec,
    sums,
    C,
    S,
    stride_c,
    stride_s,
    eps_out,
    nc,
    RELU: tl.constexpr,
    BLOCK_C: tl.constexpr,
    BLOCK_S: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Write both sums into `sums (2, n, c)`; a program takes some channels of a sample."""
    n = tl.program_id(0).to(tl.int64)
    c = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    at = n * C + c
    mean = tl.load(stat + at, mask=c < C, other=0.0)
    mu, factor, beta = load_vec(vec, at, c < C, nc, eps_out)
    base = n * C * S + c * stride_c
    plain, centered = gradient_sums(x, dy, base, c < C, mean, mu, factor, beta, S, stride_s, RELU, BLOCK_S, STAGES)
    tl.store(sums + at, plain, mask=c < C)
    tl.store(sums + nc + at, centered, mask=c < C)


@triton.jit
def input_gradient(slope, value, mean, factor, through_mean, through_std):
    """`factor * dy`, and what flows back through the mean and the standard deviation of the channel."""
    return factor[:, None] * slope + through_mean[:, None] + through_std[:, None] * (value - mean[:, None])


@triton.jit
def input_kernel(
    x,
    dy,
    stat,
    vec,
    back,
    dx,
    C,
    S,
    stride_c,
    stride_s,
    eps_out,
    nc,
    RELU: tl.constexpr,
    BLOCK_C: tl.constexpr,
    BLOCK_S: tl.constexpr,
):
    """Write the input's gradient; `back (2, n, c)` is the gradient of mean and std. A program takes one tile."""
    n = tl.program_id(0).to(tl.int64)
    c = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    s = tl.program_id(2) * BLOCK_S + tl.arange(0, BLOCK_S)
    mask = (c < C)[:, None] & (s < S)[None, :]
    nc_at = n * C + c
    at = n * C * S + (c * stride_c)[:, None] + (s * stride_s)[None, :]
    mean = tl.load(stat + nc_at, mask=c < C, other=0.0)
    std = tl.load(stat + nc + nc_at, mask=c < C, other=1.0)
    mu, factor, beta = load_vec(vec, nc_at, c < C, nc, eps_out)
    through_mean = tl.load(back + nc_at, mask=c < C, other=0.0) / S
    through_std = tl.load(back + nc + nc_at, mask=c < C, other=0.0) / (S * std)
    value = tl.load(x + at, mask=mask, other=0.0).to(tl.float32)
    slope = tl.load(dy + at, mask=mask, other=0.0).to(tl.float32)
    slope = through_relu(slope, rescaled(value, mu, factor, beta), RELU)
    dx_tile = input_gradient(slope, value, mean, factor, through_mean, through_std)
    tl.store(dx + at, dx_tile.to(dx.dtype.element_ty), mask=mask)
