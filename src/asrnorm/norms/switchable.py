"""Statistics of the batch in training, running ones in evaluation, for layers that mix them with others.

Switchable normalization: a learned mixture of IN, LN and BN statistics.

Luo et al., *Differentiable Learning-to-Normalize via Switchable Normalization*, 2019.
"""

from typing import Any

import torch
from torch import Tensor, nn

from asrnorm.norms import functional, reference
from asrnorm.norms.base import (
    NORMS,
    NormLayer,
    affine_parameters,
    check_eps,
    join_processes,
    reset_affine,
    spatial_size,
    weigh_newest,
)


class TracksBatch(NormLayer):
    """A norm layer that keeps running statistics under the names that `torch.nn.BatchNorm2d` gives them."""

    momentum: float | None = 0.1
    running_mean: Tensor
    running_var: Tensor
    num_batches_tracked: Tensor

    def start_tracking(self, **factory: Any) -> None:
        """Register the running statistics."""
        self.register_buffer("running_mean", torch.zeros(self.num_features, **factory))
        self.register_buffer("running_var", torch.ones(self.num_features, **factory))
        count = torch.tensor(0, dtype=torch.long, device=factory.get("device"))
        self.register_buffer("num_batches_tracked", count)

    def reset_tracking(self) -> None:
        """Forget all batches."""
        self.running_mean.zero_()
        self.running_var.fill_(1.0)
        self.num_batches_tracked.zero_()

    def batch_moments(
        self, x: Tensor, mean_nc: Tensor, variance_nc: Tensor, *, track: bool = True
    ) -> tuple[Tensor, Tensor]:
        """Return mean and variance of the batch, `(1, c)` each; in evaluation the running ones.

        Args:
            x: the input the moments were taken from.
            mean_nc: means of its samples' channels.
            variance_nc: their variances; what is tracked is joined from these as they are, and corrected to the
                unbiased estimate as BatchNorm does where they are biased.
            track: let the running statistics follow.
        """
        # Where processes share a batch, one without samples takes part: the others wait for it.
        if not self.training or (x.shape[0] == 0 and self.process_sum is None):
            dtype = mean_nc.dtype
            return self.running_mean.to(dtype)[None], self.running_var.to(dtype)[None]
        samples: int | Tensor = x.shape[0]
        if self.process_sum is None:
            self.refuse_single_element(x, x.shape[0] * spatial_size(x), "channel of the batch")
            mean, variance = reference.pool_moments(mean_nc, variance_nc, dim=0)
        else:
            mean, variance, samples = join_processes(mean_nc, variance_nc, self.process_sum)
        if not track:
            return mean, variance
        with torch.no_grad():
            self.num_batches_tracked.add_(1)
            momentum = weigh_newest(self.momentum, self.num_batches_tracked)
            self.running_mean.lerp_(mean[0].to(self.running_mean.dtype), momentum)
            tracked = self.tracked_variance(variance, samples * spatial_size(x))[0]
            self.running_var.lerp_(tracked.to(self.running_var.dtype), momentum)
        return mean, variance

    def tracked_variance(self, variance: Tensor, count: int | Tensor) -> Tensor:
        """Return the variance to track: the unbiased estimate from a biased one over `count` values."""
        return variance * (count / (count - 1))


@NORMS.register("sn")
class SwitchNorm(TracksBatch):
    r"""SN: mean and variance are softmax-weighted mixtures of those of IN, LN and BN.

    $y = \frac{x - \sum_k w_k \mu_k}{\sqrt{\sum_k w'_k \sigma^2_k + \epsilon}} \gamma + \beta$

    As its authors do, and unlike the remark in the ASR-Norm paper, variances are mixed rather than deviations; the
    instance variance is the unbiased one, and those of layer and batch are joined from it.

    Args:
        num_features: C.
        batch: mix BN in; without it the layer does not look at other samples (`sn_in_ln`).
        eps: added to the mixed variance.
        momentum: weight of the newest batch in the running statistics; `None` averages over all batches.
        device: where the parameters lie.
        dtype: their dtype.

    Example:
        >>> SwitchNorm(8)(torch.randn(2, 8, 4, 4)).shape
        torch.Size([2, 8, 4, 4])
    """

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
        super().__init__()
        check_eps(eps)
        self.num_features, self.batch, self.eps, self.momentum = num_features, batch, eps, momentum
        self.weight, self.bias = affine_parameters(num_features, device=device, dtype=dtype)
        count = 3 if batch else 2
        self.mean_logits = nn.Parameter(torch.ones(count, device=device, dtype=dtype))
        self.var_logits = nn.Parameter(torch.ones(count, device=device, dtype=dtype))
        if batch:
            self.start_tracking(device=device, dtype=dtype)

    fuses_relu = True

    def reset_parameters(self) -> None:
        """Put every parameter back to a fresh start, and forget all batches."""
        reset_affine(self)
        with torch.no_grad():
            self.mean_logits.fill_(1.0)
            self.var_logits.fill_(1.0)
        if self.batch:
            self.reset_tracking()

    def forward(self, x: Tensor, activation: str | None = None) -> Tensor:
        """Return the normalized activations; `activation="relu"` applies it too."""
        self.check_input(x)
        self.check_activation(activation)
        size = spatial_size(x)
        self.refuse_single_element(x, size, "channel")
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
        """Return the variance to track: as it is, since it is joined from unbiased ones."""
        return variance


@NORMS.register("sn_in_ln")
class SwitchNormInLn(SwitchNorm):
    """SN without BN: a mixture of IN and LN, the form in the paper's CIFAR comparison.

    Example:
        >>> SwitchNormInLn(8)(torch.randn(2, 8, 4, 4)).shape
        torch.Size([2, 8, 4, 4])
    """

    def __init__(
        self,
        num_features: int,
        *,
        eps: float = 1e-5,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(num_features, batch=False, eps=eps, device=device, dtype=dtype)
