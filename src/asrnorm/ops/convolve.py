"""Convolutions of images, which have few channels."""

import torch
import torch.nn.functional as F
from torch import Tensor

from asrnorm.ops.dispatch import takes_kernels

_MOST_TERMS = 128  # of a sum: channels times the kernel's area; what a program holds at a time
_MOST_CHANNELS = 128  # of the output


def convolve_images(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return `F.conv2d(x, weight, bias)`; on a GPU by kernels where they can.

    cuDNN is made for many channels: a sum over the 75 terms of a 5x5 square of colors takes it several times as long as
    the bytes do. The kernels take float32 in channels-last where convolutions may have TF32 products.

    Args:
        x: images, `(n, c, h, w)`.
        weight: `(out, c, height, width)`.
        bias: `(out,)`.

    Example:
        >>> convolve_images(torch.ones(1, 3, 6, 6), torch.ones(2, 3, 5, 5)).shape
        torch.Size([1, 2, 2, 2])
    """
    if not _fits(x, weight) or not takes_kernels(x):
        return F.conv2d(x, weight, bias)
    from asrnorm.ops.triton import launch

    if launch.memory_format(weight) is None or launch.is_traced(x):
        return F.conv2d(x, weight, bias)
    from asrnorm.ops.triton.convolve import convolve

    return convolve(x, weight, bias)


def _fits(x: Tensor, weight: Tensor) -> bool:
    if x.device.type != "cuda" or torch.is_autocast_enabled("cuda") or not torch.backends.cudnn.allow_tf32:
        return False
    if x.dtype != torch.float32 or weight.dtype != torch.float32 or x.ndim != 4 or not x.numel():
        return False
    if weight[0].numel() > _MOST_TERMS or len(weight) > _MOST_CHANNELS:
        return False
    if x.shape[1] != weight.shape[1] or x.shape[2] < weight.shape[2] or x.shape[3] < weight.shape[3]:
        return False  # PyTorch says what is wrong
    return _lies_channels_last(x) or _lies_channels_last(weight)


def _lies_channels_last(x: Tensor) -> bool:
    return not x.is_contiguous() and x.is_contiguous(memory_format=torch.channels_last)
