"""Operations that map values channel by channel: autocontrast, solarize, channel shift; equal to Pillow to the bit."""

import torch
from torch import Tensor

from asrnorm.data.augment.batch import Parameter, check_images, per_sample
from asrnorm.errors import InputError


def cumulative_histogram(images: Tensor) -> Tensor:
    """Number of pixels of each channel that are at most 0, 1, ..., 255, as `(n, 3, 256)` int64.

    Counted by a scatter, not by `bincount`, which would ask the device for the largest value and wait for it.
    """
    n, c = images.shape[:2]
    first_bin = torch.arange(0, n * c * 256, 256, device=images.device).view(n, c, 1)
    bins = (images.flatten(2) + first_bin).reshape(-1)
    one = torch.ones((), dtype=torch.int64, device=images.device).expand(bins.shape)
    counts = torch.zeros(n * c * 256, dtype=torch.int64, device=images.device).scatter_add_(0, bins, one)
    return counts.view(n, c, 256).cumsum_(2)


def stretch(images: Tensor, cutoff: Tensor) -> tuple[Tensor, Tensor]:
    r"""Scale and offset with which autocontrast maps each channel: $x \mapsto \mathrm{int}(x s + o)$, clipped.

    Of the h·w values of a channel Pillow drops the $k = \lfloor hw \cdot cutoff / 100 \rfloor$ darkest and the k
    lightest; $lo$ and $hi$ are the extremes of what is left, $s = 255 / (hi - lo)$, $o = -lo \, s$, all in float64.
    Where $hi \le lo$, or nothing is left, the channel stays as it is: (1, 0).

    Args:
        images: uint8 `(n, 3, h, w)`.
        cutoff: percent, float64, broadcastable to `(n, 3, 1, 1)`.

    Returns:
        `(scale, offset)`, each `(n, 3, 1, 1)` in float64.
    """
    pixels = images.shape[2] * images.shape[3]
    cdf = cumulative_histogram(images)
    cut = torch.floor_divide(cutoff * pixels, 100.0).squeeze(3)
    lo = (cdf <= cut).sum(2, keepdim=True)
    hi = (cdf < pixels - cut).sum(2, keepdim=True)
    span = hi - lo
    flat = span <= 0
    span = span.masked_fill(flat, 255).double()
    scale = torch.full_like(span, 255.0) / span  # 255.0 / span would multiply by a rounded reciprocal
    offset = -lo.masked_fill(flat, 0) * scale
    return scale.unsqueeze(3), offset.unsqueeze(3)


def autocontrast(images: Tensor, cutoff: Parameter = 0.0) -> Tensor:
    """Stretch each channel to 0..255, as `ImageOps.autocontrast`; equal to Pillow to the bit.

    That includes its roundings: where scale and offset are not exact the lightest value may become 254.

    Args:
        images: uint8 `(n, 3, h, w)`.
        cutoff: percent of the pixels dropped at either end before the extremes are taken. A tensor should be
            float64: the number of dropped pixels is a floor, and float32's 0.3 is another number.

    Example:
        >>> autocontrast(torch.tensor([50, 60, 101], dtype=torch.uint8).expand(1, 3, 1, 3))[0, 0].tolist()
        [[0, 50, 255]]
    """
    check_images(images)
    if not isinstance(cutoff, Tensor) and cutoff < 0:
        raise InputError(f"expected a cutoff of at least 0 percent, got {cutoff}")
    if images.numel() == 0:
        return images.clone()
    scale, offset = stretch(images, per_sample(cutoff, images, torch.float64))
    return (images * scale).add_(offset).clamp_(0, 255).to(torch.uint8)


def solarize(images: Tensor, threshold: Parameter = 128.0) -> Tensor:
    """Invert every value at or above the threshold, as `ImageOps.solarize`; equal to Pillow to the bit.

    Example:
        >>> solarize(torch.tensor([9, 10, 250], dtype=torch.uint8).view(1, 3, 1, 1), 10).flatten().tolist()
        [9, 245, 5]
    """
    check_images(images)
    return torch.where(images < per_sample(threshold, images, torch.float32), images, 255 - images)


def shift_channel(images: Tensor, amount: Parameter, channel: int) -> Tensor:
    """Add a whole number to one channel and clip to 0..255; the others stay as they are.

    Args:
        images: uint8 `(n, 3, h, w)`.
        amount: what is added, a whole number from -255 to 255.
        channel: 0 red, 1 green, 2 blue.

    Example:
        >>> shift_channel(torch.full((1, 3, 1, 1), 100, dtype=torch.uint8), -120, channel=0).flatten().tolist()
        [0, 100, 100]
    """
    check_images(images)
    if channel not in (0, 1, 2):
        raise InputError(f"expected channel 0 (red), 1 (green) or 2 (blue), got {channel}")
    out = images.clone()
    # int16 would wrap at amounts beyond its range; int32 leaves room for any the caller may give.
    moved = images[:, channel : channel + 1] + per_sample(amount, images, torch.int32)
    out[:, channel : channel + 1] = moved.clamp_(0, 255).to(torch.uint8)
    return out
