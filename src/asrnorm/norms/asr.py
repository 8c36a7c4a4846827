"""ASR-Norm, adaptive standardization and rescaling, and its two halves AS and AR.

Fan et al., CVPR 2021, section 3.2; AS and AR are the ablations of tables 5 and 9. The equations are in
`asrnorm.norms.reference`; this file holds the parameters. The paper does not spell AS and AR out: here AS keeps a
static gain and bias, and AR standardizes by the sample's own statistics.
"""

import math
from numbers import Integral
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn.utils.prune import BasePruningMethod
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.nn.utils.weight_norm import WeightNorm

from asrnorm.core.errors import InputError, InputTypeError
from asrnorm.norms import functional, reference
from asrnorm.norms.base import NORMS, affine_parameters, check_number, check_sizes, preset, spatial_size
from asrnorm.norms.batch import TracksBatch

Statistics = Literal["instance", "batch", "layer"]

WEIGHT_HOOKS = (BasePruningMethod, SpectralNorm, WeightNorm)
"""Forward pre-hooks that recompute a layer's weight and ignore its input."""

LIMITS = ("shift_least", "shift_most")
"""Buffers that only a confined layer has; `load_state_dict` adds and removes them."""


@NORMS.register("asr")
class ASRNorm2d(TracksBatch):
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
        rescale_features: hidden size of the rescaling networks, in place of `rescale_ratio`.
        standardize: learn the standardization; `False` gives AR.
        rescale: learn the rescaling; `False` gives AS.
        residual: mix the learned standardization with the native one; `False` is the paper's failing ablation.
        gated_rescale: weight the learned rescaling by `lambda_beta` and `lambda_gamma`, for networks trained with BN.
        bias: use biases in the fully-connected layers.
        share_rescale_encoder: use one encoder for gain and bias, as in the paper's text; its parameter table fits two.
        statistics: what the residual mixes in: the sample's statistics (`"instance"`, the paper), the batch's with
            running ones in evaluation (`"batch"`), or those over all channels of the sample (`"layer"`), which 1x1
            maps get in any case but the second. The networks always read the sample's.
        per_channel_lambda: learn a lambda for each channel instead of one for the layer.
        lambda_init: initial logit of `lambda_mu` and `lambda_sigma`.
        gate_init: initial logit of `lambda_beta` and `lambda_gamma`.
        eps: added under the root of sigma, and again to `sigma_stan`.
        activation: `None` or `"relu"`, applied to the output.
        device: device of the parameters.
        dtype: dtype of the parameters.

    Example:
        >>> layer = ASRNorm2d(64)
        >>> layer(torch.randn(8, 64, 16, 16)).shape
        torch.Size([8, 64, 16, 16])
    """

    fuses_relu = True
    shift_least: Tensor | None
    shift_most: Tensor | None

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
        for name in LIMITS:
            self.register_buffer(name, None)
        if statistics == "batch":
            self.start_tracking(**factory)

    def _check_options(self) -> None:
        check_sizes(self.num_features, self.eps)
        hidden = 1 if self.rescale_features is None else self.rescale_features
        sizes = (self.stan_ratio, self.rescale_ratio, hidden)
        if any(isinstance(size, bool) or not isinstance(size, Integral) for size in sizes):
            raise InputTypeError(f"{self.label()}: ratios and rescale_features must be whole numbers")
        check_number("lambda_init", self.lambda_init)
        check_number("gate_init", self.gate_init)
        self.check_activation(self.activation)
        known = get_args(Statistics)
        gates_nothing = self.gated_rescale and not self.rescale
        mixes_nothing = self.statistics != "instance" and self.standardize and not self.residual
        problems = {
            "ratios and rescale_features must be at least 1": min(sizes) < 1,
            "lambda_init and gate_init must be finite": not math.isfinite(self.lambda_init + self.gate_init),
            f"statistics must be one of {', '.join(known)}, not {self.statistics!r}": self.statistics not in known,
            "gated_rescale gates the learned rescaling, which rescale=False leaves out": gates_nothing,
            f"statistics={self.statistics!r} enters by the residual term; residual=False has none": mixes_nothing,
        }
        for message, is_found in problems.items():
            if is_found:
                raise InputError(f"{self.label()}: {message}")

    def reset_parameters(self) -> None:
        """Reset every parameter and the running statistics, and remove the limits."""
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
        """Return the lambdas by name, after the sigmoid and detached, as in the paper's figures.

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
            activation: `"relu"` applies a ReLU if the layer has no activation of its own.
        """
        self.check_input(x)
        self.check_activation(activation)
        if not self.standardize and self.statistics == "instance":
            self.check_several_values(x, spatial_size(x), "channel")
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
        """Return `mu_stan` and `sigma_stan` of every sample, `(n, c)` each; `None` if the layer learns none.

        Example:
            >>> [value.shape for value in ASRNorm2d(4).learned_statistics(torch.randn(2, 4, 3, 3))]
            [torch.Size([2, 4]), torch.Size([2, 4])]
        """
        self.check_input(x)
        nets = self.standardize_nets()
        if nets is None:
            return None
        with reference.full_precision(x):
            native = self._native(x, track=False)
            stats = reference.channel_stats(x, self.eps)
            return reference.learned_standardization(*stats, nets, native, self.limits, eps=self.eps)

    def learned_shift(self, x: Tensor) -> Tensor:
        """Return the distance of `mu_stan` from each sample's mean in standard deviations of the sample, `(n, c)`.

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
        parts, has_lambdas = self._modules, self.residual  # its own lookup takes the host several times as long
        return reference.StandardizeNets(
            read_dense(parts["stan_encoder"]),
            read_dense(parts["mu_decoder"]),
            read_dense(parts["sigma_decoder"]),
            self._logit("lambda_mu") if has_lambdas else None,
            self._logit("lambda_sigma") if has_lambdas else None,
        )

    def rescale_nets(self) -> reference.RescaleNets | None:
        """Return the weights of the rescaling networks as `asrnorm.norms.reference` takes them."""
        if not self.rescale:
            return None
        parts, has_gates = self._modules, self.gated_rescale
        first, second = ("rescale_encoder",) * 2 if self.share_rescale_encoder else ("beta_encoder", "gamma_encoder")
        beta_encoder = read_dense(parts[first])
        return reference.RescaleNets(
            beta_encoder,
            beta_encoder if second == first else read_dense(parts[second]),
            read_dense(parts["beta_decoder"]),
            read_dense(parts["gamma_decoder"]),
            self._logit("lambda_beta") if has_gates else None,
            self._logit("lambda_gamma") if has_gates else None,
        )

    def _logit(self, name: str) -> Tensor:
        logit = self._parameters.get(name)
        return getattr(self, name) if logit is None else logit  # a parametrized one is no longer among them

    def _native(self, x: Tensor, *, track: bool = True) -> tuple[Tensor, Tensor] | None:
        if self.statistics == "instance" and (not self.standardize or spatial_size(x) > 1):
            return None
        with reference.full_precision(x):
            moments = reference.channel_moments(x)
            if self.statistics == "batch":
                mean, variance = self.batch_moments(x, *moments, track=track)
            else:
                mean, variance = reference.pool_moments(*moments, dim=1)
            return mean, torch.sqrt(variance + self.eps)

    @property
    def limits(self) -> tuple[Tensor, Tensor] | None:
        """The range of `mu_stan` around the sample's mean, in standard deviations; `None` as in the paper."""
        return None if self.shift_least is None or self.shift_most is None else (self.shift_least, self.shift_most)

    def confine(self, least: Tensor | None, most: Tensor | None) -> None:
        """Clamp `mu_stan` to a range around the sample's mean; `None` for both removes the limits.

        Paper: has no such limits. They are saved with the weights; `asrnorm.confine` measures them on source images.

        Args:
            least: lower limit in standard deviations of the sample, `(c,)`.
            most: upper limit, likewise.

        Raises:
            InputError: the layer learns no standardization, one limit is missing, or a shape is wrong.

        Example:
            >>> layer = ASRNorm2d(2)
            >>> layer.confine(-torch.ones(2), torch.ones(2))
            >>> sorted(name for name, _ in layer.named_buffers())
            ['shift_least', 'shift_most']
        """
        if least is not None and most is not None:
            if not self.standardize:
                raise InputError(f"{self.label()}: it learns no standardization to confine")
            shapes = {tuple(least.shape), tuple(most.shape)}
            if shapes != {(self.num_features,)} or not bool((least <= most).all()):  # also false for NaN
                raise InputError(f"{self.label()}: limits must have shape ({self.num_features},), with least <= most")
            like = self.gamma_bias
            with torch.inference_mode(False):  # autograd rejects tensors made in that mode
                least, most = (limit.detach().clone().to(like.device, like.dtype) for limit in (least, most))
        elif least is not None or most is not None:
            raise InputError(f"{self.label()}: give both limits, or None for both")
        self.shift_least, self.shift_most = least, most

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore a pickled layer, including one of a version without limits."""
        super().__setstate__(state)
        for name in LIMITS:
            self._buffers.setdefault(name, None)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        """Load limits that are part of the weights; weights without limits remove them."""
        given = [state_dict[key] for name in LIMITS if (key := f"{prefix}{name}") in state_dict]
        if not given and f"{prefix}gamma_bias" in state_dict:
            self.shift_least = self.shift_most = None
        if self.standardize and self.limits is None and len(given) == len(LIMITS):
            shapes = [tuple(limit.shape) for limit in given]
            if set(shapes) == {(self.num_features,)}:
                like = self.gamma_bias
                with torch.inference_mode(False):
                    # Plain tensors, even if the parameters are sharded.
                    self.shift_least, self.shift_most = (
                        torch.zeros(self.num_features, device=like.device, dtype=like.dtype) for _ in LIMITS
                    )
            else:
                rest[-1].append(f"size mismatch for {prefix}{LIMITS[0]}: {shapes}, expected ({self.num_features},)")
        super()._load_from_state_dict(state_dict, prefix, *rest)

    def read_option(self, name: str) -> Any:
        """Return a constructor option by name.

        `bias` is stored as `has_bias`, because code that inspects modules expects `layer.bias` to be a parameter.
        """
        return super().read_option("has_bias" if name == "bias" else name)


@NORMS.register("as")
class ASNorm2d(ASRNorm2d):
    """AS: learned standardization, static gain and bias (the paper's first ablation).

    Example:
        >>> ASNorm2d(8)(torch.randn(2, 8, 4, 4)).shape
        torch.Size([2, 8, 4, 4])
    """

    __init__ = preset(
        ASRNorm2d,
        rescale=False,
        without=(
            *("standardize", "rescale_ratio", "rescale_features", "gated_rescale"),
            *("share_rescale_encoder", "gate_init"),
        ),
    )


@NORMS.register("ar")
class ARNorm2d(ASRNorm2d):
    """AR: the sample's own standardization, learned rescaling (the paper's second ablation).

    Example:
        >>> ARNorm2d(8)(torch.randn(2, 8, 4, 4)).shape
        torch.Size([2, 8, 4, 4])
    """

    __init__ = preset(ASRNorm2d, standardize=False, without=("rescale", "stan_ratio", "residual", "lambda_init"))


def read_dense(linear: nn.Module | None) -> reference.Dense:
    """Return weight and bias of a linear layer, after pruning, spectral norm or weight norm; kernels take these.

    A layer that is not plain, such as a quantized one or an adapter, raises `InputTypeError`.
    """
    if type(linear) is nn.Linear and not linear._forward_pre_hooks:
        own = linear._parameters  # a third of the time that the module's own lookup takes the host
        if "weight" in own and "bias" in own:
            return reference.Dense(own["weight"], own["bias"])  # type: ignore[arg-type]
    if not isinstance(linear, nn.Linear) or type(linear).forward is not nn.Linear.forward:
        raise InputTypeError(
            f"the networks inside a norm must be torch.nn.Linear layers, not {type(linear).__name__}: "
            "leave norms out when you quantize a model or add adapters"
        )
    for hook in linear._forward_pre_hooks.values():
        if isinstance(hook, WEIGHT_HOOKS):
            hook(linear, ())
    weight: Tensor = linear.weight
    return reference.Dense(weight, linear.bias)
