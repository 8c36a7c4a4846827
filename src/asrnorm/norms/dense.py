"""The small linear layers inside norms, whose weights the fused kernels take instead of calling them."""

from torch import Tensor, nn
from torch.nn.utils.prune import BasePruningMethod
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.nn.utils.weight_norm import WeightNorm

from asrnorm.errors import InputTypeError
from asrnorm.norms import reference

# Hooks that compute the weight anew before each call, and need nothing of what the layer is called with.
RENEWING = (BasePruningMethod, SpectralNorm, WeightNorm)


def read_dense(linear: nn.Module) -> reference.Dense:
    """Return weight and bias of a linear layer, as pruning, spectral or weight norm leave them.

    Raises:
        InputTypeError: something else stands in its place, such as a quantized layer or an adapter.

    Example:
        >>> [part.shape for part in read_dense(nn.Linear(2, 3))]
        [torch.Size([3, 2]), torch.Size([3])]
    """
    if not isinstance(linear, nn.Linear) or type(linear).forward is not nn.Linear.forward:
        raise InputTypeError(
            f"the networks inside a norm must be torch.nn.Linear layers, not {type(linear).__name__}: "
            "leave the norms out where a model is quantized or given adapters"
        )
    if linear._forward_pre_hooks:
        for hook in linear._forward_pre_hooks.values():
            if isinstance(hook, RENEWING):
                hook(linear, ())
    weight: Tensor = linear.weight
    return reference.Dense(weight, linear.bias)
