"""Group, instance and layer normalization: one formula, three group sizes.

Wu and He, 2018; Ulyanov et al., 2016; Ba et al., 2016. GN generalizes IN and LN, as the ASR-Norm paper remarks.
"""

import sys

import torch
import torch.nn.functional as F
from torch import Tensor

from asrnorm.core.errors import InputError
from asrnorm.norms import dispatch, functional, reference
from asrnorm.norms.base import NORMS, AffineNorm, preset, spatial_size


@NORMS.register("gn")
class GroupNorm(AffineNorm):
    """GN: each sample is standardized over groups of channels.

    Args:
        num_features: C.
        num_groups: number of groups; if it does not divide C, the largest divisor of C below it.
        eps: added to the variance.
        device: device of the parameters.
        dtype: dtype of the parameters.

    Example:
        >>> GroupNorm(48).num_groups, GroupNorm(64)(torch.randn(2, 64, 4, 4)).shape
        (24, torch.Size([2, 64, 4, 4]))
    """

    fuses_relu = True

    def __init__(
        self,
        num_features: int,
        *,
        num_groups: int = 32,
        eps: float = 1e-5,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(num_features, eps, device, dtype)
        if num_groups < 1:
            raise InputError(f"{self.label()}: num_groups must be at least 1, not {num_groups}")
        self.num_groups = largest_divisor(num_features, num_groups)

    def forward(self, x: Tensor, activation: str | None = None) -> Tensor:
        """Return the normalized activations, after a ReLU if `activation="relu"`."""
        self.check_input(x)
        self.check_activation(activation)
        group_size = self.num_features // self.num_groups * spatial_size(x)
        self.check_several_values(x, group_size, "group" if self.num_groups < self.num_features else "channel")
        if dispatch.takes_kernels(x) and x.shape[0] > 0:
            return self._by_kernels(x, activation)
        with reference.full_precision(x):
            dtype = reference.compute_dtype(x)
            gain, bias = self.weight.to(dtype), self.bias.to(dtype)
            y = F.group_norm(x.to(dtype), self.num_groups, gain, bias, self.eps).to(x.dtype)
            if _is_channels_last(x):
                y = y.contiguous(memory_format=torch.channels_last)
            return F.relu(y) if activation == "relu" else y

    def _by_kernels(self, x: Tensor, activation: str | None) -> Tensor:
        if self.num_groups == self.num_features:
            return functional.asr_norm(
                x, None, None, self.weight, self.bias, eps=self.eps, eps_out=0.0, activation=activation
            )
        return functional.group_norm(x, self.num_groups, self.weight, self.bias, eps=self.eps, activation=activation)


@NORMS.register("in")
class InstanceNorm(GroupNorm):
    """IN: each channel of each sample is standardized by itself.

    Example:
        >>> InstanceNorm(8)(torch.randn(2, 8, 4, 4)).shape
        torch.Size([2, 8, 4, 4])
    """

    __init__ = preset(GroupNorm, num_groups=sys.maxsize)  # as many as there are channels


@NORMS.register("ln")
class LayerNorm(GroupNorm):
    """LN: each sample is standardized over all its channels and positions; gain and bias are per channel.

    Example:
        >>> LayerNorm(8)(torch.randn(2, 8, 4, 4)).shape
        torch.Size([2, 8, 4, 4])
    """

    __init__ = preset(GroupNorm, num_groups=1)


def largest_divisor(number: int, limit: int) -> int:
    """Return the largest divisor of `number` that does not exceed `limit`."""
    return next(d for d in range(min(number, limit), 0, -1) if number % d == 0)


def _is_channels_last(x: Tensor) -> bool:
    try:
        return x.ndim == 4 and x.is_contiguous(memory_format=torch.channels_last)
    except RuntimeError:  # torch.vmap hides the memory format
        return False
