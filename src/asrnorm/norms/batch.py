"""Batch normalization in three forms: as it is, with the test batch's statistics, and one for each domain.

Ioffe and Szegedy, 2015; Nado et al., 2020 (statistics of the test batch); Chang et al., 2019 (domain-specific).
"""

import operator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from asrnorm.core.errors import InputError, InputTypeError
from asrnorm.norms import functional, reference
from asrnorm.norms.base import (
    NORMS,
    NormLayer,
    ProcessSum,
    check_eps,
    check_num_features,
    join_processes,
    spatial_size,
    weigh_newest,
)


@NORMS.register("bn")
class BatchNorm(NormLayer, nn.BatchNorm2d):
    """BN: the batch's statistics in training, running ones in evaluation.

    PyTorch's own layer, for any number of spatial axes, under the contract of this package.

    Args:
        num_features: C.
        eps: added to the variance.
        momentum: weight of the newest batch in the running statistics; `None` averages over all batches.
        device: where the parameters lie.
        dtype: their dtype.

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
        check_num_features(num_features)
        check_eps(eps)
        nn.BatchNorm2d.__init__(self, num_features, eps, momentum, device=device, dtype=dtype)

    def uses_batch(self) -> bool:
        """Tell whether the next forward standardizes by the batch it is given."""
        return self.training

    def forward(self, x: Tensor) -> Tensor:
        """Return the normalized activations."""
        self.check_input(x)
        running_mean, running_var = self.running_mean, self.running_var
        assert running_mean is not None
        assert running_var is not None
        from_batch = self.uses_batch()
        if from_batch and self.training and self.process_sum is not None:
            # Without samples too: the other processes wait for the share of this one.
            return self._normalize_over_processes(x, self.process_sum)
        if x.shape[0] == 0:  # no statistics to learn from; a branch, for a compiler to whom sizes are symbols
            from_batch = False
        if from_batch:
            self.refuse_single_element(x, x.shape[0] * spatial_size(x), "channel of the batch")
        if not from_batch:
            with reference.full_precision(x):
                return F.batch_norm(x, running_mean, running_var, self.weight, self.bias, False, 0.0, self.eps)
        if not self.training:  # nothing is tracked in evaluation
            return _batch_norm(self, x, None, None)
        if self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
        return _batch_norm(self, x, running_mean, running_var)

    def _normalize_over_processes(self, x: Tensor, process_sum: ProcessSum) -> Tensor:
        assert self.running_mean is not None
        assert self.running_var is not None
        if self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
        momentum = weigh_newest(self.momentum, self.num_batches_tracked)
        with reference.full_precision(x):
            mean, variance, samples = join_processes(*reference.channel_moments(x), process_sum)
            with torch.no_grad():
                count = samples * spatial_size(x)
                unbiased = variance * (count / (count - 1))
                self.running_mean.lerp_(mean[0].to(self.running_mean.dtype), momentum)
                self.running_var.lerp_(unbiased[0].to(self.running_var.dtype), momentum)
            gain, bias = self.weight.to(mean.dtype), self.bias.to(mean.dtype)
            return functional.standardize_rescale(x, mean, torch.sqrt(variance + self.eps), gain, bias, eps=0.0)


@NORMS.register("bn_test")
class BatchNormTest(BatchNorm):
    """BN-Test: BN that standardizes by the batch at hand in evaluation too.

    The state is that of `bn`: weights trained with one load into the other. Its predictions depend on what else is in
    the batch, so the batch size belongs to the result.

    Example:
        >>> layer = BatchNormTest(8).eval()
        >>> bool(layer(5 + torch.randn(64, 8, 4, 4)).mean().abs() < 1e-3)
        True
    """

    batches: int = 1
    """How many equally large batches the next input holds one after the other in evaluation, each to be standardized by
    itself: many small batches in one call."""

    def uses_batch(self) -> bool:
        """Tell whether the next forward standardizes by the batch it is given: always."""
        return True

    def forward(self, x: Tensor) -> Tensor:
        """Return the normalized activations."""
        if self.training or self.batches == 1:
            return super().forward(x)
        self.check_input(x)
        size, rest = divmod(x.shape[0], self.batches)
        if rest:
            raise InputError(f"{self.label()}: {x.shape[0]} samples are not {self.batches} batches of one size")
        self.refuse_single_element(x, size * spatial_size(x), "channel of the batch")
        with reference.full_precision(x):
            x, mean_nc, variance_nc = functional.with_moments(x)
            whole = (self.batches, size, self.num_features)
            mean, variance = reference.pool_moments(mean_nc.reshape(whole), variance_nc.reshape(whole), dim=1)
            std = torch.sqrt(variance + self.eps)
            mean, std = (part.expand(whole).reshape(mean_nc.shape) for part in (mean, std))
            gain, bias = self.weight.to(mean.dtype), self.bias.to(mean.dtype)
            return functional.standardize_rescale(x, mean, std, gain, bias, eps=0.0)


@NORMS.register("dsbn")
class DomainBatchNorm(NormLayer):
    """DSBN: a BN for each domain; the domain of a batch, or of each sample, is set with `set_domain`.

    Args:
        num_features: C.
        num_domains: how many domains.
        eps: added to the variance.
        momentum: weight of the newest batch in the running statistics; `None` averages over all batches.
        device: where the parameters lie.
        dtype: their dtype.

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
        if num_domains < 1:
            raise InputError(f"{self.label()}: num_domains must be at least 1, not {num_domains}")
        self.domain: int | Tensor = 0
        self.domains = nn.ModuleList(
            BatchNorm(num_features, eps=eps, momentum=momentum, device=device, dtype=dtype) for _ in range(num_domains)
        )

    def read_option(self, name: str) -> Any:
        """Return an option of the constructor, as the layers of the domains have it."""
        if name == "num_domains":
            return len(self.domains)
        return getattr(self.domains[0], name) if name in ("eps", "momentum") else super().read_option(name)

    def inherit(self, *values: Tensor | None, **named: Tensor | None) -> None:
        """Let every domain start from what the other layer learned."""
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
                f"{self.label()}: labels for each sample need one process, since each has samples of other domains; "
                "give batches of one domain"
            )
        y, found = torch.zeros_like(x), 0
        for index, layer in enumerate(self.domains):
            chosen = (self.domain == index).nonzero().squeeze(1)
            if len(chosen):
                y = y.index_copy(0, chosen, layer(x.index_select(0, chosen)))
                found += len(chosen)
        if found < len(x):
            raise InputError(f"{self.label()}: labels of {len(x) - found} samples were changed to no domain of it")
        for rank, last in ((4, torch.channels_last), (5, torch.channels_last_3d)):
            if x.ndim == rank and x.is_contiguous(memory_format=last):
                y = y.contiguous(memory_format=last)
        return y


def set_domain(model: nn.Module, domain: int | Tensor) -> int:
    """Tell every `dsbn` layer of a model which domain the next batches come from.

    Args:
        model: the network, or a single layer.
        domain: one number for the whole batch, or a tensor `(n,)` with one for each sample.

    Returns:
        How many layers were set.

    Raises:
        InputError: the model has no such layer, or one of its layers has too few domains.
        InputTypeError: not whole numbers.
    """
    layers = [module for module in model.modules() if isinstance(module, DomainBatchNorm)]
    if not layers:
        raise InputError(f"{type(model).__name__} has no dsbn layer to set a domain for")
    if not isinstance(domain, Tensor):
        try:
            domain = operator.index(domain)
        except TypeError:
            raise InputTypeError(
                f"set_domain takes one number, or a tensor with one for each sample, not {type(domain).__name__}"
            ) from None
    elif domain.is_floating_point() or domain.is_complex():
        raise InputTypeError(f"domain labels must be whole numbers, these are {domain.dtype}")
    lowest, highest = _range(domain)
    for layer in layers:
        if lowest < 0 or highest >= len(layer.domains):
            wrong = lowest if lowest < 0 else highest
            raise InputError(
                f"{layer.label()}: no domain {wrong}, it has {len(layer.domains)} (0 to {len(layer.domains) - 1})"
            )
        layer.domain = domain
    return len(layers)


def _range(domain: int | Tensor) -> tuple[int, int]:
    if isinstance(domain, int):
        return domain, domain
    if not domain.numel():  # of an empty batch
        return 0, 0
    lowest, highest = domain.aminmax()
    return int(lowest), int(highest)


def _batch_norm(layer: nn.BatchNorm2d, x: Tensor, mean: Tensor | None, variance: Tensor | None) -> Tensor:
    with reference.full_precision(x):
        momentum = 0.0 if mean is None else weigh_newest(layer.momentum, layer.num_batches_tracked)
        return F.batch_norm(x, mean, variance, layer.weight, layer.bias, True, momentum, layer.eps)
