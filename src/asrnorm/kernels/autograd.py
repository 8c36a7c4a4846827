"""ASR-Norm as a PyTorch operator: the order of its launches, schemas, fake tensors and autograd.

As a registered operator the layer works under autocast, `torch.compile(fullgraph=True)`, CUDA graphs and DDP. A second
derivative goes through the reference, which is computed again for it. Calls that are not traced launch the kernels
directly: a registered operator costs the host a millisecond per layer, many times what the kernels take.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from asrnorm.kernels import asr_backward, asr_forward, launch
from asrnorm.kernels.compiled import Launch
from asrnorm.kernels.flat_params import Weights, gradient_offsets, split_gradients, unflatten
from asrnorm.kernels.launch import TILE, LayerShape
from asrnorm.norms import reference

_PARTS_BLOCK = 512  # numbers of which a program sums the parts


def saved_sizes(num: int, channels: int, hidden: int, rescale_hidden: int) -> tuple[int, int, int]:
    """Return how many numbers the parts of `saved` have."""
    return 2 * num * channels, 4 * num * channels, 2 * num * (hidden + rescale_hidden)


class Launches:
    """The launches of a layer on inputs of one shape, in the order of a step.

    What the backward pass needs besides `x` is one tensor `saved` in float32: `stat (2, n, c)`; `vec (4, n, c)`, which
    are the raw outputs of the networks where the backward pass is fused; and the sums of the hidden units.
    """

    def __init__(self, shape: LayerShape, encoders: int, eps_in: float, eps_out: float, relu: bool) -> None:
        x, hidden = shape.x, max(shape.H, shape.R)
        self.fused, self.fused_backward = shape.fused, shape.fused_backward
        self.saved_sizes = saved_sizes(x.num, x.channels, shape.H, shape.R)
        self.saved_size, self.workspace_size = sum(self.saved_sizes), asr_backward.workspace_size(shape)
        self.parts = launch.sample_parts(x.num)
        _, self.num_gradients = gradient_offsets(x.channels, shape.H, shape.R, shape.L, encoders)
        sizes, options = shape.fused_sizes(), shape.forward_options(relu)
        self.fused_forward = Launch(
            asr_forward.fused_forward_kernel, (x.num,), (*sizes, eps_in, eps_out, x.nc), options
        )
        self.moments = asr_forward.moments_launch(x, eps_in)
        self.encode = _networks(asr_forward.encode_kernel, shape, hidden, 4)
        self.decode = _networks(asr_forward.decode_kernel, shape, x.channels, 4, eps_in, step=True)
        self.rescale = asr_forward.rescale_launch(x, eps_out, relu)
        self.fused_gradients = Launch(
            asr_backward.fused_backward_kernel, (x.num,), (*sizes, eps_in, eps_out, x.nc), shape.backward_options(relu)
        )
        self.gradient_sums = asr_backward.gradient_sums_launch(x, eps_out, relu)
        self.decoder_gradient = _networks(
            asr_backward.decoder_gradient_kernel, shape, x.channels, 4, eps_in, eps_out, step=True
        )
        self.hidden_gradient = _networks(asr_backward.hidden_gradient_kernel, shape, hidden, 4)
        self.statistic_gradient = _networks(
            asr_backward.statistic_gradient_kernel, shape, x.channels, 2, eps_in, eps_out, step=True
        )
        self.input_gradient = asr_backward.input_gradient_launch(x, eps_out, relu)
        self.weight_gradient = _weight_gradient(shape, encoders, self.parts, self.num_gradients)
        self.sum_parts = Launch(
            asr_backward.sum_parts_kernel,
            (launch.count_blocks(self.num_gradients, _PARTS_BLOCK),),
            (self.num_gradients,),
            {"PARTS": self.parts, "BLOCK": _PARTS_BLOCK, "num_warps": 4},
        )


def _networks(kernel: Any, shape: LayerShape, width: int, networks: int, *eps: float, step: bool = False) -> Launch:
    options = shape.network_options() | ({"STEP": shape.step} if step else {})
    return Launch(kernel, (*shape.network_grid(width), networks), (*eps, *shape.network_sizes()), options)


def _weight_gradient(shape: LayerShape, encoders: int, parts: int, num_gradients: int) -> Launch:
    num, C, H, R, L = shape.x.num, shape.x.channels, shape.H, shape.R, shape.L
    tiles_c, tiles_h, tiles_r, tiles_l = (launch.count_blocks(length, TILE) for length in (C, H, R, L))
    matrices = 3 * tiles_c * tiles_h + (2 + encoders) * tiles_c * tiles_r
    vectors = 6 * tiles_c + tiles_h + encoders * tiles_r + 4 * tiles_l
    shares = launch.count_blocks(num, parts), launch.count_blocks(shape.logit_rows, parts)
    return Launch(
        asr_backward.weight_gradient_kernel,
        (matrices + vectors, parts),
        (num, C, H, R, L, shape.logit_rows, shape.x.nc, *shares, num_gradients),
        {
            "STAN": shape.stan, "RESCALE": shape.rescale, "ENCODERS": encoders, "TILE": TILE, "BLOCK_N": TILE,
            "PRECISION": shape.precision, "num_warps": 8 if shape.precision == "ieee" else 4,
        },
    )  # fmt: skip


_launches = lru_cache(maxsize=1024)(Launches)


def launches_of(x: Tensor, w: Weights, eps_in: float, eps_out: float, relu: bool) -> Launches:
    """Return the launches of a layer on dense activations."""
    return _launches(LayerShape.of(x, w), w.rescale_encoders, eps_in, eps_out, relu)


@launch.on_tensor_device
def forward(x: Tensor, w: Weights, eps_in: float, eps_out: float, relu: bool) -> tuple[Tensor, Tensor]:
    """Return the output and what the backward pass needs."""
    x = launch.dense(x)
    run, n = launches_of(x, w, eps_in, eps_out, relu), w.both_encoders()
    y, saved = torch.empty_like(x), x.new_empty(run.saved_size, dtype=torch.float32)
    if not x.numel():
        return y, saved
    if run.fused:
        run.fused_forward(x, y, saved, *n)
        return y, saved
    stat, vec, hidden = saved.split(run.saved_sizes)
    run.moments(x, stat)
    run.encode(stat, hidden, n.enc_w, n.enc_b, n.beta_enc_w, n.beta_enc_b, n.gamma_enc_w, n.gamma_enc_b)
    run.decode(
        stat, hidden, vec, n.mu_w, n.mu_b, n.sigma_w, n.sigma_b, n.lambda_mu, n.lambda_sigma,
        n.beta_w, n.beta_b, n.gamma_w, n.gamma_b, n.lambda_beta, n.lambda_gamma, n.gamma_bias, n.beta_bias,
    )  # fmt: skip
    run.rescale(x, vec, y)
    return y, saved


@launch.on_tensor_device
def backward(
    dy: Tensor,
    x: Tensor,
    saved: Tensor,
    w: Weights,
    eps_in: float,
    eps_out: float,
    relu: bool,
    *,
    input_only: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Return the gradient of `x` and, unless `input_only`, those of all parameters in one flat tensor."""
    x = launch.dense(x)
    dy = launch.dense_like(dy, x)
    dx = torch.empty_like(x)
    run, n = launches_of(x, w, eps_in, eps_out, relu), w.both_encoders()
    if not x.numel():
        return dx, x.new_zeros(run.num_gradients, dtype=torch.float32)
    ws = saved.new_empty(run.workspace_size)
    if run.fused_backward:
        run.fused_gradients(
            x, dy, dx, saved, ws, n.enc_w, n.mu_w, n.sigma_w, n.lambda_mu, n.lambda_sigma, n.beta_enc_w,
            n.gamma_enc_w, n.beta_w, n.gamma_w, n.lambda_beta, n.lambda_gamma, n.gamma_bias, n.beta_bias,
        )  # fmt: skip
    else:
        stat, vec, hidden = saved.split(run.saved_sizes)
        sums, d_stat = torch.empty_like(stat), torch.empty_like(stat)
        run.gradient_sums(x, dy, stat, vec, sums, None)
        run.decoder_gradient(
            stat, vec, hidden, sums, ws, n.mu_w, n.mu_b, n.sigma_w, n.sigma_b, n.lambda_mu, n.lambda_sigma,
            n.beta_w, n.beta_b, n.gamma_w, n.gamma_b, n.lambda_beta, n.lambda_gamma,
        )  # fmt: skip
        run.hidden_gradient(hidden, ws, n.mu_w, n.sigma_w, n.beta_w, n.gamma_w)
        run.statistic_gradient(
            stat, vec, sums, d_stat, ws, n.enc_w, n.beta_enc_w, n.gamma_enc_w, n.lambda_mu, n.lambda_sigma
        )
        run.input_gradient(x, dy, stat, vec, d_stat, dx)
    return dx, None if input_only else _weight_gradients(run, ws)


def _weight_gradients(run: Launches, ws: Tensor) -> Tensor:
    parts = ws.new_empty(run.parts * run.num_gradients)
    run.weight_gradient(ws, parts)
    if run.parts == 1:
        return parts
    total = ws.new_empty(run.num_gradients)
    run.sum_parts(parts, total)
    return total


_TENSORS = ", ".join(
    f"Tensor {name}" if name in ("gamma_bias", "beta_bias") else f"Tensor? {name}" for name in Weights._fields
)
_NUM_WEIGHTS = len(Weights._fields)


@torch.library.custom_op(
    "asrnorm::asr_norm",
    mutates_args=(),
    schema=f"(Tensor x, {_TENSORS}, float eps_in, float eps_out, bool relu) -> (Tensor, Tensor)",
)
def _asr_norm(x: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    return forward(x, Weights(*rest[:_NUM_WEIGHTS]), *rest[_NUM_WEIGHTS:])


@_asr_norm.register_fake
def _(x: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    w, (num, channels) = Weights(*rest[:_NUM_WEIGHTS]), x.shape[:2]
    size = sum(saved_sizes(num, channels, w.hidden, w.rescale_hidden))
    return launch.empty_dense(x), x.new_empty(size, dtype=torch.float32)


@torch.library.custom_op(
    "asrnorm::asr_norm_backward",
    mutates_args=(),
    schema=f"(Tensor dy, Tensor x, Tensor saved, {_TENSORS}, float eps_in, float eps_out, bool relu)"
    " -> (Tensor, Tensor)",
)
def _asr_norm_backward(dy: Tensor, x: Tensor, saved: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    dx, flat = backward(dy, x, saved, Weights(*rest[:_NUM_WEIGHTS]), *rest[_NUM_WEIGHTS:])
    assert flat is not None
    return dx, flat


@_asr_norm_backward.register_fake
def _(dy: Tensor, x: Tensor, saved: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    _, size = gradient_offsets(*Weights(*rest[:_NUM_WEIGHTS]).sizes())
    return launch.empty_dense(x), x.new_empty(size, dtype=torch.float32)


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.save_for_backward(*output[1:], *inputs[: 1 + _NUM_WEIGHTS])
    ctx.options = inputs[1 + _NUM_WEIGHTS :]


def _gradients(ctx: Any, dy: Tensor, traced: bool) -> tuple[Any, ...]:
    saved, x, *rest = ctx.saved_tensors
    w, (eps_in, eps_out, relu) = Weights(*rest), ctx.options
    if torch.is_grad_enabled():

        def layer(x: Tensor, *weights: Any) -> Tensor:
            options: dict[str, Any] = {"eps": eps_in, "eps_out": eps_out, "activation": "relu" if relu else None}
            return reference.asr_norm(x, *unflatten(Weights(*weights)), **options)

        return *differentiable_gradients(layer, [x, *w], dy), None, None, None
    if traced:
        dx, flat = torch.ops.asrnorm.asr_norm_backward(dy, x, saved, *w, *ctx.options)
    else:
        input_only = not any(ctx.needs_input_grad[1 : 1 + _NUM_WEIGHTS])
        dx, flat = backward(dy, x, saved, w, *ctx.options, input_only=input_only)
    grads = None if flat is None else split_gradients(flat, w)
    return dx, *(grads or (None,) * _NUM_WEIGHTS), None, None, None


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


# Past `Function.apply`, which looks for wrappers of functorch in all inputs; calls under its transforms are traced.
_apply: Callable[..., Any] = super(torch.autograd.Function, _ASRNorm).apply


def asr_norm(x: Tensor, w: Weights, eps_in: float, eps_out: float, relu: bool) -> Tensor:
    """Return the output of a layer, through the registered operator where the call is traced."""
    if launch.is_traced(x):
        y: Tensor = torch.ops.asrnorm.asr_norm(x, *w, eps_in, eps_out, relu)[0]
    elif torch.is_grad_enabled() or forward_ad._current_level >= 0:  # which the function refuses
        y = _apply(x, *w, eps_in, eps_out, relu)
    else:
        y, _ = forward(x, w, eps_in, eps_out, relu)
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
