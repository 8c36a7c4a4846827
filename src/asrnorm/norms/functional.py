"""The functions that norm layers call, computed by the Triton kernels where they can run, else by the reference."""

import math

import torch
from torch import Tensor

from asrnorm.norms import reference
from asrnorm.norms.dispatch import takes_cpu_function, takes_kernels
from asrnorm.norms.reference import RescaleNets, StandardizeNets


def asr_norm(
    x: Tensor,
    standardize: StandardizeNets | None,
    rescale: RescaleNets | None,
    gamma_bias: Tensor,
    beta_bias: Tensor,
    *,
    native: tuple[Tensor, Tensor] | None = None,
    limits: tuple[Tensor, Tensor] | None = None,
    eps: float = 1e-5,
    eps_out: float | None = None,
    activation: str | None = None,
) -> Tensor:
    """Return what `asrnorm.norms.reference.asr_norm` does."""
    eps_out = eps if eps_out is None else eps_out
    if native is None and limits is None and takes_kernels(x):
        from asrnorm.kernels import autograd, flat_params

        weights = flat_params.flatten(standardize, rescale, gamma_bias, beta_bias)
        return autograd.asr_norm(x, weights, eps, eps_out, activation == "relu")
    with reference.full_precision(x):
        if native is None and limits is None and takes_cpu_function(x):
            from asrnorm.kernels import cpu, flat_params

            weights = flat_params.flatten(standardize, rescale, gamma_bias, beta_bias)
            y = cpu.asr_norm(x, weights, eps, eps_out, activation == "relu")
            if y is not None:
                return y
        x, mean_nc, variance_nc = with_moments(x)
        std_nc = torch.sqrt(variance_nc + eps)
        nets = standardize, rescale, gamma_bias, beta_bias
        vectors = reference.learned_vectors(mean_nc, std_nc, *nets, native, limits, eps=eps)
        return standardize_rescale(x, *vectors, eps=eps_out, activation=activation)


def _by_kernels(x: Tensor) -> bool:
    return takes_kernels(x) and x.shape[0] > 0


def _by_untraced_kernels(x: Tensor) -> bool:
    if not _by_kernels(x):
        return False
    from asrnorm.kernels import launch

    return not launch.is_traced(x)


def with_moments(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the activations to continue with, and mean and biased variance of every channel of every sample.

    Pass the returned activations to `standardize_rescale`: the kernels then compute both gradients of the input, direct
    and through the moments, in one pass.
    """
    if _by_kernels(x):
        from asrnorm.kernels.moments_rescale import with_moments as fused

        return fused(x)
    return x, *reference.channel_moments(x)


def standardize_rescale(
    x: Tensor,
    mean: Tensor,
    std: Tensor,
    gain: Tensor | None,
    bias: Tensor | None,
    *,
    eps: float,
    activation: str | None = None,
) -> Tensor:
    """Return what `asrnorm.norms.reference.standardize_rescale` does, after an optional ReLU."""
    if _by_kernels(x):
        from asrnorm.kernels import moments_rescale

        parts = (mean, std, mean.new_ones(()) if gain is None else gain, mean.new_zeros(()) if bias is None else bias)
        vec = torch.stack([part.to(torch.float32).expand(x.shape[:2]) for part in parts])
        return moments_rescale.standardize_rescale(x, vec, eps, activation == "relu")
    y = reference.standardize_rescale(x, mean, std, gain, bias, eps=eps)
    return torch.relu(y) if activation == "relu" else y


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
    """Return switchable normalization of `(n, c, ...)` by a mixture of instance and layer statistics.

    The softmax of the logits, of instance and layer, weights their means and their variances.
    """
    if _by_untraced_kernels(x):
        from asrnorm.kernels.grouped import switch_norm as fused

        return fused(x, mean_logits, var_logits, gain, bias, eps, activation == "relu")
    with reference.full_precision(x):
        x, mean_nc, biased_nc = with_moments(x)
        moments = reference.sample_moments(mean_nc, biased_nc, math.prod(x.shape[2:]))
        vectors = reference.switched_vectors(moments, mean_logits, var_logits, gain, bias, eps=eps)
        return standardize_rescale(x, *vectors, eps=0.0, activation=activation)


def group_norm(
    x: Tensor, groups: int, gain: Tensor, bias: Tensor, *, eps: float, activation: str | None = None
) -> Tensor:
    """Return group normalization of `(n, c, ...)`, after an optional ReLU."""
    if _by_untraced_kernels(x):
        from asrnorm.kernels.grouped import group_norm as fused

        return fused(x, groups, gain, bias, eps, activation == "relu")
    with reference.full_precision(x):
        x, mean_nc, biased_nc = with_moments(x)
        mean, variance = reference.group_moments(mean_nc, biased_nc, groups)
        return standardize_rescale(x, mean, torch.sqrt(variance + eps), gain, bias, eps=0.0, activation=activation)
