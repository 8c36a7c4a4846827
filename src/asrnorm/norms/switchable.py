"""Learned mixtures of normalizations: switchable (SN) and batch-instance normalization (BIN).

Luo et al., *Differentiable Learning-to-Normalize via Switchable Normalization*, 2019; Nam and Kim, *Batch-Instance
Normalization for Adaptively Style-Invariant Neural Networks*, 2018.
"""

import torch
from torch import Tensor, nn

from asrnorm.norms import functional, reference
from asrnorm.norms.base import NORMS, AffineNorm, clamp_gate, preset, spatial_size
from asrnorm.norms.batch import TracksBatch


@NORMS.register("sn")
class SwitchNorm(AffineNorm, TracksBatch):
    r"""SN: mean and variance are softmax-weighted mixtures of those of IN, LN and BN.

    $y = \frac{x - \sum_k w_k \mu_k}{\sqrt{\sum_k w'_k \sigma^2_k + \epsilon}} \gamma + \beta$

    As in its authors' code, and unlike the remark in the ASR-Norm paper, variances are mixed rather than deviations;
    the instance variance is the unbiased one, and the layer and batch variances are pooled from it.

    Args:
        num_features: C.
        batch: include BN in the mixture; without it samples are independent (`sn_in_ln`).
        eps: added to the mixed variance.
        momentum: weight of the newest batch in the running statistics; `None` averages over all batches.
        device: device of the parameters.
        dtype: dtype of the parameters.

    Example:
        >>> SwitchNorm(8)(torch.randn(2, 8, 4, 4)).shape
        torch.Size([2, 8, 4, 4])
    """

    fuses_relu = True

    def __init__(
        self,
        num_features: int,
        *,
        batch: bool = True,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(num_features, eps, device, dtype)
        self.batch, self.momentum = batch, momentum
        count = 3 if batch else 2
        self.mean_logits = nn.Parameter(torch.ones(count, device=device, dtype=dtype))
        self.var_logits = nn.Parameter(torch.ones(count, device=device, dtype=dtype))
        if batch:
            self.start_tracking(device=device, dtype=dtype)

    def reset_parameters(self) -> None:
        """Reset every parameter and the running statistics."""
        super().reset_parameters()
        with torch.no_grad():
            self.mean_logits.fill_(1.0)
            self.var_logits.fill_(1.0)
        if self.batch:
            self.reset_tracking()

    def forward(self, x: Tensor, activation: str | None = None) -> Tensor:
        """Return the normalized activations, after a ReLU if `activation="relu"`."""
        self.check_input(x)
        self.check_activation(activation)
        size = spatial_size(x)
        self.check_several_values(x, size, "channel")
        parameters = (self.mean_logits, self.var_logits, self.weight, self.bias)
        if not self.batch:
            return functional.switch_norm(x, *parameters, eps=self.eps, activation=activation)
        with reference.full_precision(x):
            x, mean_nc, biased_nc = functional.with_moments(x)
            moments = reference.sample_moments(mean_nc, biased_nc, size)
            moments.append(self.batch_moments(x, *moments[0]))
            vectors = reference.switched_vectors(moments, *parameters, eps=self.eps)
            return functional.standardize_rescale(x, *vectors, eps=0.0, activation=activation)

    def tracked_variance(self, variance: Tensor, count: int | Tensor) -> Tensor:  # noqa: ARG002
        """Return the variance to track: unchanged, because it is pooled from unbiased ones."""
        return variance


@NORMS.register("sn_in_ln")
class SwitchNormInLn(SwitchNorm):
    """SN without BN: a mixture of IN and LN, the form in the paper's CIFAR comparison.

    Example:
        >>> SwitchNormInLn(8)(torch.randn(2, 8, 4, 4)).shape
        torch.Size([2, 8, 4, 4])
    """

    __init__ = preset(SwitchNorm, batch=False, without=["momentum"])


@NORMS.register("bin")
class BatchInstanceNorm(AffineNorm, TracksBatch):
    r"""BIN: a learned gate in [0, 1] for each channel, between BN and IN.

    $y = (\rho\, \mathrm{BN}(x) + (1-\rho)\, \mathrm{IN}(x))\, \gamma + \beta$

    The gates start at one (pure BN). Its authors clamp them to [0, 1] after each update; this layer clamps them at the
    start of each training forward, and for use in evaluation, so that a training loop needs no extra call.

    Args:
        num_features: C.
        eps: added to the variances.
        momentum: weight of the newest batch in the running statistics; `None` averages over all batches.
        device: device of the parameters.
        dtype: dtype of the parameters.

    Example:
        >>> BatchInstanceNorm(8)(torch.randn(2, 8, 4, 4)).shape
        torch.Size([2, 8, 4, 4])
    """

    def __init__(
        self,
        num_features: int,
        *,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(num_features, eps, device, dtype)
        self.momentum = momentum
        self.gate = nn.Parameter(torch.ones(num_features, device=device, dtype=dtype))
        self.start_tracking(device=device, dtype=dtype)

    def reset_parameters(self) -> None:
        """Reset every parameter and the running statistics."""
        super().reset_parameters()
        with torch.no_grad():
            self.gate.fill_(1.0)
        self.reset_tracking()

    def forward(self, x: Tensor) -> Tensor:
        """Return the normalized activations."""
        self.check_input(x)
        self.check_several_values(x, spatial_size(x), "channel")
        with reference.full_precision(x):
            mean_nc, variance_nc = reference.channel_moments(x)
            mean, variance = self.batch_moments(x, mean_nc, variance_nc)
            values = (clamp_gate(self.gate, training=self.training), self.weight, self.bias)
            gate, gain, bias = (reference.per_channel(value.to(mean_nc.dtype), x) for value in values)
            wide = x.to(mean_nc.dtype)
            from_batch = self._standardize(wide, mean, variance)
            from_instance = self._standardize(wide, mean_nc, variance_nc)
            return ((gate * from_batch + (1 - gate) * from_instance) * gain + bias).to(x.dtype)

    def _standardize(self, x: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
        return functional.standardize_rescale(x, mean, torch.sqrt(variance + self.eps), None, None, eps=0.0)
