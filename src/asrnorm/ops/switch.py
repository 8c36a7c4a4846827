"""Switchable normalization: a learned mixture of moments, and the layer that mixes those of one sample alone.

Luo et al., *Differentiable Learning-to-Normalize via Switchable Normalization*, 2019.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from asrnorm.ops import dispatch, reference

Moments = tuple[Tensor, Tensor]
"""A mean and a variance, which broadcast to `(n, c)`."""


def sample_moments(mean_nc: Tensor, biased_nc: Tensor, count: int) -> list[Moments]:
    """Return the moments of instance and layer, with the unbiased variance of the instance, as SN's authors do.

    Args:
        mean_nc: mean of every channel of every sample.
        biased_nc: its biased variance.
        count: positions that these are over, two or more.

    Example:
        >>> [variance.item() for _, variance in sample_moments(torch.tensor([[4.0]]), torch.tensor([[1.0]]), 2)]
        [2.0, 2.0]
    """
    variance_nc = biased_nc * (count / (count - 1))
    return [(mean_nc, variance_nc), reference.pool_moments(mean_nc, variance_nc, dim=1)]


def switched_vectors(
    moments: Sequence[Moments], mean_logits: Tensor, var_logits: Tensor, gain: Tensor, bias: Tensor, *, eps: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    r"""Return what standardizes and rescales: the mixed mean and deviation, gain and bias.

    $\mu = \sum_k w_k \mu_k$, $\sigma = \sqrt{\sum_k w'_k \sigma^2_k + \epsilon}$

    Args:
        moments: of every kind.
        mean_logits: one a kind, whose softmax is $w$.
        var_logits: likewise, of $w'$.
        gain: `(c,)`.
        bias: `(c,)`.
        eps: added to the mixed variance.

    Example:
        >>> one, three, parameter = torch.ones(1), torch.full((1,), 3.0), torch.zeros(1)
        >>> logits = torch.tensor([90.0, 0.0])
        >>> switched_vectors([(one, one), (three, three)], torch.zeros(2), logits, parameter, parameter, eps=0.0)[:2]
        (tensor([2.]), tensor([1.]))
    """
    means, variances = zip(*moments, strict=True)
    mean, variance = _mix(mean_logits, means), _mix(var_logits, variances)
    return mean, torch.sqrt(variance + eps), gain.to(mean.dtype), bias.to(mean.dtype)


def _mix(logits: Tensor, parts: Sequence[Tensor]) -> Tensor:
    weights = torch.softmax(logits.to(parts[0].dtype), dim=0).unbind()
    mixed = weights[0] * parts[0]
    for weight, part in zip(weights[1:], parts[1:], strict=True):
        mixed = torch.addcmul(mixed, weight, part)
    return mixed


def switch_norm(
    x: Tensor,
    mean_logits: Tensor,
    var_logits: Tensor,
    gain: Tensor,
    bias: Tensor,
    *,
    eps: float,
    activation: str | None = None,
) -> Tensor:
    """Switchable normalization by a mixture of instance and layer; on a GPU in a kernel each way between the passes.

    Args:
        x: `(n, c, ...)`, of two positions or more.
        mean_logits: of the means of instance and layer.
        var_logits: of their variances.
        gain: `(c,)`.
        bias: `(c,)`.
        eps: added to the mixed variance.
        activation: `relu` or none.

    Example:
        >>> zeros, ones = torch.zeros(2), torch.ones(3)
        >>> switch_norm(torch.randn(2, 3, 4, 4), zeros, zeros, ones, ones, eps=1e-5).shape
        torch.Size([2, 3, 4, 4])
    """
    if dispatch.takes_kernels(x) and x.shape[0] > 0:
        from asrnorm.ops.triton import launch

        if not launch.is_traced(x):
            from asrnorm.ops.triton.switch import switch_norm as by_kernels

            return by_kernels(x, mean_logits, var_logits, gain, bias, eps, activation == "relu")
    with reference.full_precision(x):
        x, mean_nc, biased_nc = dispatch.with_moments(x)
        moments = sample_moments(mean_nc, biased_nc, math.prod(x.shape[2:]))
        vectors = switched_vectors(moments, mean_logits, var_logits, gain, bias, eps=eps)
        return dispatch.standardize_rescale(x, *vectors, eps=0.0, activation=activation)
