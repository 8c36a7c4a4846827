"""Batch-instance normalization: a gate for each channel between BN and IN.

Nam and Kim, *Batch-Instance Normalization for Adaptively Style-Invariant Neural Networks*, 2018.
"""

import torch
from torch import Tensor, nn

from asrnorm.norms import functional, reference
from asrnorm.norms.base import NORMS, affine_parameters, check_eps, reset_affine, spatial_size
from asrnorm.norms.switchable import TracksBatch


@NORMS.register("bin")
class BatchInstanceNorm(TracksBatch):
    r"""BIN: a learned gate in [0, 1] for each channel, between BN and IN.

    $y = (\rho\, \mathrm{BN}(x) + (1-\rho)\, \mathrm{IN}(x))\, \gamma + \beta$

    The gates start at one (pure BN). As its authors do after each update, they are clamped to [0, 1]; here at the
    start of each training forward, and for use in evaluation, so that a training loop needs no extra call.

    Args:
        num_features: C.
        eps: added to the variances.
        momentum: weight of the newest batch in the running statistics; `None` averages over all batches.
        device: where the parameters lie.
        dtype: their dtype.

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
        super().__init__()
        check_eps(eps)
        self.num_features, self.eps, self.momentum = num_features, eps, momentum
        self.weight, self.bias = affine_parameters(num_features, device=device, dtype=dtype)
        self.gate = nn.Parameter(torch.ones(num_features, device=device, dtype=dtype))
        self.start_tracking(device=device, dtype=dtype)

    def reset_parameters(self) -> None:
        """Put every parameter back to a fresh start, and forget all batches."""
        reset_affine(self)
        with torch.no_grad():
            self.gate.fill_(1.0)
        self.reset_tracking()

    def forward(self, x: Tensor) -> Tensor:
        """Return the normalized activations."""
        self.check_input(x)
        self.refuse_single_element(x, spatial_size(x), "channel")
        with reference.full_precision(x):
            mean_in, var_in = reference.channel_moments(x)
            mean_bn, var_bn = self.batch_moments(x, mean_in, var_in)
            gate = self._clamped_gate().to(mean_in.dtype)
            gain, bias = self.weight.to(mean_in.dtype), self.bias.to(mean_in.dtype)
            wide = x.to(mean_in.dtype)
            from_batch = _standardize(wide, mean_bn, var_bn, self.eps)
            from_instance = _standardize(wide, mean_in, var_in, self.eps)
            mixed = _mix(reference.per_channel(gate, x), from_batch, from_instance)
            return (mixed * reference.per_channel(gain, x) + reference.per_channel(bias, x)).to(x.dtype)

    def _clamped_gate(self) -> Tensor:
        if not self.training:
            return self.gate.clamp(0.0, 1.0)
        # Projected in place, then cloned: the graph keeps the clone, so that a second forward before the backward
        # does not invalidate what the first one saved. Past autograd's eyes, since a penalty on the gate may be taken
        # before the forward.
        self.gate.data.clamp_(0.0, 1.0)
        return self.gate.clone()


def _standardize(x: Tensor, mean: Tensor, variance: Tensor, eps: float) -> Tensor:
    return functional.standardize_rescale(x, mean, torch.sqrt(variance + eps), None, None, eps=0.0)


def _mix(gate: Tensor, first: Tensor, second: Tensor) -> Tensor:
    return gate * first + (1 - gate) * second
