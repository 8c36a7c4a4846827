r"""ASR-Norm in eager calls on a CPU: the equations of the reference with a gradient of their own; needs no Triton.

There `torch.var_mean`, and what autograd does about broadcast statistics, take several times a BatchNorm. With $s$
positions, $k = \gamma / (\sigma_\text{stan} + \epsilon)$ and sums over the positions, $d\beta = \sum dy$,
$d\gamma = \sum dy\,(x - \mu_\text{stan}) / (\sigma_\text{stan} + \epsilon)$, $d\mu_\text{stan} = -k\,d\beta$,
$d\sigma_\text{stan} = -k\,d\gamma$, then back through the networks to $d\mu$ and $d\sigma$, and
$dx = k\,dy + (d\mu + d\sigma\,(x - \mu) / \sigma) / s$.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn import Parameter

from asrnorm.kernels.flat_params import Weights, unflatten
from asrnorm.norms import reference

aten = torch.ops.aten
_DTYPES = (torch.float32, torch.float64)


class _UnusualError(Exception):
    """Statistics so extreme that only the reference is known to treat them well."""


def asr_norm(x: Tensor, w: Weights, eps_in: float, eps_out: float, relu: bool) -> Tensor | None:
    """Return what `asrnorm.norms.reference.asr_norm` does, or `None` for what belongs to it.

    Those are maps that are not dense or not in the dtype of the weights, traced calls, extreme statistics, and layers
    with two rescaling encoders.
    """
    is_dense = type(x) in (Tensor, Parameter) and x.ndim > 2 and x.numel() > 0 and x.is_contiguous()
    is_traced = torch._C._get_tracing_state() is not None or torch._C._len_torch_dispatch_stack() > 0
    is_transformed = torch._C._functorch.maybe_current_level() is not None or forward_ad._current_level >= 0
    if not is_dense or x.dtype not in _DTYPES or is_traced or is_transformed:
        return None
    if w.gamma_enc_w is not None or any(value is not None and value.dtype != x.dtype for value in w):
        return None
    try:
        y: Tensor = _ASRNorm.apply(x, eps_in, eps_out, relu, *w)
    except _UnusualError:
        return None
    return y


class _ASRNorm(torch.autograd.Function):
    # What concerns mean and deviation is stacked, `(2, n, c)`: with small maps the number of operations decides.
    @staticmethod
    def forward(ctx: Any, x: Tensor, eps_in: float, eps_out: float, relu: bool, *weights: Any) -> Tensor:
        w, flat = Weights(*weights), (*x.shape[:2], -1)
        mean = x.view(flat).mean(2)
        y = x - mean.view(*x.shape[:2], *(1,) * (x.ndim - 2))  # no view, so that the next layer may change it in place
        values = y.view(flat)
        std = torch.linalg.vector_norm(values, dim=2).square_().div_(values.shape[2]).add_(eps_in).sqrt_()
        stats = torch.stack([mean, std])
        stan, beta, gamma = stats, w.beta_bias.expand_as(stats[0]), w.gamma_bias.expand_as(stats[0])
        hidden = learned = gates = rescale_hidden = raw_beta = raw_gamma = None
        if w.enc_w is not None:
            hidden, mu, sigma = _run(stats, w[0:2], w[2:4], w[4:6])
            stan = learned = torch.stack([mu, sigma.relu_()])
            if w.lambda_mu is not None and w.lambda_sigma is not None:
                gates = torch.stack([w.lambda_mu, w.lambda_sigma]).sigmoid_().view(2, 1, -1)
                stan = torch.lerp(stats, learned, gates)
        if w.beta_enc_w is not None:
            rescale_hidden, raw_beta, raw_gamma = _run(stats, w[8:10], w[12:14], w[14:16])
            beta, gamma = raw_beta.tanh_(), raw_gamma.sigmoid_()
            if w.lambda_beta is not None and w.lambda_gamma is not None:
                beta, gamma = beta * w.lambda_beta.sigmoid(), gamma * w.lambda_gamma.sigmoid()
            beta, gamma = beta + w.beta_bias, gamma + w.gamma_bias
        inverse = (stan[1] + eps_out).reciprocal_()
        k, shift = gamma * inverse, stats[0] - stan[0]
        _check_usual(shift, stats[1], eps_in, gates is not None)
        values.mul_(k.unsqueeze(2)).add_(torch.addcmul(beta, shift, k).unsqueeze_(2))
        if relu:
            values.relu_()
        ctx.options = eps_in, eps_out, relu
        networks = hidden, learned, gates, rescale_hidden, raw_beta, raw_gamma
        ctx.save_for_backward(x, y if relu else None, stats, inverse, shift.mul_(inverse), k, *networks, *w)
        return y

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Any, ...]:
        x, y, stats, inverse, shift, k, *rest = ctx.saved_tensors
        hidden, learned, gates, rescale_hidden, raw_beta, raw_gamma = rest[:6]
        w = Weights(*rest[6:])
        if torch.is_grad_enabled():
            return _twice_differentiable(dy, [x, *w], *ctx.options)
        dy = dy if y is None else aten.threshold_backward(dy, y, 0)
        dy, values = dy.contiguous().view(*x.shape[:2], -1), x.view(*x.shape[:2], -1)
        d_beta, d_gamma = _sums(dy, values, stats[0], inverse)
        d_gamma.addcmul_(shift, d_beta)
        d_rescale = torch.stack([d_beta, d_gamma])
        d_stats = d_rescale * k.neg()  # of mu_stan and sigma_stan, which are the statistics if nothing is learned
        beta_bias, gamma_bias = d_rescale.sum(1)
        found: list[Any] = [None] * 18
        if w.enc_w is not None:
            d_learned = d_stats
            if gates is not None and w.lambda_mu is not None:
                product = d_learned * (learned - stats)
                logits = product.sum((1, 2) if gates.shape[2] == 1 else 1).view_as(gates)
                found[6:8] = [part.view_as(w.lambda_mu) for part in aten.sigmoid_backward(logits, gates)]
                d_learned = d_stats * gates
            d_sigma = aten.threshold_backward(d_learned[1], learned[1], 0)
            through, found[0:2], found[2:4], found[4:6] = _run_backward(
                d_learned[0], d_sigma, stats, hidden, w[0:2], w[2:4], w[4:6]
            )
            d_stats = through.add_(d_stats).sub_(d_learned)
        if w.beta_enc_w is not None:
            if w.lambda_beta is not None and w.lambda_gamma is not None:
                d_beta, found[16] = _gate_backward(d_beta, raw_beta, w.lambda_beta)
                d_gamma, found[17] = _gate_backward(d_gamma, raw_gamma, w.lambda_gamma)
            d_raw = aten.tanh_backward(d_beta, raw_beta), aten.sigmoid_backward(d_gamma, raw_gamma)
            through, found[8:10], found[12:14], found[14:16] = _run_backward(
                *d_raw, stats, rescale_hidden, w[8:10], w[12:14], w[14:16]
            )
            d_stats = d_stats + through
        d_mean, d_std = (d_stats / values.shape[2]).unsqueeze_(3)
        d_std.div_(stats[1].unsqueeze(2))
        dx = (values - stats[0].unsqueeze(2)).mul_(d_std).addcmul_(dy, k.unsqueeze(2)).add_(d_mean)
        return dx.view(x.shape), None, None, None, *found, gamma_bias, beta_bias


def _check_usual(shift: Tensor, std: Tensor, eps: float, residual: bool) -> None:
    """Raise where the reference bounds a learned mean, as of a channel without variance, or a deviation overflows."""
    is_far = residual and not bool((shift.abs() <= reference.REACH * (std - eps / std)).all())
    if is_far or not math.isfinite(std.sum()):
        raise _UnusualError


def _twice_differentiable(
    dy: Tensor, inputs: list[Any], eps_in: float, eps_out: float, relu: bool
) -> tuple[Tensor | None, ...]:
    """Return the gradients as those of the reference, which autograd can differentiate again."""
    x, *weights = inputs
    activation = "relu" if relu else None
    y = reference.asr_norm(x, *unflatten(Weights(*weights)), eps=eps_in, eps_out=eps_out, activation=activation)
    wanted = [value for value in inputs if value is not None and value.requires_grad]
    found = dict(zip(map(id, wanted), torch.autograd.grad(y, wanted, dy, create_graph=True), strict=True))
    gradients = [found.get(id(value)) for value in inputs]
    return gradients[0], None, None, None, *gradients[1:]


def _sums(dy: Tensor, x: Tensor, mean: Tensor, factor: Tensor) -> tuple[Tensor, Tensor]:
    """Return the sums of `dy`, and those of `dy (x - mean)` times a factor, over the positions in one pass.

    They are the gradients of a BatchNorm's parameters: over one sample with n c channels, by the inverse deviations.
    """
    flat, vectors = (1, mean.numel(), -1), (mean.view(-1), factor.view(-1))
    found = aten.native_batch_norm_backward(
        dy.view(flat), x.view(flat), None, None, None, *vectors, True, 0.0, [False, True, True]
    )
    return found[2].view_as(mean), found[1].view_as(mean)


Dense = Sequence[Any]
"""Weight and bias of a fully-connected layer, `None` for what it lacks."""


def _run(stats: Tensor, encoder: Dense, first: Dense, second: Dense) -> tuple[Tensor, Tensor, Tensor]:
    """Return hidden units `(2, n, h)` and outputs of two networks, which read mean and deviation by one encoder."""
    hidden = F.linear(stats, *encoder).relu_()
    return hidden, F.linear(hidden[0], *first), F.linear(hidden[1], *second)


def _run_backward(
    d_first: Tensor, d_second: Tensor, stats: Tensor, hidden: Tensor, encoder: Dense, first: Dense, second: Dense
) -> tuple[Tensor, Any, Any, Any]:
    """Return the gradients of `stats`, and of the weight and bias of every layer."""
    d_top, *of_first = _dense_backward(d_first, hidden[0], first)
    d_bottom, *of_second = _dense_backward(d_second, hidden[1], second)
    d_hidden = aten.threshold_backward(torch.stack([d_top, d_bottom]), hidden, 0)
    d_stats, *of_encoder = _dense_backward(d_hidden.flatten(0, 1), stats.flatten(0, 1), encoder)
    return d_stats.view_as(stats), of_encoder, of_first, of_second


def _dense_backward(d_out: Tensor, values: Tensor, dense: Dense) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return the gradients of the input, the weight and the bias."""
    return d_out @ dense[0], d_out.t() @ values, None if dense[1] is None else d_out.sum(0)


def _gate_backward(d_gated: Tensor, value: Tensor, logit: Tensor) -> tuple[Tensor, Tensor]:
    """Return the gradients of a value times its gate, and of the gate's logit."""
    gate, product = logit.sigmoid(), d_gated * value
    total = product.sum(0) if logit.numel() > 1 else product.sum()
    return d_gated * gate, aten.sigmoid_backward(total.view_as(logit), gate)
