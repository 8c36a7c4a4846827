r"""The equations of the norm layers in plain PyTorch: any float dtype, any device, twice differentiable.

Fan et al., *Adversarially Adaptive Normalization for Single Domain Generalization*, CVPR 2021, section 3;
Luo et al., *Differentiable Learning-to-Normalize via Switchable Normalization*, ICLR 2019. Every faster implementation
is tested against this file.

Shapes in names: `n` sample, `c` channel, `h` hidden unit, `...` any number of spatial axes.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

ACTIVATIONS = (None, "relu")

REACH = 32.0
"""Most deviations of a sample's own mean from the learned one, where the residual term mixes both."""

Moments = tuple[Tensor, Tensor]
"""A mean and a variance, which broadcast to `(n, c)`."""


class Dense(NamedTuple):
    """Weight `(out, in)` and optional bias of one fully-connected layer."""

    weight: Tensor
    bias: Tensor | None = None


class StandardizeNets(NamedTuple):
    """The standardization networks f and g; both lambdas are logits, `None` without the residual term."""

    encoder: Dense
    mu_decoder: Dense
    sigma_decoder: Dense
    lambda_mu: Tensor | None
    lambda_sigma: Tensor | None


class RescaleNets(NamedTuple):
    """The rescaling networks psi and phi; both lambdas are logits, `None` where the first terms have no gate."""

    beta_encoder: Dense
    gamma_encoder: Dense
    beta_decoder: Dense
    gamma_decoder: Dense
    lambda_beta: Tensor | None = None
    lambda_gamma: Tensor | None = None


def compute_dtype(x: Tensor) -> torch.dtype:
    """Return the dtype of the computation: float64 for float64, otherwise float32."""
    return torch.float64 if x.dtype == torch.float64 else torch.float32


@contextmanager
def full_precision(x: Tensor) -> Iterator[None]:
    """Switch autocast off for the device of `x`, so that statistics and small networks keep `compute_dtype`."""
    device = x.device.type
    # Entered only where autocast is on, so that an exported graph stays free of the context. The compiler of torch 2.11
    # cannot tell whether autocast is on for a GPU.
    if device != "meta" and (torch.compiler.is_dynamo_compiling() or torch.is_autocast_enabled(device)):
        with torch.autocast(device, enabled=False):
            yield
    else:
        yield


def per_channel(statistic: Tensor, like: Tensor) -> Tensor:
    """Append the spatial axes of `like` to a `(n, c)` or `(c,)` statistic, so that it broadcasts."""
    return statistic.reshape(statistic.shape + (1,) * (like.ndim - 2))


def channel_moments(x: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and biased variance of every channel of every sample, `(n, c)` each, in `compute_dtype`.

    Without spatial axes every channel is a single value, whose variance is zero. A variance that overflows is the
    largest number of the dtype.
    """
    x = x.to(compute_dtype(x))
    if x.ndim == 2:
        x = x.unsqueeze(-1)
    spatial = tuple(range(2, x.ndim))
    if x.shape[0] == 0:  # var_mean would warn of an empty batch
        mean = x.mean(spatial)
        return mean, torch.zeros_like(mean)
    variance, mean = torch.var_mean(x, dim=spatial, correction=0)
    return mean, variance.clamp(max=torch.finfo(x.dtype).max)


def pool_moments(mean: Tensor, variance: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """Pool the moments of equally large parts along `dim`, which keeps size one.

    Within plus between: E[x^2] - E[x]^2 would lose all digits where the mean is large.
    """
    pooled = mean.mean(dim, keepdim=True)
    return pooled, variance.mean(dim, keepdim=True) + (mean - pooled).square().mean(dim, keepdim=True)


def channel_stats(x: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    r"""Mean and standard deviation of every channel of every sample (equation 5).

    $\mu_{nc} = \mathrm{mean}(x_{nc})$, $\sigma_{nc} = \sqrt{\mathrm{var}(x_{nc}) + \epsilon}$ with the biased variance.

    Args:
        x: activations `(n, c, ...)`; float16 and bfloat16 are accumulated in float32.
        eps: added under the root. Paper: has none there; without it a constant channel has an infinite gradient.

    Returns:
        `(mean, std)`, `(n, c)` each, in `compute_dtype`.

    Example:
        >>> mean, std = channel_stats(torch.ones(2, 3, 4, 4), eps=0.0)
        >>> mean.shape, float(std.max())
        (torch.Size([2, 3]), 0.0)
    """
    mean, variance = channel_moments(x)
    return mean, torch.sqrt(variance + eps)


def standardize_rescale(
    x: Tensor, mean: Tensor, std: Tensor, gain: Tensor | None, bias: Tensor | None, *, eps: float
) -> Tensor:
    r"""The general form of a normalization layer (equation 3); all norm layers are special cases.

    $y = \frac{x - \mu_\text{stan}}{\sigma_\text{stan} + \epsilon} \gamma + \beta$

    Args:
        x: `(n, c, ...)`.
        mean: the subtrahend, broadcastable to `(n, c)`.
        std: the divisor, likewise.
        gain: gamma, likewise; `None` for one.
        bias: beta, likewise; `None` for zero.
        eps: added to `std`, outside any root.

    Returns:
        A tensor of the shape, dtype and memory format of `x`, computed in `compute_dtype`.
    """
    dtype = compute_dtype(x)
    y = (x.to(dtype) - per_channel(mean, x)) / per_channel(std + eps, x)
    if gain is not None:
        y = y * per_channel(gain, x)
    if bias is not None:
        y = y + per_channel(bias, x)
    return y.to(x.dtype)


def _dense(values: Tensor, layer: Dense) -> Tensor:
    bias = None if layer.bias is None else layer.bias.to(values.dtype)
    return F.linear(values, layer.weight.to(values.dtype), bias)


def _encode_decode(statistic_nc: Tensor, encoder: Dense, decoder: Dense) -> Tensor:
    return _dense(F.relu(_dense(statistic_nc, encoder)), decoder)


def _gate(logit: Tensor | None, like: Tensor) -> Tensor | float:
    # The only place where the logits are squashed.
    return 1.0 if logit is None else torch.sigmoid(logit.to(like.dtype))


def learned_standardization(
    mean_nc: Tensor,
    std_nc: Tensor,
    nets: StandardizeNets,
    native: tuple[Tensor, Tensor] | None = None,
    limits: tuple[Tensor, Tensor] | None = None,
    *,
    eps: float = 1e-5,
) -> tuple[Tensor, Tensor]:
    r"""The statistics $\mu_\text{stan}, \sigma_\text{stan}$ by which a sample is standardized (equations 6 and 7).

    $\mu_\text{stan} = \lambda_\mu f_\text{dec}(\mathrm{ReLU}(f_\text{enc}(\mu))) + (1 - \lambda_\mu) \mu$,
    $\sigma_\text{stan} = \lambda_\sigma \mathrm{ReLU}(g_\text{dec}(\mathrm{ReLU}(f_\text{enc}(\sigma))))
    + (1 - \lambda_\sigma) \sigma$

    With the residual term, $\mu_\text{stan}$ is at most $32\,\mathrm{var} / \sigma$ away from $\mu$: 32 deviations, and
    nothing on a constant channel. Paper: has no such bound, and divides the distance by almost zero there.

    Args:
        mean_nc: the sample's own means, which the networks read.
        std_nc: the sample's own standard deviations, likewise.
        nets: the weights; without lambdas there is no residual term.
        native: the statistics of the residual terms; the sample's own where `None`.
        limits: lower and upper bound of `mu_stan` relative to the sample's mean, in its standard deviations, `(c,)`
            each. Paper: has none.
        eps: what the variance was increased by under the root of `std_nc`.

    Returns:
        `(mu_stan, sigma_stan)`, `(n, c)` each.
    """
    mu_stan = _encode_decode(mean_nc, nets.encoder, nets.mu_decoder)
    sigma_stan = F.relu(_encode_decode(std_nc, nets.encoder, nets.sigma_decoder))
    if nets.lambda_mu is not None and nets.lambda_sigma is not None:
        native_mean, native_std = (mean_nc, std_nc) if native is None else native
        gate_mu, gate_sigma = _gate(nets.lambda_mu, mean_nc), _gate(nets.lambda_sigma, std_nc)
        reach = REACH * (native_std - eps / native_std if eps else native_std)
        mu_stan = _clamp(gate_mu * mu_stan + (1 - gate_mu) * native_mean, native_mean - reach, native_mean + reach)
        sigma_stan = gate_sigma * sigma_stan + (1 - gate_sigma) * native_std
    if limits is not None:
        mu_stan = _clamp(mu_stan, *(mean_nc + limit.to(std_nc.dtype) * std_nc for limit in limits))
    return mu_stan, sigma_stan


def _clamp(values: Tensor, least: Tensor, most: Tensor) -> Tensor:
    return torch.minimum(torch.maximum(values, least), most)


def learned_rescaling(
    mean_nc: Tensor, std_nc: Tensor, nets: RescaleNets, gamma_bias: Tensor, beta_bias: Tensor
) -> tuple[Tensor, Tensor]:
    r"""The gain and bias of a sample (equation 8; with gates, equation 9, for networks that were trained with BN).

    $\beta = \lambda_\beta \tanh(\psi_\text{dec}(\mathrm{ReLU}(\psi_\text{enc}(\mu)))) + \beta_\text{bias}$,
    $\gamma = \lambda_\gamma \mathrm{sigmoid}(\phi_\text{dec}(\mathrm{ReLU}(\phi_\text{enc}(\sigma))))
    + \gamma_\text{bias}$

    Returns:
        `(gamma, beta)`, `(n, c)` each.
    """
    beta = torch.tanh(_encode_decode(mean_nc, nets.beta_encoder, nets.beta_decoder))
    gamma = torch.sigmoid(_encode_decode(std_nc, nets.gamma_encoder, nets.gamma_decoder))
    beta = _gate(nets.lambda_beta, beta) * beta + beta_bias.to(beta.dtype)
    gamma = _gate(nets.lambda_gamma, gamma) * gamma + gamma_bias.to(gamma.dtype)
    return gamma, beta


def learned_vectors(
    mean_nc: Tensor,
    std_nc: Tensor,
    standardize: StandardizeNets | None,
    rescale: RescaleNets | None,
    gamma_bias: Tensor,
    beta_bias: Tensor,
    native: tuple[Tensor, Tensor] | None = None,
    limits: tuple[Tensor, Tensor] | None = None,
    *,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return mu_stan, sigma_stan, gamma and beta of a sample; arguments as in `asr_norm`."""
    mu_stan, sigma_stan = (mean_nc, std_nc) if native is None else native
    if standardize is not None:
        mu_stan, sigma_stan = learned_standardization(mean_nc, std_nc, standardize, native, limits, eps=eps)
    gamma, beta = gamma_bias.to(mean_nc.dtype), beta_bias.to(mean_nc.dtype)
    if rescale is not None:
        gamma, beta = learned_rescaling(mean_nc, std_nc, rescale, gamma_bias, beta_bias)
    return mu_stan, sigma_stan, gamma, beta


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
    """ASR-Norm of `x`: statistics, the four networks, standardization, rescaling and an optional ReLU.

    Args:
        x: `(n, c, ...)`.
        standardize: weights of f and g; `None` standardizes by the native statistics.
        rescale: weights of psi and phi; `None` rescales by the two biases alone.
        gamma_bias: `(c,)`.
        beta_bias: `(c,)`.
        native: statistics of the residual terms in place of the sample's own, which the networks still read.
        limits: bounds of the learned mean, as in `learned_standardization`.
        eps: added under the root of the standard deviation, and again to `sigma_stan`.
        eps_out: added to `sigma_stan` in place of `eps`; plain instance normalization adds zero.
        activation: `None` or `"relu"`.

    Returns:
        A tensor of the shape, dtype and memory format of `x`.
    """
    with full_precision(x):
        mean_nc, std_nc = channel_stats(x, eps)
        nets = standardize, rescale, gamma_bias, beta_bias
        vectors = learned_vectors(mean_nc, std_nc, *nets, native, limits, eps=eps)
        y = standardize_rescale(x, *vectors, eps=eps if eps_out is None else eps_out)
        return F.relu(y) if activation == "relu" else y


def group_moments(mean_nc: Tensor, variance_nc: Tensor, groups: int) -> Moments:
    """Return mean and biased variance of the group that each channel of each sample belongs to, `(n, c)` each."""
    num, channels = mean_nc.shape
    grouped = num, groups, channels // groups
    mean, variance = pool_moments(mean_nc.reshape(grouped), variance_nc.reshape(grouped), dim=2)
    return mean.expand(grouped).reshape(num, channels), variance.expand(grouped).reshape(num, channels)


def sample_moments(mean_nc: Tensor, biased_nc: Tensor, count: int) -> list[Moments]:
    """Return the moments of instance and layer, with the unbiased variance of the instance as in the authors' code.

    `biased_nc` is the biased variance of every channel of every sample over `count` positions, two or more.
    """
    variance_nc = biased_nc * (count / (count - 1))
    return [(mean_nc, variance_nc), pool_moments(mean_nc, variance_nc, dim=1)]


def switched_vectors(
    moments: Sequence[Moments], mean_logits: Tensor, var_logits: Tensor, gain: Tensor, bias: Tensor, *, eps: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    r"""Return mean, standard deviation, gain and bias of switchable normalization.

    $\mu = \sum_k w_k \mu_k$, $\sigma = \sqrt{\sum_k w'_k \sigma^2_k + \epsilon}$ over the kinds $k$ of `moments`, with
    $w$ and $w'$ the softmax of the logits.
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
