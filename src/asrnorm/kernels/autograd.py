"""ASR-Norm as a PyTorch operator: the order of its launches, schemas, fake tensors and autograd.

As a registered operator the layer works under autocast, `torch.compile(fullgraph=True)`, CUDA graphs and DDP. A second
derivative goes through the reference, which is computed again for it. Calls that are not traced launch the kernels
directly: a registered operator costs the host a millisecond per layer, many times what the kernels take.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from asrnorm.kernels import asr_backward, asr_forward, launch
from asrnorm.kernels.flat_params import Weights, gradient_sizes, split_gradients, unflatten
from asrnorm.kernels.launch import TILE, LayerShape
from asrnorm.norms import reference

_PARTS_BLOCK = 512  # numbers of which a program sums the parts

Saved = tuple[Tensor, Tensor, Tensor]
"""What the backward pass needs besides `x`, in float32: `stat (2, n, c)`; `vec (4, n, c)`, which are the raw outputs of
the networks where the backward pass is fused; and the sums of the hidden units in one flat tensor."""


def _empty_saved(x: Tensor, w: Weights) -> Saved:
    num, channels = x.shape[:2]
    stat = x.new_empty((2, num, channels), dtype=torch.float32)
    vec = x.new_empty((4, num, channels), dtype=torch.float32)
    return stat, vec, x.new_empty(2 * num * (w.hidden + w.rescale_hidden), dtype=torch.float32)


@launch.on_tensor_device
def forward(x: Tensor, w: Weights, eps_in: float, eps_out: float, relu: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the output and what the backward pass needs (`Saved`)."""
    x = launch.dense(x)
    y, saved = torch.empty_like(x), _empty_saved(x, w)
    if not x.numel():
        return y, *saved
    stat, vec, hidden = saved
    shape, n = LayerShape.of(x, w), w.both_encoders()
    if shape.fused:
        asr_forward.fused_forward_kernel[(shape.x.num,)](
            x, y, *saved, *n, *shape.fused_sizes(), eps_in, eps_out, shape.x.nc, **shape.forward_options(relu)
        )
        return y, *saved
    asr_forward.launch_moments(x, shape.x, stat, eps_in)
    asr_forward.encode_kernel[(*shape.network_grid(max(shape.H, shape.R)), 4)](
        stat, hidden, n.enc_w, n.enc_b, n.beta_enc_w, n.beta_enc_b, n.gamma_enc_w, n.gamma_enc_b,
        *shape.network_sizes(), **shape.network_options(),
    )  # fmt: skip
    asr_forward.decode_kernel[(*shape.network_grid(shape.x.channels), 4)](
        stat, hidden, vec, n.mu_w, n.mu_b, n.sigma_w, n.sigma_b, n.lambda_mu, n.lambda_sigma,
        n.beta_w, n.beta_b, n.gamma_w, n.gamma_b, n.lambda_beta, n.lambda_gamma, n.gamma_bias, n.beta_bias,
        *shape.network_sizes(), STEP=shape.step, **shape.network_options(),
    )  # fmt: skip
    asr_forward.launch_rescale(x, shape.x, vec, y, eps_out, relu)
    return y, *saved


@launch.on_tensor_device
def backward(
    dy: Tensor, x: Tensor, saved: Saved, w: Weights, eps_out: float, relu: bool, *, input_only: bool = False
) -> tuple[Tensor, Tensor | None]:
    """Return the gradient of `x` and, unless `input_only`, those of all parameters in one flat tensor."""
    stat, vec, hidden = saved
    x = launch.dense(x)
    dy = launch.dense_like(dy, x)
    dx = torch.empty_like(x)
    if not x.numel():
        return dx, x.new_zeros(sum(gradient_sizes(w)), dtype=torch.float32)
    shape, n = LayerShape.of(x, w), w.both_encoders()
    ws = x.new_empty(asr_backward.workspace_size(shape), dtype=torch.float32)
    if shape.fused_backward:
        asr_backward.fused_backward_kernel[(shape.x.num,)](
            x, dy, dx, stat, vec, hidden, ws, n.enc_w, n.mu_w, n.sigma_w, n.lambda_mu, n.lambda_sigma,
            n.beta_enc_w, n.gamma_enc_w, n.beta_w, n.gamma_w, n.lambda_beta, n.lambda_gamma, n.gamma_bias, n.beta_bias,
            *shape.fused_sizes(), eps_out, shape.x.nc, **shape.backward_options(relu),
        )  # fmt: skip
    else:
        sums, d_stat = torch.empty_like(stat), torch.empty_like(stat)
        asr_backward.launch_gradient_sums(x, dy, shape.x, stat, vec, sums, None, eps_out, relu)
        _networks_backward(saved, sums, d_stat, ws, shape, n, eps_out)
        asr_backward.launch_input_gradient(x, dy, shape.x, stat, vec, d_stat, dx, eps_out, relu)
    return dx, None if input_only else _weight_gradients(ws, shape, w)


def _networks_backward(
    saved: Saved, sums: Tensor, d_stat: Tensor, ws: Tensor, shape: LayerShape, n: Weights, eps_out: float
) -> None:
    """Fill `d_stat` with the gradient of mean and standard deviation, and the workspace."""
    stat, vec, hidden = saved
    grid, sizes, options = shape.network_grid(shape.x.channels), shape.network_sizes(), shape.network_options()
    asr_backward.decoder_gradient_kernel[(*grid, 4)](
        stat, vec, hidden, sums, ws, n.mu_w, n.mu_b, n.sigma_w, n.sigma_b, n.lambda_mu, n.lambda_sigma,
        n.beta_w, n.beta_b, n.gamma_w, n.gamma_b, n.lambda_beta, n.lambda_gamma, eps_out, *sizes,
        STEP=shape.step, **options,
    )  # fmt: skip
    asr_backward.hidden_gradient_kernel[(*shape.network_grid(max(shape.H, shape.R)), 4)](
        hidden, ws, n.mu_w, n.sigma_w, n.beta_w, n.gamma_w, *sizes, **options
    )
    asr_backward.statistic_gradient_kernel[(*grid, 2)](
        stat, vec, sums, d_stat, ws, n.enc_w, n.beta_enc_w, n.gamma_enc_w, n.lambda_mu, n.lambda_sigma, eps_out,
        *sizes, STEP=shape.step, **options,
    )  # fmt: skip


def _weight_gradients(ws: Tensor, shape: LayerShape, w: Weights) -> Tensor:
    num, C, H, R, L = shape.x.num, shape.x.channels, shape.H, shape.R, shape.L
    encoders, size, parts = w.rescale_encoders, sum(gradient_sizes(w)), launch.sample_parts(num)
    flat = ws.new_empty((parts, size))
    tiles_c, tiles_h, tiles_r, tiles_l = (launch.count_blocks(length, TILE) for length in (C, H, R, L))
    matrices = 3 * tiles_c * tiles_h + (2 + encoders) * tiles_c * tiles_r
    vectors = 6 * tiles_c + tiles_h + encoders * tiles_r + 4 * tiles_l
    asr_backward.weight_gradient_kernel[(matrices + vectors, parts)](
        ws, flat, num, C, H, R, L, shape.logit_rows, shape.x.nc,
        launch.count_blocks(num, parts), launch.count_blocks(shape.logit_rows, parts), size,
        STAN=shape.stan, RESCALE=shape.rescale, ENCODERS=encoders, TILE=TILE, BLOCK_N=TILE,
        PRECISION=shape.precision, num_warps=8 if shape.precision == "ieee" else 4,
    )  # fmt: skip
    if parts == 1:
        return flat[0]
    total = ws.new_empty(size)
    grid = (launch.count_blocks(size, _PARTS_BLOCK),)
    asr_backward.sum_parts_kernel[grid](flat, total, size, PARTS=parts, BLOCK=_PARTS_BLOCK, num_warps=4)
    return total


_TENSORS = ", ".join(
    f"Tensor {name}" if name in ("gamma_bias", "beta_bias") else f"Tensor? {name}" for name in Weights._fields
)
_NUM_WEIGHTS = len(Weights._fields)


@torch.library.custom_op(
    "asrnorm::asr_norm",
    mutates_args=(),
    schema=f"(Tensor x, {_TENSORS}, float eps_in, float eps_out, bool relu) -> (Tensor, Tensor, Tensor, Tensor)",
)
def _asr_norm(x: Tensor, *rest: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return forward(x, Weights(*rest[:_NUM_WEIGHTS]), *rest[_NUM_WEIGHTS:])


@_asr_norm.register_fake
def _(x: Tensor, *rest: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return launch.empty_dense(x), *_empty_saved(x, Weights(*rest[:_NUM_WEIGHTS]))


@torch.library.custom_op(
    "asrnorm::asr_norm_backward",
    mutates_args=(),
    schema=f"(Tensor dy, Tensor x, Tensor stat, Tensor vec, Tensor hidden, {_TENSORS}, float eps_out, bool relu)"
    " -> (Tensor, Tensor)",
)
def _asr_norm_backward(dy: Tensor, x: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    saved, weights, options = rest[:3], Weights(*rest[3 : 3 + _NUM_WEIGHTS]), rest[3 + _NUM_WEIGHTS :]
    dx, flat = backward(dy, x, saved, weights, *options)
    assert flat is not None
    return dx, flat


@_asr_norm_backward.register_fake
def _(dy: Tensor, x: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    weights = Weights(*rest[3 : 3 + _NUM_WEIGHTS])
    return launch.empty_dense(x), x.new_empty(sum(gradient_sizes(weights)), dtype=torch.float32)


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.save_for_backward(*output[1:], *inputs[: 1 + _NUM_WEIGHTS])
    ctx.options = inputs[1 + _NUM_WEIGHTS :]


def _gradients(ctx: Any, dy: Tensor, traced: bool) -> tuple[Any, ...]:
    stat, vec, hidden, x, *rest = ctx.saved_tensors
    w, (eps_in, eps_out, relu) = Weights(*rest), ctx.options
    if torch.is_grad_enabled():

        def layer(x: Tensor, *weights: Any) -> Tensor:
            options: dict[str, Any] = {"eps": eps_in, "eps_out": eps_out, "activation": "relu" if relu else None}
            return reference.asr_norm(x, *unflatten(Weights(*weights)), **options)

        return *differentiable_gradients(layer, [x, *w], dy), None, None, None
    if traced:
        dx, flat = torch.ops.asrnorm.asr_norm_backward(dy, x, stat, vec, hidden, *w, eps_out, relu)
    else:
        input_only = not any(ctx.needs_input_grad[1 : 1 + _NUM_WEIGHTS])
        dx, flat = backward(dy, x, (stat, vec, hidden), w, eps_out, relu, input_only=input_only)
    return dx, *((None,) * _NUM_WEIGHTS if flat is None else split_gradients(flat, w)), None, None, None


torch.library.register_autograd(
    "asrnorm::asr_norm", lambda ctx, dy, *_: _gradients(ctx, dy, traced=True), setup_context=_save
)


class _ASRNorm(torch.autograd.Function):
    """The operator and its gradient without the registry."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Tensor:
        x, *rest = inputs
        output = forward(x, Weights(*rest[:_NUM_WEIGHTS]), *rest[_NUM_WEIGHTS:])
        _save(ctx, inputs, output)
        return output[0]

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Any, ...]:
        return _gradients(ctx, dy, traced=False)


def asr_norm(x: Tensor, w: Weights, eps_in: float, eps_out: float, relu: bool) -> Tensor:
    """Return the output of a layer, through the registered operator where the call is traced."""
    if launch.is_traced(x):
        y: Tensor = torch.ops.asrnorm.asr_norm(x, *w, eps_in, eps_out, relu)[0]
    else:
        y = _ASRNorm.apply(x, *w, eps_in, eps_out, relu)
    return y


def differentiable_gradients(
    function: Callable[..., Tensor], inputs: Sequence[Tensor | None], dy: Tensor
) -> list[Tensor | None]:
    """Return the gradients of `function(*inputs)`, differentiable in turn, `None` for inputs that require none.

    For `create_graph=True`: the kernels have no derivative of their own, the reference has.
    """
    wanted = [value for value in inputs if value is not None and value.requires_grad]
    grads = iter(torch.autograd.grad(function(*inputs), wanted, dy, create_graph=True, allow_unused=True))
    return [next(grads) if value is not None and value.requires_grad else None for value in inputs]
