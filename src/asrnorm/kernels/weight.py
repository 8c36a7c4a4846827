"""Gradients of the parameters: sums over the samples, all of a layer's in one launch, no atomics.

Many samples are summed in parts by programs of their own, and the parts by a second launch, in their order.

Two flat buffers. The workspace `ws` is what the backward kernels leave, a row a sample in every part:

    mean, std           (2, n, c)       mu_dec, sigma_dec, beta_dec, gamma_dec deltas  (4, n, c)
    d gamma, d beta     (2, n, c)       hidden of mu, sigma (2, n, h), their gradients (2, n, h)
    hidden of beta, gamma (2, n, r), their gradients (2, n, r)      gradients of the logits (4, rows, 1 or c)

`out` is what `asrnorm.kernels.flat_params.split_gradients` reads:

    mu_w, sigma_w (2, c, h)   enc_w (h, c)   beta_w, gamma_w (2, c, r)   encoder(s) of the rescaling (1 or 2, r, c)
    mu_b, sigma_b, beta_b, gamma_b, gamma_bias, beta_bias (6, c)   enc_b (h)   rescaling's (1 or 2, r)
    logits (4, 1 or c)
"""

import triton
import triton.language as tl


@triton.jit
def product(
    acc, ws, left, right, i, j, I, J, begin, N, BLOCK_N: tl.constexpr, PRECISION: tl.constexpr
):  # fmt: skip
    """Add `left^T right`, `(n, i)` and `(n, j)` at those offsets of the workspace, to a tile; samples from `begin`."""
    for first in range(begin, N, BLOCK_N):
        n = first + tl.arange(0, BLOCK_N)
        a = tl.load(ws + left + i[:, None] + n[None, :] * I, mask=(i < I)[:, None] & (n < N)[None, :], other=0.0)
        b = tl.load(ws + right + n[:, None] * J + j[None, :], mask=(n < N)[:, None] & (j < J)[None, :], other=0.0)
        acc = tl.dot(a, b, acc, input_precision=PRECISION)
    return acc


@triton.jit
def weight_kernel(
    ws, out, N, C, H, R, L, logit_rows, nc, share, logit_share, size,
    STAN: tl.constexpr, RESCALE: tl.constexpr, SHARED: tl.constexpr,
    TILE: tl.constexpr, BLOCK_N: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """One tile of one matrix a program, then one stretch of one vector a program; a share of the samples each."""
    pid = tl.program_id(0)
    part = tl.program_id(1)
    begin, end = part * share, tl.minimum(part * share + share, N)
    out += part * size
    tiles_c, tiles_h, tiles_r = tl.cdiv(C, TILE), tl.cdiv(H, TILE), tl.cdiv(R, TILE)
    stan, rescale = tiles_c * tiles_h, tiles_c * tiles_r
    encoders = 1 if SHARED else 2
    matrices = 0
    if STAN:
        matrices += 3 * stan
    if RESCALE:
        matrices += (2 + encoders) * rescale
    # Sizes of the parts that come before others, in `ws` and in `out`.
    hidden = 8 * nc
    hidden_r = hidden + 4 * N * H
    logits = hidden_r + 4 * N * R
    out_r = 3 * C * H
    out_v = out_r + (2 + encoders) * C * R
    span = tl.arange(0, TILE)
    if pid < matrices:
        stan_tiles = 3 * stan if STAN else 0
        if pid < stan_tiles:
            net = pid // stan
            tile = pid % stan
            if net < 2:  # a decoder: delta^T hidden
                left, right, second, second_right = 2 * nc + net * nc, hidden + net * N * H, -1, -1
                I, J, place = C, H, net * C * H
            else:  # the encoder, which reads both statistics
                left, right, second, second_right = hidden + 2 * N * H, 0 * nc, hidden + 3 * N * H, nc
                I, J, place = H, C, 2 * C * H
        else:
            rest = pid - stan_tiles
            net = rest // rescale
            tile = rest % rescale
            if net < 2:
                left, right, second, second_right = 4 * nc + net * nc, hidden_r + net * N * R, -1, -1
                I, J, place = C, R, out_r + net * C * R
            else:
                which = net - 2
                left, right, second, second_right = hidden_r + (2 + which) * N * R, which * nc, -1, -1
                if SHARED:
                    second, second_right = hidden_r + 3 * N * R, nc
                I, J, place = R, C, out_r + net * C * R
        tiles_j = tl.cdiv(J, TILE)
        i, j = (tile // tiles_j) * TILE + span, (tile % tiles_j) * TILE + span
        acc = tl.zeros([TILE, TILE], tl.float32)
        acc = product(acc, ws, left, right, i, j, I, J, begin, end, BLOCK_N, PRECISION)
        if second >= 0:
            acc = product(acc, ws, second, second_right, i, j, I, J, begin, end, BLOCK_N, PRECISION)
        tl.store(out + place + i[:, None] * J + j[None, :], acc, mask=(i < I)[:, None] & (j < J)[None, :])
    else:
        rest = pid - matrices
        first_logit = 6 * tiles_c + tiles_h + encoders * tiles_r
        if rest < 6 * tiles_c:
            which = rest // tiles_c
            left, second, I, place, tile = 2 * nc + which * nc, -1, C, out_v + which * C, rest % tiles_c
        elif rest < 6 * tiles_c + tiles_h:
            left, second, I, place, tile = hidden + 2 * N * H, hidden + 3 * N * H, H, out_v + 6 * C, rest - 6 * tiles_c
        elif rest < first_logit:
            which = (rest - 6 * tiles_c - tiles_h) // tiles_r
            tile = (rest - 6 * tiles_c - tiles_h) % tiles_r
            left, second, I, place = hidden_r + (2 + which) * N * R, -1, R, out_v + 6 * C + H + which * R
            if SHARED:
                second = hidden_r + 3 * N * R
        else:
            tiles_l = tl.cdiv(L, TILE)
            which = (rest - first_logit) // tiles_l
            tile = (rest - first_logit) % tiles_l
            left, second, I = logits + which * logit_rows * L, -1, L
            place = out_v + 6 * C + H + encoders * R + which * L
        i = tile * TILE + span
        if rest >= first_logit and L == 1:  # one number of many rows: the whole tile is rows
            total = tl.zeros([TILE, BLOCK_N], tl.float32)
            last = tl.minimum(part * logit_share + logit_share, logit_rows)
            for first in range(part * logit_share, last, TILE * BLOCK_N):
                row = first + span[:, None] * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
                total += tl.load(ws + left + row, mask=row < last, other=0.0)
            tl.store(out + place, tl.sum(tl.sum(total, 1), 0))
        else:
            total = tl.zeros([TILE, BLOCK_N], tl.float32)
            for first in range(begin, end, BLOCK_N):
                n = first + tl.arange(0, BLOCK_N)
                at = i[:, None] + n[None, :] * I
                inside = (i < I)[:, None] & (n < end)[None, :]
                total += tl.load(ws + left + at, mask=inside, other=0.0)
                if second >= 0:
                    total += tl.load(ws + second + at, mask=inside, other=0.0)
            tl.store(out + place + i, tl.sum(total, 1), mask=i < I)


@triton.jit
def join_kernel(parts, out, size, PARTS: tl.constexpr, BLOCK: tl.constexpr):
    """Add up the parts, one after the other."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.float32)
    for part in tl.static_range(PARTS):
        total += tl.load(parts + part * size + at, mask=at < size, other=0.0)
    tl.store(out + at, total, mask=at < size)
