"""Pillow's HSV on batches and torchvision's hue shift on it; equal to the bit.

Pillow computes this color space partly in float32 and partly in float64; values that fall exactly on a whole number
are truncated to it or to the one below as those roundings fall. Each line here therefore has the precision that the C
code has there, and divides by tensors, since a GPU multiplies by the reciprocal of a plain number.
"""

import math

import torch
from torch import Tensor

from asrnorm.data.augment.batch import Parameter, check_images, constant, per_sample

# A hue byte falls into one of six sectors of the circle, hue 255 into the first again, and lies somewhere within it.
_TURNS = [hue * 6.0 / 255.0 for hue in range(256)]
_PARTS = tuple(turn - math.floor(turn) for turn in _TURNS)
# From sector to sector red is the value, falling, lowest, lowest, rising, the value; green lags by two, blue by four.
_RED = (0, 1, 2, 2, 3, 0)
_CHOICES = tuple(_RED[(math.floor(turn) + lag) % 6] for lag in (0, 4, 2) for turn in _TURNS)


def rgb_to_hsv(x_nchw: Tensor) -> Tensor:
    """Hue, saturation and value in 0..255, as `convert("HSV")`; equal to Pillow to the bit.

    Args:
        x_nchw: whole numbers 0 to 255 in float32.

    Returns:
        The same, of the other color space.

    Example:
        >>> rgb_to_hsv(torch.tensor([0.0, 200, 100]).view(1, 3, 1, 1)).flatten().tolist()
        [106.0, 255.0, 200.0]
    """
    value, low = x_nchw.amax(1), x_nchw.amin(1)
    spread = value - low
    # Where all channels are equal the numerators are zero, and so hue and saturation, whatever the divisor.
    saturation = (spread / value.clamp(min=1)).double().mul_(255).floor_().float()
    red, green, blue = ((value[:, None] - x_nchw) / spread.clamp(min=1)[:, None]).unbind(1)
    # Weights of 0 and 1 instead of torch.where, which is slow on a CPU; what they leave is exact.
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
    """The way back, as `convert("RGB")` from HSV; equal to Pillow to the bit.

    Args:
        hsv_nchw: whole numbers 0 to 255 in float32, as `rgb_to_hsv` gives them.

    Returns:
        The same, of the other color space.

    Example:
        >>> hsv_to_rgb(torch.tensor([106.0, 255, 200]).view(1, 3, 1, 1)).flatten().tolist()
        [0.0, 200.0, 99.0]
    """
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
    """Go to HSV, add whole steps to the hue byte, which wraps at 256, and come back.

    Args:
        x_nchw: whole numbers 0 to 255 in float32.
        steps: whole numbers in float32, `(n or 1, 1, 1, 1)`.
    """
    hsv_nchw = rgb_to_hsv(x_nchw)
    hue = hsv_nchw[:, :1].add_(steps % 256)
    hue.add_(hue.ge(256), alpha=-256)
    return hsv_to_rgb(hsv_nchw)


def hue_steps(amount: Tensor) -> Tensor:
    """Fractions of the circle as steps of the hue byte: truncated towards zero, as torchvision does."""
    return (amount.double() * 255).trunc_().float()


def shift_hue(images: Tensor, amount: Parameter) -> Tensor:
    """Turn the hue by a fraction of the circle, as torchvision's `adjust_hue` does on Pillow images.

    Hue is a byte there: `int(amount * 255)` is added to it and wraps at 256. Equal to the bit, also where the amount
    is 0, since the way through HSV and back is not lossless.

    Args:
        images: uint8 `(n, 3, h, w)`.
        amount: -0.5 to 0.5. A tensor should be float64: the product is truncated.

    Example:
        >>> shift_hue(torch.tensor([200, 0, 0], dtype=torch.uint8).view(1, 3, 1, 1), 1 / 3).flatten().tolist()
        [0, 200, 0]
    """
    check_images(images)
    steps = hue_steps(per_sample(amount, images, torch.float64))
    return turn_hue(images.float(), steps).to(torch.uint8)
