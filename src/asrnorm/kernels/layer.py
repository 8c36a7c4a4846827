"""The order of the launches of a layer: forward, backward, and the gradients of its parameters.

Two ways to the same numbers: a program a sample (`sample.py`) where the weights are small and samples not few, and
otherwise passes over the activations with the networks between them (`moment.py`, `network.py`, `apply.py`).
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from asrnorm.kernels import launch
from asrnorm.kernels.apply import apply_kernel, input_kernel, sum_kernel
from asrnorm.kernels.flat_params import Weights, flat_size
from asrnorm.kernels.moment import moment_kernel
from asrnorm.kernels.network import decode_kernel, encode_kernel
from asrnorm.kernels.network_back import delta_kernel, hidden_kernel, statistic_kernel
from asrnorm.kernels.sample import sample_kernel
from asrnorm.kernels.sample_back import sample_back_kernel
from asrnorm.kernels.weight import join_kernel, weight_kernel

_FORWARD_WARPS, _BACKWARD_WARPS = 16, 8
_ROW_WARPS, _ROW_CHANNELS = 32, 64
_CROWDED_WARPS = 4  # on the way back of many samples, whose programs wait for each other
_TILE = 32
_MOST_WEIGHTS = 8192  # of a matrix that a sample's program holds at a time
_WEIGHTS = 1024  # the same by warp
_TERMS = 32  # of the sums of a network's matrix products that are read at a time
_SAMPLES = 32  # likewise of the sums over samples
_JOINED = 512  # numbers of which a program adds up the parts


class Shape(NamedTuple):
    """Sizes and switches that every kernel of a layer is launched with."""

    p: launch.Planes
    H: int
    R: int
    L: int
    stan: bool
    rescale: bool
    step: int
    itemsize: int

    @classmethod
    def of(cls, x: Tensor, w: Weights) -> "Shape":
        """Return the sizes of a layer on `x`."""
        logits = w.logits
        channels_many = logits > 1
        return cls(
            launch.planes(x), w.hidden, w.rescale_hidden, logits, w.enc_w is not None, w.beta_enc_w is not None,
            int(channels_many), x.itemsize,
        )  # fmt: skip

    @property
    def per_sample(self) -> bool:
        """Whether a program takes a whole sample."""
        return self.p.channels <= launch.SAMPLE_CHANNELS and not launch.spreads(self.p, self.itemsize)

    @property
    def per_sample_back(self) -> bool:
        """Whether a program takes a whole sample on the way back too."""
        return self.per_sample and not launch.returns_in_passes(self.p)

    @property
    def logit_rows(self) -> int:
        """Rows of the gradients of the lambdas: a sample each, or a sample and a tile of channels."""
        of_sample = self.per_sample_back or self.step
        return self.p.num if of_sample else self.p.num * launch.count_blocks(self.p.channels, _TILE)

    def sizes(self) -> tuple[int, int, int, int, int]:
        """Return the sizes as the kernels of the networks take them."""
        return self.p.num, self.p.channels, self.H, self.R, self.nc

    @property
    def nc(self) -> int:
        """Number of channels of all samples together."""
        return self.p.num * self.p.channels

    def sample_options(self, relu: bool) -> dict[str, Any]:
        """Return the options of the kernel that takes a whole sample."""
        held = launch.held_block(self.p, self.itemsize, _FORWARD_WARPS)
        # Where a channel's positions lie in a row, longer rows of a tile are worth more warps, until registers run out.
        in_rows = self.p.stride_s == 1 and self.p.channels <= _ROW_CHANNELS
        most_warps = _ROW_WARPS if in_rows else _FORWARD_WARPS
        block = held.block if held else launch.sample_block(self.p, most_warps)
        options = self._block_options(block, min(_MOST_WEIGHTS, _WEIGHTS * block.warps), relu)
        return {
            **options, "TILES": held.tiles if held else 0, "FULL": held is not None and held.full,
            "RAW": self.per_sample_back,
            "BLOCKS_H": launch.count_blocks(self.H, options["BLOCK_H"]),
            "BLOCKS_R": launch.count_blocks(self.R, options["BLOCK_R"]),
        }  # fmt: skip

    def sample_back_options(self, relu: bool) -> dict[str, Any]:
        """Return the options of the kernel that takes a whole sample back."""
        most_warps = _BACKWARD_WARPS if self.p.num < launch.MANY_SAMPLES else _CROWDED_WARPS
        block = launch.sample_block(self.p, most_warps)
        return {**self._block_options(block, _MOST_WEIGHTS, relu), "STAGES": launch.stages(self.p, block)}

    def _block_options(self, block: launch.Block, weights: int, relu: bool) -> dict[str, Any]:
        rows = max(1, weights // block.channels)
        return {
            "STAN": self.stan, "RESCALE": self.rescale, "STEP": self.step, "RELU": relu,
            "BLOCK_C": block.channels, "BLOCK_S": block.positions, "num_warps": block.warps,
            "BLOCK_H": min(rows, launch.power_of_two(self.H)), "BLOCK_R": min(rows, launch.power_of_two(self.R)),
        }  # fmt: skip

    @property
    def precision(self) -> str:
        """How the products of the wide networks are computed."""
        # Three tensor-core products carry 22 bits of each factor, next to which a 16-bit output's rounding is large.
        return "ieee" if self.itemsize == 4 else "tf32x3"

    def network_options(self) -> dict[str, Any]:
        """Return the options of the kernels of the networks."""
        options = {"STAN": self.stan, "RESCALE": self.rescale, "PRECISION": self.precision}
        return {**options, "BLOCK_N": self.rows, "BLOCK": _TILE, "BLOCK_K": _TERMS, "num_warps": 4}

    @property
    def rows(self) -> int:
        """Samples of a tile of the networks' matrices; on tensor cores more and smaller tiles are faster."""
        return 32 if self.precision == "ieee" else 16

    def network_grid(self, width: int) -> tuple[int, int]:
        """Return the tiles of a matrix of all samples that is so wide."""
        return launch.count_blocks(self.p.num, self.rows), launch.count_blocks(width, _TILE)


Saved = tuple[Tensor, Tensor, Tensor]
"""Statistics `(2, n, c)`; `(4, n, c)`: outputs of the networks where a program takes a sample back, else what was made
of them; what the hidden units sum up, `(2, n, h)` and `(2, n, r)` in one flat tensor."""


@launch.on_its_device
def forward(x: Tensor, w: Weights, eps_in: float, eps_out: float, relu: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the output, and what the way back needs."""
    x = launch.dense(x)
    shape = Shape.of(x, w)
    p, nc = shape.p, shape.nc
    y = torch.empty_like(x)
    stat = x.new_empty((2, p.num, p.channels), dtype=torch.float32)
    vec = x.new_empty((4, p.num, p.channels), dtype=torch.float32)
    hidden = x.new_empty(2 * p.num * (shape.H + shape.R), dtype=torch.float32)
    if not x.numel():
        return y, stat, vec, hidden
    if shape.per_sample:
        sample_kernel[(p.num,)](
            x, y, stat, vec, hidden, *w.networks(), w.gamma_bias, w.beta_bias,
            p.num, p.channels, p.positions, shape.H, shape.R, p.stride_c, p.stride_s, eps_in, eps_out, nc,
            **shape.sample_options(relu),
        )  # fmt: skip
        return y, stat, vec, hidden
    moments(x, p, stat, eps_in)
    _encode(stat, hidden, shape, w)
    decode_kernel[(*shape.network_grid(p.channels), 4)](
        stat, hidden, vec, w.mu_w, w.mu_b, w.sigma_w, w.sigma_b, w.lambda_mu, w.lambda_sigma,
        w.beta_w, w.beta_b, w.gamma_w, w.gamma_b, w.lambda_beta, w.lambda_gamma, w.gamma_bias, w.beta_bias,
        *shape.sizes(), STEP=shape.step, **shape.network_options(),
    )  # fmt: skip
    rescale(x, p, vec, y, eps_out, relu)
    return y, stat, vec, hidden


@launch.on_its_device
def backward(
    dy: Tensor, x: Tensor, saved: Saved, w: Weights, eps_out: float, relu: bool, *, of_x_alone: bool = False
) -> tuple[Tensor, Tensor | None]:
    """Return the gradient of `x`, and of all parameters in one flat tensor (see `weight.py`) unless of `x` alone."""
    stat, vec, hidden = saved
    x = launch.dense(x)
    dy = launch.dense_like(dy, x)
    shape = Shape.of(x, w)
    p, nc = shape.p, shape.nc
    dx = torch.empty_like(x)
    floats = 8 * nc + 4 * p.num * (shape.H + shape.R) + 4 * shape.logit_rows * shape.L
    ws = x.new_empty(floats, dtype=torch.float32)
    if not x.numel():
        return dx, x.new_zeros(flat_size(w), dtype=torch.float32)
    if shape.per_sample_back:
        n = w.both_encoders()
        sample_back_kernel[(p.num,)](
            x, dy, dx, stat, vec, hidden, ws, n.enc_w, n.mu_w, n.sigma_w, n.lambda_mu, n.lambda_sigma,
            n.beta_enc_w, n.gamma_enc_w, n.beta_w, n.gamma_w, n.lambda_beta, n.lambda_gamma, n.gamma_bias, n.beta_bias,
            p.num, p.channels, p.positions, shape.H, shape.R, p.stride_c, p.stride_s, eps_out, nc,
            **shape.sample_back_options(relu),
        )  # fmt: skip
    else:
        sums, back = torch.empty_like(stat), torch.empty_like(stat)
        gradient_sums(x, dy, p, stat, vec, sums, eps_out, relu)
        _networks_back(saved, sums, back, ws, shape, w, eps_out)
        input_gradient(x, dy, p, stat, vec, back, dx, eps_out, relu)
    return dx, None if of_x_alone else _weight_gradients(ws, shape, w)


def _encode(stat: Tensor, hidden: Tensor, shape: Shape, w: Weights) -> None:
    n = w.both_encoders()
    encode_kernel[(*shape.network_grid(max(shape.H, shape.R)), 4)](
        stat, hidden, n.enc_w, n.enc_b, n.beta_enc_w, n.beta_enc_b, n.gamma_enc_w, n.gamma_enc_b, *shape.sizes(),
        **shape.network_options(),
    )  # fmt: skip


def _networks_back(
    saved: Saved, sums: Tensor, back: Tensor, ws: Tensor, shape: Shape, w: Weights, eps_out: float
) -> None:
    """Fill `back` with the gradient of mean and std, and `ws` with what the gradients of the weights are made of."""
    stat, vec, hidden = saved
    channels, n = shape.network_grid(shape.p.channels), w.both_encoders()
    delta_kernel[(*channels, 4)](
        stat, vec, hidden, sums, ws, n.mu_w, n.mu_b, n.sigma_w, n.sigma_b, n.lambda_mu, n.lambda_sigma,
        n.beta_w, n.beta_b, n.gamma_w, n.gamma_b, n.lambda_beta, n.lambda_gamma, eps_out, *shape.sizes(),
        STEP=shape.step, **shape.network_options(),
    )  # fmt: skip
    hidden_kernel[(*shape.network_grid(max(shape.H, shape.R)), 4)](
        hidden, ws, n.mu_w, n.sigma_w, n.beta_w, n.gamma_w, *shape.sizes(), **shape.network_options()
    )
    statistic_kernel[(*channels, 2)](
        stat, vec, sums, back, ws, n.enc_w, n.beta_enc_w, n.gamma_enc_w, n.lambda_mu, n.lambda_sigma, eps_out,
        *shape.sizes(), STEP=shape.step, **shape.network_options(),
    )  # fmt: skip


def moments(x: Tensor, p: launch.Planes, stat: Tensor, eps: float) -> None:
    """Fill `stat` with the mean and standard deviation of every channel of every sample."""
    block = launch.sweep_block(p)
    grid = (p.num, launch.count_blocks(p.channels, block.channels))
    moment_kernel[grid](
        x, stat, p.channels, p.positions, p.stride_c, p.stride_s, eps, p.num * p.channels,
        BLOCK_C=block.channels, BLOCK_S=block.positions, ONCE=p.positions <= block.positions, num_warps=block.warps,
    )  # fmt: skip


def rescale(x: Tensor, p: launch.Planes, vec: Tensor, y: Tensor, eps_out: float, relu: bool) -> None:
    """Fill `y`: `x` standardized and rescaled by `vec`."""
    block = launch.tile_block(p)
    apply_kernel[tiles(p, block)](
        x, vec, y, p.channels, p.positions, p.stride_c, p.stride_s, eps_out, p.num * p.channels,
        RELU=relu, BLOCK_C=block.channels, BLOCK_S=block.positions, num_warps=block.warps,
    )  # fmt: skip


def gradient_sums(
    x: Tensor, dy: Tensor, p: launch.Planes, stat: Tensor, vec: Tensor, sums: Tensor, eps_out: float, relu: bool
) -> None:
    """Fill `sums` with what the gradients of `vec` are made of."""
    block = launch.sweep_block(p)
    sum_kernel[(p.num, launch.count_blocks(p.channels, block.channels))](
        x, dy, stat, vec, sums, p.channels, p.positions, p.stride_c, p.stride_s, eps_out, p.num * p.channels,
        RELU=relu, BLOCK_C=block.channels, BLOCK_S=block.positions,
        STAGES=launch.stages(p, block), num_warps=block.warps,
    )  # fmt: skip


def input_gradient(
    x: Tensor, dy: Tensor, p: launch.Planes, stat: Tensor, vec: Tensor, back: Tensor, dx: Tensor, eps_out: float,
    relu: bool,
) -> None:  # fmt: skip
    """Fill `dx`, given the gradient `back` of mean and standard deviation."""
    block = launch.tile_block(p)
    input_kernel[tiles(p, block)](
        x, dy, stat, vec, back, dx, p.channels, p.positions, p.stride_c, p.stride_s, eps_out, p.num * p.channels,
        RELU=relu, BLOCK_C=block.channels, BLOCK_S=block.positions, num_warps=block.warps,
    )  # fmt: skip


def tiles(p: launch.Planes, block: launch.Block) -> tuple[int, int, int]:
    """Return a grid of one tile a program."""
    return p.num, launch.count_blocks(p.channels, block.channels), launch.count_blocks(p.positions, block.positions)


def _weight_gradients(ws: Tensor, shape: Shape, w: Weights) -> Tensor:
    C, H, R, L = shape.p.channels, shape.H, shape.R, shape.L
    encoders = 1 if w.shared else 2
    size = flat_size(w)
    parts = launch.sample_parts(shape.p.num)
    flat = ws.new_empty((parts, size))
    tiles_c, tiles_h, tiles_r, tiles_l = (launch.count_blocks(length, _TILE) for length in (C, H, R, L))
    matrices = 3 * tiles_c * tiles_h + (2 + encoders) * tiles_c * tiles_r
    vectors = 6 * tiles_c + tiles_h + encoders * tiles_r + 4 * tiles_l
    weight_kernel[(matrices + vectors, parts)](
        ws, flat, shape.p.num, C, H, R, L, shape.logit_rows, shape.nc,
        launch.count_blocks(shape.p.num, parts), launch.count_blocks(shape.logit_rows, parts), size,
        STAN=shape.stan, RESCALE=shape.rescale, SHARED=w.shared, TILE=_TILE, BLOCK_N=_SAMPLES,
        PRECISION=shape.precision, num_warps=8 if shape.precision == "ieee" else 4,
    )  # fmt: skip
    if parts == 1:
        return flat[0]
    total = ws.new_empty(size)
    join_kernel[(launch.count_blocks(size, _JOINED),)](flat, total, size, PARTS=parts, BLOCK=_JOINED, num_warps=4)
    return total
