"""The small linear layers inside norms, whose weights the fused kernels take instead of calling them.

ASR-Norm: adaptive standardization and rescaling.

Fan et al., CVPR 2021, section 3.2. The equations live in `asrnorm.norms.reference`; this file holds the parameters.

The two halves of ASR-Norm: AS (adaptive standardization) and AR (adaptive rescaling).

Fan et al., CVPR 2021, tables 5 and 9. The paper does not spell them out: AS keeps a static gain and bias, AR
standardizes by the sample's own statistics.
"""

import math
from numbers import Integral
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.utils.prune import BasePruningMethod
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.nn.utils.weight_norm import WeightNorm

from asrnorm.core.errors import InputError, InputTypeError
from asrnorm.norms import functional, reference
from asrnorm.norms.base import NORMS, affine_parameters, check_eps, spatial_size
from asrnorm.norms.confined import ConfinesShift

# Hooks that compute the weight anew before each call, and need nothing of what the layer is called with.
RENEWING = (BasePruningMethod, SpectralNorm, WeightNorm)


def read_dense(linear: nn.Module) -> reference.Dense:
    """Return weight and bias of a linear layer, as pruning, spectral or weight norm leave them.

    Raises:
        InputTypeError: something else stands in its place, such as a quantized layer or an adapter.

    Example:
        >>> [part.shape for part in read_dense(nn.Linear(2, 3))]
        [torch.Size([3, 2]), torch.Size([3])]
    """
    if not isinstance(linear, nn.Linear) or type(linear).forward is not nn.Linear.forward:
        raise InputTypeError(
            f"the networks inside a norm must be torch.nn.Linear layers, not {type(linear).__name__}: "
            "leave the norms out where a model is quantized or given adapters"
        )
    if linear._forward_pre_hooks:
        for hook in linear._forward_pre_hooks.values():
            if isinstance(hook, RENEWING):
                hook(linear, ())
    weight: Tensor = linear.weight
    return reference.Dense(weight, linear.bias)


Statistics = Literal["instance", "batch", "layer"]
STATISTICS = ("instance", "batch", "layer")


@NORMS.register("asr")
class ASRNorm2d(ConfinesShift):
    r"""ASR-Norm: each sample is standardized and rescaled by statistics that small networks learn from it.

    $\mu_\text{stan} = \lambda_\mu f(\mu) + (1-\lambda_\mu)\mu$,
    $\sigma_\text{stan} = \lambda_\sigma g(\sigma) + (1-\lambda_\sigma)\sigma$,
    $y = \frac{x-\mu_\text{stan}}{\sigma_\text{stan}+\epsilon}\,\gamma(\sigma) + \beta(\mu)$

    with $\mu, \sigma$ the mean and standard deviation of every channel of the sample. No statistic crosses samples,
    so training and evaluation compute the same function. Input `(N, C, ...)` with any number of spatial axes.

    Args:
        num_features: C.
        stan_ratio: C over the hidden size of the standardization networks, `max(1, C // ratio)`.
        rescale_ratio: likewise for the rescaling networks.
        rescale_features: their hidden size itself, where it should not depend on C.
        standardize: learn the standardization; off gives AR.
        rescale: learn the rescaling; off gives AS.
        residual: mix the learned standardization with the native one; off is the paper's failing ablation.
        gated_rescale: weigh the learned rescaling by `lambda_beta` and `lambda_gamma`, for networks trained with BN.
        bias: biases in the fully-connected layers.
        share_rescale_encoder: one encoder for gain and bias, as in the text; off fits the paper's parameter table.
        statistics: what the residual mixes in: the sample's statistics (`"instance"`, the paper), the batch's with
            running ones in evaluation (`"batch"`), or those over all channels of the sample (`"layer"`). The
            networks read the sample's in every case.
        per_channel_lambda: a lambda for each channel instead of one for the layer.
        lambda_init: logit of `lambda_mu` and `lambda_sigma` at the start.
        gate_init: logit of `lambda_beta` and `lambda_gamma` at the start.
        eps: under the root of sigma, and again beside `sigma_stan`.
        activation: `None` or `"relu"`, applied to the output.
        device: where the parameters lie.
        dtype: their dtype.

    Example:
        >>> layer = ASRNorm2d(64)
        >>> layer(torch.randn(8, 64, 16, 16)).shape
        torch.Size([8, 64, 16, 16])
    """

    fuses_relu = True

    def __init__(
        self,
        num_features: int,
        *,
        stan_ratio: int = 2,
        rescale_ratio: int = 16,
        rescale_features: int | None = None,
        standardize: bool = True,
        rescale: bool = True,
        residual: bool = True,
        gated_rescale: bool = False,
        bias: bool = True,
        share_rescale_encoder: bool = True,
        statistics: Statistics = "instance",
        per_channel_lambda: bool = False,
        lambda_init: float = -3.0,
        gate_init: float = -5.0,
        eps: float = 1e-5,
        activation: str | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.num_features = num_features
        self.stan_ratio, self.rescale_ratio, self.rescale_features = stan_ratio, rescale_ratio, rescale_features
        self.standardize, self.rescale, self.residual = standardize, rescale, residual
        self.gated_rescale, self.share_rescale_encoder = gated_rescale, share_rescale_encoder
        self.has_bias = bias
        self.statistics, self.per_channel_lambda = statistics, per_channel_lambda
        self.lambda_init, self.gate_init = lambda_init, gate_init
        self.eps = eps
        self.activation = activation
        self._check_options()
        factory: dict[str, Any] = {"device": device, "dtype": dtype}
        shape = num_features if per_channel_lambda else 1  # FSDP takes no parameter without axes

        def logit(value: float) -> nn.Parameter:
            return nn.Parameter(torch.full((shape,), float(value), **factory))

        if standardize:
            hidden = max(1, num_features // stan_ratio)
            self.stan_encoder = nn.Linear(num_features, hidden, bias, **factory)
            self.mu_decoder = nn.Linear(hidden, num_features, bias, **factory)
            self.sigma_decoder = nn.Linear(hidden, num_features, bias, **factory)
            if residual:
                self.lambda_mu, self.lambda_sigma = logit(lambda_init), logit(lambda_init)
        if rescale:
            hidden = rescale_features or max(1, num_features // rescale_ratio)
            if share_rescale_encoder:
                self.rescale_encoder = nn.Linear(num_features, hidden, bias, **factory)
            else:
                self.beta_encoder = nn.Linear(num_features, hidden, bias, **factory)
                self.gamma_encoder = nn.Linear(num_features, hidden, bias, **factory)
            self.beta_decoder = nn.Linear(hidden, num_features, bias, **factory)
            self.gamma_decoder = nn.Linear(hidden, num_features, bias, **factory)
            if gated_rescale:
                self.lambda_beta, self.lambda_gamma = logit(gate_init), logit(gate_init)
        self.gamma_bias, self.beta_bias = affine_parameters(num_features, **factory)
        self.start_free()
        if statistics == "batch":
            self.start_tracking(**factory)

    def _check_options(self) -> None:
        sizes = (self.num_features, self.stan_ratio, self.rescale_ratio, self.rescale_features or 1)
        if any(isinstance(size, bool) or not isinstance(size, Integral) for size in sizes):
            raise InputTypeError(f"{self.label()}: num_features, ratios and rescale_features are whole numbers")
        if not math.isfinite(self.lambda_init) or not math.isfinite(self.gate_init):
            raise InputError(f"{self.label()}: lambda_init and gate_init must be finite")
        if self.num_features < 1:
            raise InputError(f"{self.label()}: num_features must be at least 1")
        check_eps(self.eps)
        hidden = 1 if self.rescale_features is None else self.rescale_features
        if min(self.stan_ratio, self.rescale_ratio, hidden) < 1:
            raise InputError(f"{self.label()}: ratios and rescale_features must be at least 1")
        if self.statistics not in STATISTICS:
            raise InputError(
                f"{self.label()}: statistics must be one of {', '.join(STATISTICS)}, not {self.statistics!r}"
            )
        self.check_activation(self.activation)
        if self.gated_rescale and not self.rescale:
            raise InputError(
                f"{self.label()}: gated_rescale gates the learned rescaling, which rescale=False leaves out"
            )
        if self.statistics != "instance" and self.standardize and not self.residual:
            raise InputError(
                f"{self.label()}: statistics={self.statistics!r} enters by the residual term; residual=False has none"
            )

    def reset_parameters(self) -> None:
        """Put every parameter back to a fresh start, without limits."""
        self.confine(None, None)
        for module in self.children():
            module.reset_parameters()  # type: ignore[operator]
        if self.statistics == "batch":
            self.reset_tracking()
        with torch.no_grad():
            self.gamma_bias.fill_(1.0)
            self.beta_bias.zero_()
            for name, value in self._logit_starts().items():
                getattr(self, name).fill_(value)

    def _logit_starts(self) -> dict[str, float]:
        starts = {"lambda_mu": self.lambda_init, "lambda_sigma": self.lambda_init}
        starts |= {"lambda_beta": self.gate_init, "lambda_gamma": self.gate_init}
        return {name: value for name, value in starts.items() if hasattr(self, name)}

    def lambdas(self) -> dict[str, Tensor]:
        """Return the squashed lambdas by name, detached: what the paper's figures plot.

        Example:
            >>> {name: round(float(value), 4) for name, value in ASRNorm2d(4).lambdas().items()}
            {'lambda_mu': 0.0474, 'lambda_sigma': 0.0474}
        """
        return {name: torch.sigmoid(getattr(self, name).detach()) for name in self._logit_starts()}

    def affine_pair(self) -> tuple[Tensor, Tensor]:
        """Return `gamma_bias` and `beta_bias`."""
        return self.gamma_bias, self.beta_bias

    def forward(self, x: Tensor, activation: str | None = None) -> Tensor:
        """Return the normalized activations, in the shape, dtype and memory format of `x`.

        Args:
            x: `(n, c, ...)`.
            activation: `"relu"` applies it here, where the layer itself has none.
        """
        self.check_input(x)
        self.check_activation(activation)
        if not self.standardize and self.statistics == "instance":
            self.refuse_single_element(x, spatial_size(x), "channel")
        return functional.asr_norm(
            x,
            self.standardize_nets(),
            self.rescale_nets(),
            self.gamma_bias,
            self.beta_bias,
            native=self._native(x),
            limits=self.limits,
            eps=self.eps,
            activation=self.activation or activation,
        )

    def learned_statistics(self, x: Tensor) -> tuple[Tensor, Tensor] | None:
        """Return `mu_stan` and `sigma_stan` of every sample, `(n, c)` each; `None` where none are learned.

        Example:
            >>> [value.shape for value in ASRNorm2d(4).learned_statistics(torch.randn(2, 4, 3, 3))]
            [torch.Size([2, 4]), torch.Size([2, 4])]
        """
        self.check_input(x)
        nets = self.standardize_nets()
        if nets is None:
            return None
        with reference.full_precision(x):
            native = self._native(x, track=False)  # to look is not to train
            return reference.learned_standardization(*reference.channel_stats(x, self.eps), nets, native, self.limits)

    def learned_shift(self, x: Tensor) -> Tensor:
        """Return how far `mu_stan` is from each sample's mean, in the sample's deviations, `(n, c)`.

        Raises:
            InputError: the layer learns no standardization.
        """
        learned = self.learned_statistics(x)
        if learned is None:
            raise InputError(f"{self.label()}: it learns no standardization")
        with reference.full_precision(x):
            mean, std = reference.channel_stats(x, self.eps)
            return (learned[0] - mean) / std

    def standardize_nets(self) -> reference.StandardizeNets | None:
        """Return the weights of the standardization networks as `asrnorm.norms.reference` takes them."""
        if not self.standardize:
            return None
        return reference.StandardizeNets(
            read_dense(self.stan_encoder),
            read_dense(self.mu_decoder),
            read_dense(self.sigma_decoder),
            self.lambda_mu if self.residual else None,
            self.lambda_sigma if self.residual else None,
        )

    def rescale_nets(self) -> reference.RescaleNets | None:
        """Return the weights of the rescaling networks as `asrnorm.norms.reference` takes them."""
        if not self.rescale:
            return None
        shared = self.share_rescale_encoder
        return reference.RescaleNets(
            read_dense(self.rescale_encoder if shared else self.beta_encoder),
            read_dense(self.rescale_encoder if shared else self.gamma_encoder),
            read_dense(self.beta_decoder),
            read_dense(self.gamma_decoder),
            self.lambda_beta if self.gated_rescale else None,
            self.lambda_gamma if self.gated_rescale else None,
        )

    def _native(self, x: Tensor, *, track: bool = True) -> tuple[Tensor, Tensor] | None:
        if self.statistics == "instance":
            return None
        with reference.full_precision(x):
            moments = reference.channel_moments(x)
            if self.statistics == "batch":
                mean, variance = self.batch_moments(x, *moments, track=track)
            else:
                mean, variance = reference.pool_moments(*moments, dim=1)
            return mean, torch.sqrt(variance + self.eps)

    def read_option(self, name: str) -> Any:
        """Return an option of the constructor; `layer.bias` would be taken for a parameter by what looks for one."""
        return super().read_option("has_bias" if name == "bias" else name)


@NORMS.register("as")
class ASNorm2d(ASRNorm2d):
    """AS: learned standardization, static gain and bias (the paper's first ablation).

    Example:
        >>> ASNorm2d(8)(torch.randn(2, 8, 4, 4)).shape
        torch.Size([2, 8, 4, 4])
    """

    def __init__(
        self,
        num_features: int,
        *,
        stan_ratio: int = 2,
        residual: bool = True,
        bias: bool = True,
        statistics: Statistics = "instance",
        per_channel_lambda: bool = False,
        lambda_init: float = -3.0,
        eps: float = 1e-5,
        activation: str | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(
            num_features,
            stan_ratio=stan_ratio,
            rescale=False,
            residual=residual,
            bias=bias,
            statistics=statistics,
            per_channel_lambda=per_channel_lambda,
            lambda_init=lambda_init,
            eps=eps,
            activation=activation,
            device=device,
            dtype=dtype,
        )


@NORMS.register("ar")
class ARNorm2d(ASRNorm2d):
    """AR: the sample's own standardization, learned rescaling (the paper's second ablation).

    Example:
        >>> ARNorm2d(8)(torch.randn(2, 8, 4, 4)).shape
        torch.Size([2, 8, 4, 4])
    """

    def __init__(
        self,
        num_features: int,
        *,
        rescale_ratio: int = 16,
        rescale_features: int | None = None,
        gated_rescale: bool = False,
        bias: bool = True,
        share_rescale_encoder: bool = True,
        statistics: Statistics = "instance",
        per_channel_lambda: bool = False,
        gate_init: float = -5.0,
        eps: float = 1e-5,
        activation: str | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(
            num_features,
            rescale_ratio=rescale_ratio,
            rescale_features=rescale_features,
            standardize=False,
            gated_rescale=gated_rescale,
            bias=bias,
            share_rescale_encoder=share_rescale_encoder,
            statistics=statistics,
            per_channel_lambda=per_channel_lambda,
            gate_init=gate_init,
            eps=eps,
            activation=activation,
            device=device,
            dtype=dtype,
        )
