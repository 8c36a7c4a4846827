"""The first convolution of a small network, by Triton kernels where they can run."""

import torch
import torch.nn.functional as F
from torch import Tensor

from asrnorm.norms.dispatch import takes_kernels

_FEW_TERMS = 128  # of an output: channels times the area of the kernel
_MAX_CHANNELS = 128  # of the output, all of which a program computes


def convolve_small(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return `F.conv2d(x, weight, bias)`; on a GPU by kernels where its sums are short.

    cuDNN is made for many channels: on the 75 terms of a 5x5 square of colors it takes several times as long as memory
    traffic would, forward and backward. The kernels take float32 in channels-last, where TF32 products are allowed.

    Args:
        x: maps, `(n, c, h, w)`.
        weight: `(out, c, height, width)`.
        bias: `(out,)`.

    Example:
        >>> convolve_small(torch.ones(1, 3, 6, 6), torch.ones(2, 3, 5, 5)).shape
        torch.Size([1, 2, 2, 2])
    """
    if not (_fits(x, weight) and takes_kernels(x)):
        return F.conv2d(x, weight, bias)
    from asrnorm.kernels import launch

    if launch.memory_format(weight) is None or launch.is_traced(x):
        return F.conv2d(x, weight, bias)
    from asrnorm.kernels.convolve import convolve

    return convolve(x, weight, bias)


def _fits(x: Tensor, weight: Tensor) -> bool:
    if x.device.type != "cuda" or torch.compiler.is_compiling():
        return False
    if torch.is_autocast_enabled("cuda") or not torch.backends.cudnn.allow_tf32:
        return False
    if x.dtype != torch.float32 or weight.dtype != torch.float32 or x.ndim != 4 or not x.numel():
        return False
    height, width = x.shape[2] - weight.shape[2] + 1, x.shape[3] - weight.shape[3] + 1
    if x.shape[1] != weight.shape[1] or min(height, width) < 1:
        return False  # PyTorch raises the error
    if len(weight) > _MAX_CHANNELS or not (_is_channels_last(x) or _is_channels_last(weight)):
        return False
    return weight[0].numel() <= _FEW_TERMS


def _is_channels_last(x: Tensor) -> bool:
    return not x.is_contiguous() and x.is_contiguous(memory_format=torch.channels_last)
