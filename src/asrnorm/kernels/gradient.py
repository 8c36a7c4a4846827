r"""The gradients at the level of one channel of one sample, shared by the blocked and the per-sample kernels.

With $z = (x - \mu) \gamma / (\sigma + \epsilon) + \beta$ and, over the positions, $S = \sum dz$,
$T = \sum dz (x - \bar x)$:
$d\beta = S$, $d\gamma = (T + (\bar x - \mu) S) / (\sigma + \epsilon)$, $d\mu = -f S$,
$d\sigma = -f\, d\gamma$ where $f = \gamma / (\sigma + \epsilon)$.
"""

import triton
import triton.language as tl

MU: tl.constexpr = tl.constexpr(0)
SIGMA: tl.constexpr = tl.constexpr(1)
BETA: tl.constexpr = tl.constexpr(2)
GAMMA: tl.constexpr = tl.constexpr(3)


@triton.jit
def vec_gradients(vec, sums, at, mask, nc, eps_out, mean):
    """Return the gradients of mu_stan, sigma_stan, gamma and beta, given the sums over the positions."""
    plain = tl.load(sums + at, mask=mask, other=0.0)
    centered = tl.load(sums + nc + at, mask=mask, other=0.0)
    mu = tl.load(vec + at, mask=mask, other=0.0)
    sigma = tl.load(vec + nc + at, mask=mask, other=1.0)
    gamma = tl.load(vec + 2 * nc + at, mask=mask, other=0.0)
    return gradients_of(plain, centered, mu, sigma, gamma, eps_out, mean)


@triton.jit
def gradients_of(plain, centered, mu, sigma, gamma, eps_out, mean):
    """The four gradients from the two sums, elementwise."""
    inverse = 1.0 / (sigma + eps_out)
    d_gamma = (centered + (mean - mu) * plain) * inverse
    factor = gamma * inverse
    return -factor * plain, -factor * d_gamma, d_gamma, plain


@triton.jit
def squash(raw, NET: tl.constexpr):
    """What a network's last layer goes through: nothing, ReLU, tanh or sigmoid."""
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
def load_gate(logit, c, mask, STEP: tl.constexpr):
    """The squashed lambda of every channel; `STEP` is 0 where one lambda serves them all."""
    raw = tl.load(logit + c * STEP, mask=mask, other=0.0).to(tl.float32)
    return 1.0 / (1.0 + tl.exp(-raw))
