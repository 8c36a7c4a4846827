"""DSON: for each source domain a normalization of its own, by a learned mixture of batch and instance statistics.

Seo et al., *Learning to Optimize Domain Specific Normalization for Domain Generalization*, ECCV 2020.
"""

import torch
from torch import Tensor, nn

from asrnorm.core.errors import InputError
from asrnorm.norms import functional, reference
from asrnorm.norms.base import NORMS, clamp_gate, spatial_size
from asrnorm.norms.batch import BatchNorm, DomainBatchNorm, newest_batch_weight


@NORMS.register("dson")
class DomainMixedNorm(DomainBatchNorm):
    r"""DSON: BN for each domain, its mean and variance mixed with those of the sample itself.

    $\mu = w_d \mu_{BN,d} + (1 - w_d) \mu_{IN}$, $\sigma^2$ likewise, $y = \gamma_d (x - \mu) / \sqrt{\sigma^2 +
    \epsilon} + \beta_d$

    The weight of a domain, one for each layer, starts at one (pure BN) and is clamped to [0, 1], as the gates of `bin`.
    Shapes do not depend on the domains, nothing synchronizes, and processes may share a batch of several domains. An
    input of several copies of a labelled batch, one after the other, takes its labels for each copy.

    Args:
        num_features: C.
        num_domains: number of domains.
        eps: added to the mixed variance.
        momentum: weight of the newest batch in the running statistics; `None` averages over all batches.
        device: device of the parameters.
        dtype: dtype of the parameters.

    Example:
        >>> layer = DomainMixedNorm(8, num_domains=2)
        >>> layer.domain = torch.tensor([0, 1, 1])
        >>> layer(torch.randn(3, 8, 4, 4)).shape
        torch.Size([3, 8, 4, 4])
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
        super().__init__(num_features, num_domains=num_domains, eps=eps, momentum=momentum, device=device, dtype=dtype)
        self.gate = nn.Parameter(torch.ones(num_domains, device=device, dtype=dtype))

    def reset_parameters(self) -> None:
        """Reset the weights of the domains; their layers reset themselves."""
        with torch.no_grad():
            self.gate.fill_(1.0)

    def forward(self, x: Tensor) -> Tensor:
        """Return the activations, each sample normalized for its domain."""
        self.check_input(x)
        self.check_several_values(x, spatial_size(x), "channel")
        domain_n = self._domain_of(x)
        with reference.full_precision(x):
            mean_nc, variance_nc = reference.channel_moments(x)
            mean_dc, variance_dc = self._domain_moments(x, mean_nc, variance_nc, domain_n)
            gate_n1 = clamp_gate(self.gate, training=self.training).to(mean_nc.dtype)[domain_n, None]
            mean = gate_n1 * mean_dc[domain_n] + (1 - gate_n1) * mean_nc
            variance = gate_n1 * variance_dc[domain_n] + (1 - gate_n1) * variance_nc
            gain, bias = (self._stack(name).to(mean.dtype)[domain_n] for name in ("weight", "bias"))
            std = torch.sqrt(variance + self._layers[0].eps)
            return functional.standardize_rescale(x, mean, std, gain, bias, eps=0.0)

    @property
    def _layers(self) -> list[BatchNorm]:
        return list(self.domains)  # type: ignore[arg-type]

    def _stack(self, name: str) -> Tensor:
        return torch.stack([getattr(layer, name) for layer in self._layers])

    def _domain_of(self, x: Tensor) -> Tensor:
        if isinstance(self.domain, int):
            return torch.full(x.shape[:1], self.domain, dtype=torch.long, device=x.device)
        copies, rest = divmod(x.shape[0], max(1, len(self.domain)))
        if rest:
            raise InputError(
                f"{self.label()}: {tuple(self.domain.shape)} domain labels for a batch of {x.shape[0]}; "
                "give one label a sample with set_domain"
            )
        return self.domain.to(x.device).repeat(copies)

    def _domain_moments(
        self, x: Tensor, mean_nc: Tensor, variance_nc: Tensor, domain_n: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Mean and variance of the samples of each domain, `(d, c)`; in evaluation the running ones."""
        dtype = mean_nc.dtype
        if not self.training or x.shape[0] == 0:
            return self._stack("running_mean").to(dtype), self._stack("running_var").to(dtype)
        total = self._layers[0].process_sum or (lambda tensor: tensor)
        member_nd1 = (domain_n[:, None] == torch.arange(len(self.domains), device=x.device)).to(dtype)[:, :, None]
        count_d1 = total(member_nd1.sum(0)).detach()
        some_d1 = count_d1.clamp(min=1)  # a domain may be absent
        mean_dc = total((member_nd1 * mean_nc[:, None]).sum(0)) / some_d1
        spread_nc = variance_nc + (mean_nc - mean_dc[domain_n]).square()
        variance_dc = total((member_nd1 * spread_nc[:, None]).sum(0)) / some_d1
        with torch.no_grad():
            values_d1 = count_d1 * spatial_size(x)
            unbiased_dc = variance_dc * (values_d1 / (values_d1 - 1).clamp(min=1))
            present = count_d1[:, 0] > 0
            for layer, is_there, mean, variance in zip(self._layers, present, mean_dc, unbiased_dc, strict=True):
                layer.num_batches_tracked.add_(is_there)
                weight = newest_batch_weight(layer.momentum, layer.num_batches_tracked.clamp(min=1))
                new = weight * is_there.to(layer.running_mean.dtype)
                layer.running_mean.lerp_(mean.to(layer.running_mean.dtype), new)
                layer.running_var.lerp_(variance.to(layer.running_var.dtype), new)
        return mean_dc, variance_dc
