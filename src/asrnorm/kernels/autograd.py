"""What PyTorch is told of the kernels: schemas, fake tensors, autograd.

So registered, the layer works under autocast, `torch.compile(fullgraph=True)`, CUDA graphs and DDP. A second derivative
is taken through the reference, which is computed again for it. A call that nobody traces goes to the kernels directly:
the way through a registered operator takes the host a millisecond a layer, many times what the kernels take.
"""

from typing import Any

import torch
from torch import Tensor

from asrnorm.kernels import flat_params, launch, layer
from asrnorm.kernels.flat_params import Weights
from asrnorm.norms import reference

_TENSORS = ", ".join(
    f"Tensor {name}" if name in ("gamma_bias", "beta_bias") else f"Tensor? {name}" for name in Weights._fields
)
_NUM_WEIGHTS = len(Weights._fields)


@torch.library.custom_op(
    "asrnorm::asr_norm",
    mutates_args=(),
    schema=f"(Tensor x, {_TENSORS}, float eps_in, float eps_out, bool relu) -> (Tensor, Tensor, Tensor, Tensor)",
)
def asr_norm(x: Tensor, *rest: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Output, and what the way back needs (`layer.Saved`)."""
    weights, (eps_in, eps_out, relu) = Weights(*rest[:_NUM_WEIGHTS]), rest[_NUM_WEIGHTS:]
    return layer.forward(x, weights, eps_in, eps_out, relu)


@asr_norm.register_fake
def _(x: Tensor, *rest: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    weights = Weights(*rest[:_NUM_WEIGHTS])
    hidden = 2 * x.shape[0] * (weights.hidden + weights.rescale_hidden)
    sizes: tuple[tuple[int, ...], ...] = (2, *x.shape[:2]), (4, *x.shape[:2]), (hidden,)
    stat, vec, units = (x.new_empty(size, dtype=torch.float32) for size in sizes)
    return launch.empty_dense(x), stat, vec, units


@torch.library.custom_op(
    "asrnorm::asr_norm_backward",
    mutates_args=(),
    schema=f"(Tensor dy, Tensor x, Tensor stat, Tensor vec, Tensor hidden, {_TENSORS}, float eps_out, bool relu)"
    " -> (Tensor, Tensor)",
)
def asr_norm_backward(dy: Tensor, x: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    """Gradient of `x`, and of all parameters in one flat tensor."""
    saved, weights, (eps_out, relu) = rest[:3], Weights(*rest[3 : 3 + _NUM_WEIGHTS]), rest[3 + _NUM_WEIGHTS :]
    dx, flat = layer.backward(dy, x, saved, weights, eps_out, relu)
    assert flat is not None
    return dx, flat


@asr_norm_backward.register_fake
def _(dy: Tensor, x: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    weights = Weights(*rest[3 : 3 + _NUM_WEIGHTS])
    return launch.empty_dense(x), x.new_empty(flat_params.flat_size(weights), dtype=torch.float32)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    x, weights, options = inputs[0], inputs[1 : 1 + _NUM_WEIGHTS], inputs[1 + _NUM_WEIGHTS :]
    ctx.save_for_backward(x, *output[1:], *weights)
    ctx.options = options


def _backward(ctx: Any, dy: Tensor, *_: Any) -> tuple[Any, ...]:
    x, stat, vec, hidden, *rest = ctx.saved_tensors
    weights, (eps_in, eps_out, relu) = Weights(*rest), ctx.options
    if torch.is_grad_enabled():  # create_graph=True: the kernels have no derivative of their own
        return (*_differentiable_gradients(dy, x, weights, eps_in, eps_out, relu), None, None, None)
    dx, flat = torch.ops.asrnorm.asr_norm_backward(dy, x, stat, vec, hidden, *weights, eps_out, relu)
    return (dx, *flat_params.split_gradients(flat, weights), None, None, None)


torch.library.register_autograd("asrnorm::asr_norm", _backward, setup_context=_keep)


class _Direct(torch.autograd.Function):
    """The operator and its gradient without the registry."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, eps_in: float, eps_out: float, relu: bool, *weights: Tensor | None) -> Tensor:
        y, *saved = layer.forward(x, Weights(*weights), eps_in, eps_out, relu)  # type: ignore[arg-type]
        ctx.save_for_backward(x, *saved, *weights)
        ctx.options = eps_in, eps_out, relu
        return y

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Any, ...]:
        x, stat, vec, hidden, *rest = ctx.saved_tensors
        weights, (eps_in, eps_out, relu) = Weights(*rest), ctx.options
        if torch.is_grad_enabled():
            dx, *grads = _differentiable_gradients(dy, x, weights, eps_in, eps_out, relu)
            return dx, None, None, None, *grads
        of_x_alone = not any(ctx.needs_input_grad[-_NUM_WEIGHTS:])
        dx, flat = layer.backward(dy, x, (stat, vec, hidden), weights, eps_out, relu, of_x_alone=of_x_alone)
        parts = (None,) * _NUM_WEIGHTS if flat is None else flat_params.split_gradients(flat, weights)
        return dx, None, None, None, *parts


def apply(x: Tensor, weights: Weights, eps_in: float, eps_out: float, relu: bool) -> Tensor:
    """Return the output of a layer: directly, or through the operator where a call is traced or transformed."""
    if launch.is_traced(x):
        y: Tensor = torch.ops.asrnorm.asr_norm(x, *weights, eps_in, eps_out, relu)[0]
    else:
        y = _Direct.apply(x, eps_in, eps_out, relu, *weights)
    return y


def _differentiable_gradients(
    dy: Tensor, x: Tensor, w: Weights, eps_in: float, eps_out: float, relu: bool
) -> list[Tensor | None]:
    inputs = [x, *w]
    wanted = [value for value in inputs if value is not None and value.requires_grad]
    y = reference.asr_norm(
        x,
        flat_params.standardize_nets(w),
        flat_params.rescale_nets(w),
        w.gamma_bias,
        w.beta_bias,
        eps=eps_in,
        eps_out=eps_out,
        activation="relu" if relu else None,
    )
    grads = iter(torch.autograd.grad(y, wanted, dy, create_graph=True, allow_unused=True))
    return [next(grads) if value is not None and value.requires_grad else None for value in inputs]
