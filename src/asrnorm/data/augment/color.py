"""Pillow's color operations on batches: `ImageEnhance`, grayscale, hue, `ImageOps` and tables of tones.

Every public function takes uint8 images `(n, 3, h, w)` and one parameter for the batch or a tensor with one per sample,
and equals Pillow to the bit.

`ImageEnhance` blends the image with a degenerate one, black, gray, flat or smoothed, in float32 with two roundings and
a truncation; so product and sum are separate tensor operations here. Pillow computes HSV partly in float32 and partly
in float64 and truncates; each line here has the precision of the C code, and divides by tensors, since a GPU multiplies
by the reciprocal of a plain number.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from asrnorm.core.errors import InputError
from asrnorm.data.augment.base import Parameter, check_images, constant, per_sample

# Pillow's weights of R, G, B, in 1/65536. Every product and partial sum stays under 2**24: float32 holds them exactly.
_LUMA = (19595 / 65536, 38470 / 65536, 7471 / 65536)


def luma(x_nchw: Tensor) -> Tensor:
    r"""Return gray values as `convert("L")` gives them: $\lfloor (19595 R + 38470 G + 7471 B + 32768) / 65536 \rfloor$.

    Both the pixel values and the result, `(n, 1, h, w)`, are whole numbers 0 to 255 in float32.
    """
    weights_c = constant(_LUMA, x_nchw.device).view(1, 3, 1, 1)
    return (x_nchw * weights_c).sum(1, keepdim=True).add_(0.5).floor_()


def mean_luma(gray_n1hw: Tensor) -> Tensor:
    r"""Return the flat gray of `ImageEnhance.Contrast`: $\lfloor \mathrm{mean} + 1/2 \rfloor$ as `(n, 1, 1, 1)`.

    In integers: $\lfloor (2 \sum + hw) / (2 hw) \rfloor$, so that neither sum nor quotient is rounded.
    """
    pixels = gray_n1hw.shape[2] * gray_n1hw.shape[3]
    total = gray_n1hw.sum((2, 3), keepdim=True, dtype=torch.int64)
    return torch.div(total.mul_(2).add_(pixels), 2 * pixels, rounding_mode="floor").float()


def smooth(x_nchw: Tensor) -> Tensor:
    r"""Apply Pillow's `SMOOTH` filter: weights 1 around a 5 over 13, the outermost rows and columns untouched.

    Pillow sums in float32 and rounds half up. The exact value is a multiple of 1/13 plus 1/2, so at least 1/26 away
    from where the rounding turns: any way of computing it in float32 gives
    $\lfloor (S + 13/2) / 13 \rfloor$, S the weighted sum of whole numbers.
    """
    if min(x_nchw.shape[2:]) < 3:
        return x_nchw
    columns = (x_nchw[:, :, :-2] + x_nchw[:, :, 1:-1]).add_(x_nchw[:, :, 2:])
    total = (columns[..., :-2] + columns[..., 1:-1]).add_(columns[..., 2:]).add_(x_nchw[:, :, 1:-1, 1:-1], alpha=4)
    out = x_nchw.clone()
    out[:, :, 1:-1, 1:-1] = total.add_(6.5).mul_(1 / 13).floor_()
    return out


def blend(degenerate: Tensor, x_nchw: Tensor, factor: Tensor) -> Tensor:
    """Return `degenerate + factor * (x - degenerate)` clipped to 0..255: Pillow's `Image.blend` before its truncation.

    All three in float32 and broadcast against each other. Factors 0 and 1 give either image exactly.
    """
    return (x_nchw - degenerate).mul_(factor).add_(degenerate).clamp_(0, 255)


def brightness(images: Tensor, factor: Parameter) -> Tensor:
    """Blend with black, as `ImageEnhance.Brightness`: factor 0 black, 1 unchanged, above 1 brighter.

    Example:
        >>> brightness(torch.full((1, 3, 1, 1), 100, dtype=torch.uint8), 1.4).flatten().tolist()
        [140, 140, 140]
    """
    check_images(images)
    return (images * per_sample(factor, images, torch.float32)).clamp_(0, 255).to(torch.uint8)


def color(images: Tensor, factor: Parameter) -> Tensor:
    """Blend with the gray image, as `ImageEnhance.Color`: factor 0 gray, 1 unchanged, above 1 more saturated.

    Example:
        >>> color(torch.tensor([200, 100, 0], dtype=torch.uint8).view(1, 3, 1, 1), 0.5).flatten().tolist()
        [159, 109, 59]
    """
    return _enhance(images, factor, luma)


def contrast(images: Tensor, factor: Parameter) -> Tensor:
    """Blend with the image's mean gray, as `ImageEnhance.Contrast`: factor 0 flat, 1 unchanged, above 1 more contrast.

    Example:
        >>> contrast(torch.tensor([[[[0, 200]]] * 3], dtype=torch.uint8).view(1, 3, 1, 2), 1.2)[0, 0].tolist()
        [[0, 220]]
    """
    return _enhance(images, factor, lambda x_nchw: mean_luma(luma(x_nchw)))


def sharpness(images: Tensor, factor: Parameter) -> Tensor:
    """Blend with the smoothed image, as `ImageEnhance.Sharpness`: factor 0 smoothed, 1 unchanged, above 1 sharper.

    Example:
        >>> dot = torch.zeros(1, 3, 3, 3, dtype=torch.uint8); dot[..., 1, 1] = 130
        >>> sharpness(dot, 0.0)[0, 0, 1].tolist()
        [0, 50, 0]
    """
    return _enhance(images, factor, smooth)


def _enhance(images: Tensor, factor: Parameter, degenerate: Callable[[Tensor], Tensor]) -> Tensor:
    check_images(images)
    x_nchw = images.float()
    return blend(degenerate(x_nchw), x_nchw, per_sample(factor, images, torch.float32)).to(torch.uint8)


def grayscale(images: Tensor) -> Tensor:
    """Return gray in all three channels, as `ImageOps.grayscale` and back to RGB.

    Example:
        >>> grayscale(torch.tensor([200, 100, 0], dtype=torch.uint8).view(1, 3, 1, 1)).flatten().tolist()
        [118, 118, 118]
    """
    check_images(images)
    return luma(images.float()).to(torch.uint8).expand(images.shape).contiguous()


# A hue byte falls into one of six sectors of the circle, hue 255 into the first again, and lies somewhere within it.
_TURNS = [hue * 6.0 / 255.0 for hue in range(256)]
_PARTS = tuple(turn - math.floor(turn) for turn in _TURNS)
# From sector to sector red is the value, falling, lowest, lowest, rising, the value; green lags by two, blue by four.
_RED = (0, 1, 2, 2, 3, 0)
_CHOICES = tuple(_RED[(math.floor(turn) + lag) % 6] for lag in (0, 4, 2) for turn in _TURNS)


def rgb_to_hsv(x_nchw: Tensor) -> Tensor:
    """Convert RGB to HSV as `convert("HSV")` does, both as whole numbers 0 to 255 in float32."""
    value, low = x_nchw.amax(1), x_nchw.amin(1)
    spread = value - low
    # Where all channels are equal the numerators are zero, and so hue and saturation, whatever the divisor.
    saturation = (spread / value.clamp(min=1)).double().mul_(255).floor_().float()
    red, green, blue = ((value[:, None] - x_nchw) / spread.clamp(min=1)[:, None]).unbind(1)
    # Weights of 0 and 1 are exact, and faster on a CPU than torch.where.
    in_red = (x_nchw[:, 0] == value).float()
    in_green = (x_nchw[:, 1] == value).float().mul_(1 - in_red)
    in_blue = 1 - in_red - in_green
    start = (blue * in_red).add_(red * in_green).add_(green * in_blue)
    stop = (green * in_red).add_(blue * in_green).add_(red * in_blue)
    # In float64 as in C, and rounded to float32 once: in the red sector that is the float32 difference itself.
    hue = (2 * in_green).add_(in_blue, alpha=4).double().add_(start).sub_(stop).float()
    hue = hue.double().div_(constant((6.0,), x_nchw.device, torch.float64)).add_(1)
    hue = hue.sub_(hue.floor()).float().double().mul_(255).floor_().float()
    return torch.stack((hue, saturation, value), 1)


def hsv_to_rgb(hsv_nchw: Tensor) -> Tensor:
    """Convert HSV to RGB as `convert("RGB")` does, both as whole numbers 0 to 255 in float32."""
    hue, saturation, value = hsv_nchw.unbind(1)
    hue_index = hue.flatten().long()
    part = constant(_PARTS, hsv_nchw.device).index_select(0, hue_index).view(hue.shape)
    fraction = (saturation.double() / constant((255.0,), hsv_nchw.device, torch.float64)).float()
    value64, fraction64 = value.double(), fraction.double()
    # Half away from zero, as C's round; nothing is negative here.
    lowest = (value64 * (1 - fraction64)).add_(0.5).floor_().float()
    falling = (value64 * (1 - (fraction * part).double())).add_(0.5).floor_().float()
    rising = (value64 * (1 - fraction64 * (1 - part.double()))).add_(0.5).floor_().float()
    choices = constant(_CHOICES, hsv_nchw.device, torch.int64).view(3, 256)
    choice = choices.gather(1, hue_index.expand(3, -1)).view(3, *hue.shape).transpose(0, 1)
    return torch.stack((value, falling, lowest, rising), 1).gather(1, choice)


def turn_hue(x_nchw: Tensor, steps: Tensor) -> Tensor:
    """Add whole steps, `(n or 1, 1, 1, 1)`, to the hue byte of HSV, which wraps at 256; all are float32."""
    hsv_nchw = rgb_to_hsv(x_nchw)
    hue = hsv_nchw[:, :1].add_(steps % 256)
    hue.add_(hue.ge(256), alpha=-256)
    return hsv_to_rgb(hsv_nchw)


def hue_steps(amount: Tensor) -> Tensor:
    """Convert fractions of the circle to steps of the hue byte, truncated towards zero as in torchvision."""
    return (amount.double() * 255).trunc_().float()


def shift_hue(images: Tensor, amount: Parameter) -> Tensor:
    """Turn the hue by a fraction of the circle, -0.5 to 0.5, as torchvision's `adjust_hue` does on Pillow images.

    `int(amount * 255)` is added to the hue byte, so that a tensor should be float64. Amount 0 also changes the image:
    the round trip through HSV is not lossless.

    Example:
        >>> shift_hue(torch.tensor([200, 0, 0], dtype=torch.uint8).view(1, 3, 1, 1), 1 / 3).flatten().tolist()
        [0, 200, 0]
    """
    check_images(images)
    steps = hue_steps(per_sample(amount, images, torch.float64))
    return turn_hue(images.float(), steps).to(torch.uint8)


def cumulative_histogram(images: Tensor) -> Tensor:
    """Count the pixels of each channel that are at most 0, 1, ..., 255, as `(n, 3, 256)` int64.

    A scatter counts them; `bincount` would synchronize to learn the largest value.
    """
    n, c = images.shape[:2]
    first_bin = torch.arange(0, n * c * 256, 256, device=images.device).view(n, c, 1)
    bins = (images.flatten(2) + first_bin).reshape(-1)
    one = torch.ones((), dtype=torch.int64, device=images.device).expand(bins.shape)
    counts = torch.zeros(n * c * 256, dtype=torch.int64, device=images.device).scatter_add_(0, bins, one)
    return counts.view(n, c, 256).cumsum_(2)


def stretch(images: Tensor, cutoff: Tensor) -> tuple[Tensor, Tensor]:
    r"""Return scale and offset with which autocontrast maps each channel: $x \mapsto \mathrm{int}(x s + o)$, clipped.

    Of the h·w values of a channel Pillow drops the $k = \lfloor hw \cdot cutoff / 100 \rfloor$ darkest and the k
    lightest; $lo$ and $hi$ are the extremes of what is left, $s = 255 / (hi - lo)$, $o = -lo \, s$, all in float64.
    Where $hi \le lo$, or nothing is left, the channel is unchanged: (1, 0). The cutoff in percent and the results are
    `(n, 3, 1, 1)` in float64, or broadcast to it.
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
    """Stretch each channel to 0..255, as `ImageOps.autocontrast`; by its roundings the lightest value may become 254.

    Before the extremes are taken, `cutoff` percent of the pixels are dropped at either end. A tensor should be float64,
    since the number of dropped pixels is a floor.

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
    """Invert every value at or above the threshold, as `ImageOps.solarize`.

    Example:
        >>> solarize(torch.tensor([9, 10, 250], dtype=torch.uint8).view(1, 3, 1, 1), 10).flatten().tolist()
        [9, 245, 5]
    """
    check_images(images)
    return torch.where(images < per_sample(threshold, images, torch.float32), images, 255 - images)


def invert(images: Tensor) -> Tensor:
    """Return the negative, as `ImageOps.invert`."""
    check_images(images)
    return 255 - images


def posterize(images: Tensor, bits: Parameter) -> Tensor:
    """Keep the first 1 to 8 bits of every value, as `ImageOps.posterize`."""
    check_images(images)
    step = 2 ** (8 - per_sample(bits, images, torch.int32))
    return (images // step * step).to(torch.uint8)


def equalize(images: Tensor) -> Tensor:
    r"""Make the histogram of each channel flat, as `ImageOps.equalize`.

    A value becomes $\lfloor (\lfloor s / 2 \rfloor + k) / s \rfloor$ with $k$ pixels below it and
    $s = \lfloor (hw - m) / 255 \rfloor$, $m$ the pixels of the lightest value. Where $s = 0$ the channel is unchanged.
    """
    check_images(images)
    if images.numel() == 0:
        return images.clone()
    cdf = cumulative_histogram(images)
    below = torch.nn.functional.pad(cdf[..., :-1], (1, 0))
    pixels = images.shape[2] * images.shape[3]
    step = torch.div(below.masked_fill(below == pixels, 0).amax(2, keepdim=True), 255, rounding_mode="floor")
    table = torch.div(step // 2 + below, step.clamp(min=1), rounding_mode="floor").clamp_(max=255)
    same = torch.arange(256, device=images.device)
    return look_up(images, torch.where(step == 0, same, table).to(torch.uint8))


def look_up(images: Tensor, table: Tensor) -> Tensor:
    """Replace every value by its entry in a table of 256 bytes: `(n, 1, 256)`, or `(n, 3, 256)` for each channel."""
    index = images.flatten(2).long()
    return table.expand(images.shape[0], 3, 256).gather(2, index).view(images.shape)


def shift_channel(images: Tensor, amount: Parameter, channel: int) -> Tensor:
    """Add a whole number to one channel (0 red, 1 green, 2 blue) and clip to 0..255.

    Example:
        >>> shift_channel(torch.full((1, 3, 1, 1), 100, dtype=torch.uint8), -120, channel=0).flatten().tolist()
        [0, 100, 100]
    """
    check_images(images)
    if channel not in (0, 1, 2):
        raise InputError(f"expected channel 0 (red), 1 (green) or 2 (blue), got {channel}")
    out = images.clone()
    # In int32, so that no amount wraps.
    shifted = images[:, channel : channel + 1] + per_sample(amount, images, torch.int32)
    out[:, channel : channel + 1] = shifted.clamp_(0, 255).to(torch.uint8)
    return out
