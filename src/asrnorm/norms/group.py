"""Group, instance and layer normalization: one formula, three group sizes.

Wu and He, 2018; Ulyanov et al., 2016; Ba et al., 2016. The paper's remark, that GN generalizes IN and LN, is how this
file is built.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from asrnorm.core.errors import InputError
from asrnorm.norms import dispatch, functional, reference
from asrnorm.norms.base import (
    NORMS,
    NormLayer,
    affine_parameters,
    check_eps,
    check_num_features,
    reset_affine,
    spatial_size,
)


@NORMS.register("gn")
class GroupNorm(NormLayer):
    """GN: each sample is standardized over groups of channels.

    Args:
        num_features: C.
        num_groups: how many groups; where it does not divide C, the largest divisor of C below it is taken.
        eps: added to the variance.
        device: where the parameters lie.
        dtype: their dtype.

    Example:
        >>> GroupNorm(48).num_groups, GroupNorm(64)(torch.randn(2, 64, 4, 4)).shape
        (24, torch.Size([2, 64, 4, 4]))
    """

    def __init__(
        self,
        num_features: int,
        *,
        num_groups: int = 32,
        eps: float = 1e-5,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_num_features(num_features)
        self.num_features = num_features
        if num_groups < 1:
            raise InputError(f"{self.label()}: num_groups must be at least 1, not {num_groups}")
        self.num_groups = largest_divisor(num_features, num_groups)
        check_eps(eps)
        self.eps = eps
        self.weight, self.bias = affine_parameters(num_features, device=device, dtype=dtype)

    fuses_relu = True

    def reset_parameters(self) -> None:
        """Put every parameter back to a fresh start."""
        reset_affine(self)

    def forward(self, x: Tensor, activation: str | None = None) -> Tensor:
        """Return the normalized activations; `activation="relu"` applies it too."""
        self.check_input(x)
        self.check_activation(activation)
        group_size = self.num_features // self.num_groups * spatial_size(x)
        self.refuse_single_element(x, group_size, "group" if self.num_groups < self.num_features else "channel")
        return group_norm(x, self.num_groups, self.weight, self.bias, self.eps, activation)


@NORMS.register("in")
class InstanceNorm(GroupNorm):
    """IN: each channel of each sample is standardized by itself.

    Args:
        num_features: C.
        eps: added to the variance.
        device: where the parameters lie.
        dtype: their dtype.

    Example:
        >>> InstanceNorm(8)(torch.randn(2, 8, 4, 4)).shape
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
        super().__init__(num_features, num_groups=num_features, eps=eps, device=device, dtype=dtype)


@NORMS.register("ln")
class LayerNorm(GroupNorm):
    """LN: each sample is standardized over all its channels and positions; gain and bias are per channel.

    Args:
        num_features: C.
        eps: added to the variance.
        device: where the parameters lie.
        dtype: their dtype.

    Example:
        >>> LayerNorm(8)(torch.randn(2, 8, 4, 4)).shape
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
        super().__init__(num_features, num_groups=1, eps=eps, device=device, dtype=dtype)


def group_norm(
    x: Tensor, num_groups: int, gain: Tensor, bias: Tensor, eps: float, activation: str | None = None
) -> Tensor:
    """GN in `compute_dtype`, returned in the dtype and memory format of `x`: PyTorch's, or the kernels of ASR-Norm."""
    if dispatch.takes_kernels(x) and x.shape[0] > 0:
        return _by_kernels(x, num_groups, gain, bias, eps, activation)
    with reference.full_precision(x):
        dtype = reference.compute_dtype(x)
        y = F.group_norm(x.to(dtype), num_groups, gain.to(dtype), bias.to(dtype), eps).to(x.dtype)
        if is_channels_last(x):
            y = y.contiguous(memory_format=torch.channels_last)
        return F.relu(y) if activation == "relu" else y


def _by_kernels(x: Tensor, num_groups: int, gain: Tensor, bias: Tensor, eps: float, activation: str | None) -> Tensor:
    if num_groups == x.shape[1]:
        return functional.asr_norm(x, None, None, gain, bias, eps=eps, eps_out=0.0, activation=activation)
    with reference.full_precision(x):
        x, mean_nc, variance_nc = functional.with_moments(x)
        shape = (x.shape[0], num_groups, -1)
        mean, variance = reference.pool_moments(mean_nc.reshape(shape), variance_nc.reshape(shape), dim=2)
        std = torch.sqrt(variance + eps)
        whole = mean_nc.reshape(shape).shape
        mean, std = (part.expand(whole).reshape(mean_nc.shape) for part in (mean, std))
        return functional.standardize_rescale(x, mean, std, gain, bias, eps=0.0, activation=activation)


def is_channels_last(x: Tensor) -> bool:
    """Tell whether maps lie so; under `torch.vmap`, which hides how tensors lie, they are taken not to."""
    try:
        return x.ndim == 4 and x.is_contiguous(memory_format=torch.channels_last)
    except RuntimeError:
        return False


def largest_divisor(number: int, limit: int) -> int:
    """Return the largest divisor of `number` that does not exceed `limit`.

    Example:
        >>> largest_divisor(48, 32), largest_divisor(7, 4)
        (24, 1)
    """
    return next(d for d in range(min(number, limit), 0, -1) if number % d == 0)
