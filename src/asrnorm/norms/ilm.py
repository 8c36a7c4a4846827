"""Instance-level meta normalization: IN whose gain and bias are learned from the sample.

Jia et al., *Instance-Level Meta Normalization*, CVPR 2019: the template of ASR-Norm's rescaling.
"""

import torch
from torch import Tensor, nn

from asrnorm.core.errors import InputError
from asrnorm.norms import functional, reference
from asrnorm.norms.asr import read_dense
from asrnorm.norms.base import NORMS, AffineNorm, spatial_size
from asrnorm.norms.group import largest_divisor


@NORMS.register("ilm")
class ILMNorm(AffineNorm):
    r"""ILM: instance standardization; gain and bias of each key group of channels come from its moments.

    $\gamma = \mathrm{sigmoid}(W_\gamma \mathrm{ReLU}(E v)) + \gamma_0$,
    $\beta = \tanh(W_\beta \mathrm{ReLU}(E m)) + \beta_0$ with m and v the mean and unbiased variance of the key groups.
    As in its authors' code, there are no biases, one shared encoder, and unbiased variances throughout.

    Args:
        num_features: C.
        group_size: channels in a key group; if it does not divide C, the largest divisor of C below it.
        reduction: number of key groups over hidden units; up to `reduction` groups have 2 hidden units.
        eps: added to the instance variance.
        device: device of the parameters.
        dtype: dtype of the parameters.

    Example:
        >>> ILMNorm(64)(torch.randn(2, 64, 4, 4)).shape
        torch.Size([2, 64, 4, 4])
    """

    def __init__(
        self,
        num_features: int,
        *,
        group_size: int = 16,
        reduction: int = 16,
        eps: float = 1e-5,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(num_features, eps, device, dtype)
        if min(group_size, reduction) < 1:
            raise InputError(f"{self.label()}: group_size and reduction must be at least 1")
        self.reduction = reduction
        self.group_size = largest_divisor(num_features, group_size)
        groups = num_features // self.group_size
        hidden = groups // reduction if groups > reduction else 2
        self.encoder = nn.Linear(groups, hidden, bias=False, device=device, dtype=dtype)
        self.weight_decoder = nn.Linear(hidden, groups, bias=False, device=device, dtype=dtype)
        self.bias_decoder = nn.Linear(hidden, groups, bias=False, device=device, dtype=dtype)

    def reset_parameters(self) -> None:
        """Reset every parameter."""
        super().reset_parameters()
        for linear in (self.encoder, self.weight_decoder, self.bias_decoder):
            linear.reset_parameters()

    def forward(self, x: Tensor) -> Tensor:
        """Return the normalized activations."""
        self.check_input(x)
        size = spatial_size(x)
        self.check_several_values(x, size, "channel")
        with reference.full_precision(x):
            x, mean_nc, biased_nc = functional.with_moments(x)
            shape = (x.shape[0], self.num_features // self.group_size, self.group_size)
            key_mean, key_biased = reference.pool_moments(mean_nc.reshape(shape), biased_nc.reshape(shape), dim=2)
            count = size * self.group_size
            key_variance = key_biased.squeeze(2) * (count / (count - 1))
            gain = torch.sigmoid(self._decode(key_variance, self.weight_decoder)) + self.weight.to(mean_nc.dtype)
            bias = torch.tanh(self._decode(key_mean.squeeze(2), self.bias_decoder)) + self.bias.to(mean_nc.dtype)
            std = torch.sqrt(biased_nc * (size / (size - 1)) + self.eps)
            return functional.standardize_rescale(x, mean_nc, std, gain, bias, eps=0.0)

    def _decode(self, statistic: Tensor, decoder: nn.Linear) -> Tensor:
        encode, decode = (read_dense(linear).weight.to(statistic.dtype) for linear in (self.encoder, decoder))
        decoded = nn.functional.linear(torch.relu(nn.functional.linear(statistic, encode)), decode)
        return decoded.repeat_interleave(self.group_size, dim=1)
