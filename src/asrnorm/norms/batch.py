"""Batch normalization: BN, BN-Test, DSBN, and the running statistics that mixed norms share with them.

Ioffe and Szegedy, 2015; Nado et al., 2020 (statistics of the test batch); Chang et al., 2019 (domain-specific).
"""

import operator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from asrnorm.core.errors import InputError, InputTypeError
from asrnorm.norms import functional, reference
from asrnorm.norms.base import NORMS, NormLayer, ProcessSum, check_sizes, spatial_size

_MOST_DOMAINS = 10_000


class TracksBatch(NormLayer):
    """A norm that keeps running statistics under the names of `torch.nn.BatchNorm2d`."""

    momentum: float | None = 0.1
    running_mean: Tensor
    running_var: Tensor
    num_batches_tracked: Tensor

    def start_tracking(self, **factory: Any) -> None:
        """Register the running statistics."""
        self.register_buffer("running_mean", torch.zeros(self.num_features, **factory))
        self.register_buffer("running_var", torch.ones(self.num_features, **factory))
        self.register_buffer("num_batches_tracked", torch.tensor(0, dtype=torch.long, device=factory.get("device")))

    def reset_tracking(self) -> None:
        """Reset the running statistics."""
        self.running_mean.zero_()
        self.running_var.fill_(1.0)
        self.num_batches_tracked.zero_()

    def batch_moments(
        self, x: Tensor, mean_nc: Tensor, variance_nc: Tensor, *, track: bool = True
    ) -> tuple[Tensor, Tensor]:
        """Return mean and variance `(1, c)` of the batch, from those of the samples; in evaluation the running ones."""
        # A process without samples takes part in a shared batch too: the others wait for it.
        if not self.training or (x.shape[0] == 0 and self.process_sum is None):
            dtype = mean_nc.dtype
            return self.running_mean.to(dtype)[None], self.running_var.to(dtype)[None]
        samples: int | Tensor = x.shape[0]
        if self.process_sum is None:
            self.check_several_values(x, x.shape[0] * spatial_size(x), "channel of the batch")
            mean, variance = reference.pool_moments(mean_nc, variance_nc, dim=0)
        else:
            mean, variance, samples = pool_over_processes(mean_nc, variance_nc, self.process_sum)
        if track:
            with torch.no_grad():
                self.num_batches_tracked.add_(1)
                weight = newest_batch_weight(self.momentum, self.num_batches_tracked)
                self.running_mean.lerp_(mean[0].to(self.running_mean.dtype), weight)
                tracked = self.tracked_variance(variance, samples * spatial_size(x))[0]
                self.running_var.lerp_(tracked.to(self.running_var.dtype), weight)
        return mean, variance

    def tracked_variance(self, variance: Tensor, count: int | Tensor) -> Tensor:
        """Return the variance to track: the unbiased estimate from a biased one over `count` values."""
        return variance * (count / (count - 1))


@NORMS.register("bn")
class BatchNorm(TracksBatch, nn.BatchNorm2d):  # type: ignore[misc]  # running statistics are never None here
    """BN: the batch's statistics in training, running ones in evaluation.

    PyTorch's own layer, for any number of spatial axes, under the contract of this package.

    Args:
        num_features: C.
        eps: added to the variance.
        momentum: weight of the newest batch in the running statistics; `None` averages over all batches.
        device: device of the parameters.
        dtype: dtype of the parameters.

    Example:
        >>> BatchNorm(8)(torch.randn(2, 8, 4, 4)).shape
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
        check_sizes(num_features, eps)
        nn.BatchNorm2d.__init__(self, num_features, eps, momentum, device=device, dtype=dtype)

    def uses_batch(self) -> bool:
        """Return whether the next forward standardizes by its batch."""
        return self.training

    def forward(self, x: Tensor) -> Tensor:
        """Return the normalized activations."""
        self.check_input(x)
        from_batch = self.uses_batch()
        if from_batch and self.training and self.process_sum is not None:
            with reference.full_precision(x):
                return self._rescale(x, *self.batch_moments(x, *reference.channel_moments(x)))
        if x.shape[0] == 0:  # no statistics to learn from; a branch, because sizes are symbols to a compiler
            from_batch = False
        mean, variance, weight = self.running_mean, self.running_var, 0.0
        if from_batch:
            self.check_several_values(x, x.shape[0] * spatial_size(x), "channel of the batch")
            if self.training:
                self.num_batches_tracked.add_(1)
                weight = newest_batch_weight(self.momentum, self.num_batches_tracked)
            else:
                mean = variance = None  # type: ignore[assignment]  # evaluation tracks nothing
        with reference.full_precision(x):
            return F.batch_norm(x, mean, variance, self.weight, self.bias, from_batch, weight, self.eps)

    def _rescale(self, x: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
        gain, bias = self.weight.to(mean.dtype), self.bias.to(mean.dtype)
        return functional.standardize_rescale(x, mean, torch.sqrt(variance + self.eps), gain, bias, eps=0.0)


@NORMS.register("bn_test")
class BatchNormTest(BatchNorm):
    """BN-Test: BN that standardizes by the batch at hand in evaluation too.

    It has the state of `bn`: weights trained with one load into the other. Predictions depend on the other samples of
    the batch, so the batch size is part of a result.

    Attributes:
        batches: number of equally large batches that an input holds one after the other in evaluation; each is
            standardized by itself, so that one call evaluates many small batches.

    Example:
        >>> layer = BatchNormTest(8).eval()
        >>> bool(layer(5 + torch.randn(64, 8, 4, 4)).mean().abs() < 1e-3)
        True
    """

    batches: int = 1

    def uses_batch(self) -> bool:
        """Return whether the next forward standardizes by its batch: always."""
        return True

    def forward(self, x: Tensor) -> Tensor:
        """Return the normalized activations."""
        if self.training or self.batches == 1:
            return super().forward(x)
        self.check_input(x)
        size, rest = divmod(x.shape[0], self.batches)
        if rest:
            raise InputError(f"{self.label()}: {x.shape[0]} samples are not {self.batches} batches of one size")
        self.check_several_values(x, size * spatial_size(x), "channel of the batch")
        with reference.full_precision(x):
            x, mean_nc, variance_nc = functional.with_moments(x)
            whole = (self.batches, size, self.num_features)
            moments = reference.pool_moments(mean_nc.reshape(whole), variance_nc.reshape(whole), dim=1)
            return self._rescale(x, *(part.expand(whole).reshape(mean_nc.shape) for part in moments))


@NORMS.register("dsbn")
class DomainBatchNorm(NormLayer):
    """DSBN: a BN for each domain; the domain of a batch, or of each sample, is set with `set_domain`.

    Args:
        num_features: C.
        num_domains: number of domains.
        eps: added to the variance.
        momentum: weight of the newest batch in the running statistics; `None` averages over all batches.
        device: device of the parameters.
        dtype: dtype of the parameters.

    Example:
        >>> layer = DomainBatchNorm(8, num_domains=2)
        >>> set_domain(layer, 1)
        1
        >>> layer(torch.randn(2, 8, 4, 4)).shape
        torch.Size([2, 8, 4, 4])
    """

    def __init__(
        self,
        num_features: int,
        *,
        num_domains: int = 1,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.num_features = num_features
        if not 1 <= num_domains <= _MOST_DOMAINS:
            raise InputError(f"{self.label()}: num_domains must be from 1 to {_MOST_DOMAINS:,}, not {num_domains}")
        self.domain: int | Tensor = 0
        self.domains = nn.ModuleList(
            BatchNorm(num_features, eps=eps, momentum=momentum, device=device, dtype=dtype) for _ in range(num_domains)
        )

    def read_option(self, name: str) -> Any:
        """Return a constructor option by name; `eps` and `momentum` are those of the domains' layers."""
        if name == "num_domains":
            return len(self.domains)
        return getattr(self.domains[0], name) if name in ("eps", "momentum") else super().read_option(name)

    def inherit(self, *values: Tensor | None, **named: Tensor | None) -> None:
        """Copy another layer's affine parameters and running statistics to every domain."""
        for layer in self.domains:
            assert isinstance(layer, BatchNorm)
            layer.inherit(*values, **named)

    def forward(self, x: Tensor) -> Tensor:
        """Return the activations, each sample normalized by the statistics of its domain."""
        self.check_input(x)
        if isinstance(self.domain, int):
            return self.domains[self.domain](x)
        if self.domain.shape != x.shape[:1]:
            raise InputError(
                f"{self.label()}: {tuple(self.domain.shape)} domain labels for a batch of {x.shape[0]}; "
                "give one label a sample with set_domain"
            )
        if self.training and self.domains[0].process_sum is not None:
            raise InputError(
                f"{self.label()}: a label for each sample works in a single process, because processes have samples "
                "of different domains; give batches of one domain"
            )
        y, found = torch.zeros_like(x), 0
        for index, layer in enumerate(self.domains):
            chosen = (self.domain == index).nonzero().squeeze(1)
            if len(chosen):
                y = y.index_copy(0, chosen, layer(x.index_select(0, chosen)))
                found += len(chosen)
        if found < len(x):
            raise InputError(f"{self.label()}: {len(x) - found} domain labels were changed to domains it does not have")
        for rank, last in ((4, torch.channels_last), (5, torch.channels_last_3d)):
            if x.ndim == rank and x.is_contiguous(memory_format=last):
                y = y.contiguous(memory_format=last)
        return y


def set_domain(model: nn.Module, domain: int | Tensor) -> int:
    """Set the domain of the next batches in every `dsbn` layer of a model.

    Args:
        model: the network, or a single layer.
        domain: one number for the whole batch, or a tensor `(n,)` with one for each sample.

    Returns:
        The number of `dsbn` layers.

    Raises:
        InputError: the model has no such layer, or one of its layers has too few domains.
        InputTypeError: not whole numbers.
    """
    layers = [module for module in model.modules() if isinstance(module, DomainBatchNorm)]
    if not layers:
        raise InputError(f"{type(model).__name__} has no dsbn layer to set a domain for")
    if isinstance(domain, Tensor):
        if domain.is_floating_point() or domain.is_complex():
            raise InputTypeError(f"domain labels must be whole numbers, these are {domain.dtype}")
        lowest, highest = (int(end) for end in domain.aminmax()) if domain.numel() else (0, 0)
    else:
        try:
            domain = lowest = highest = operator.index(domain)
        except TypeError:
            raise InputTypeError(
                f"set_domain takes one number, or a tensor with one for each sample, not {type(domain).__name__}"
            ) from None
    for layer in layers:
        count = len(layer.domains)
        if lowest < 0 or highest >= count:
            wrong = lowest if lowest < 0 else highest
            raise InputError(f"{layer.label()}: no domain {wrong}, it has {count} (0 to {count - 1})")
        layer.domain = domain
    return len(layers)


def newest_batch_weight(momentum: float | None, num_batches: Tensor) -> float:
    """Return the weight of the newest batch in running statistics; momentum `None` averages over all batches."""
    return 1 / float(num_batches) if momentum is None else momentum


def pool_over_processes(mean_nc: Tensor, variance_nc: Tensor, process_sum: ProcessSum) -> tuple[Tensor, Tensor, Tensor]:
    """Return mean and variance `(1, c)` of the samples of all processes, and their number as a tensor."""
    own = mean_nc.new_full((1,), mean_nc.shape[0])
    total = process_sum(torch.cat([mean_nc.sum(0), own]))
    count = total[-1].detach()
    mean = (total[:-1] / count)[None]
    variance = process_sum((variance_nc + (mean_nc - mean).square()).sum(0, keepdim=True)) / count
    return mean, variance, count
