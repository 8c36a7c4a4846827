"""Pillow's `ImageEnhance` on batches: brightness, color, contrast, sharpness and grayscale, equal to the bit.

Each of them blends the image with a degenerate one, black, gray, flat or smoothed. Pillow computes the blend in
float32, two roundings and then a truncation, and so does this file: product and sum are separate tensor operations.
"""

import torch
from torch import Tensor

from asrnorm.data.augment.batch import Parameter, check_images, constant, per_sample

# Pillow's weights of R, G, B, in 1/65536. Every product and partial sum stays under 2**24: float32 holds them exactly.
_LUMA = (19595 / 65536, 38470 / 65536, 7471 / 65536)


def luma(x_nchw: Tensor) -> Tensor:
    r"""Gray values as `convert("L")` gives them: $\lfloor (19595 R + 38470 G + 7471 B + 32768) / 65536 \rfloor$.

    Args:
        x_nchw: pixel values, whole numbers 0 to 255 in float32.

    Returns:
        `(n, 1, h, w)` whole numbers in float32.
    """
    weights_c = constant(_LUMA, x_nchw.device).view(1, 3, 1, 1)
    return (x_nchw * weights_c).sum(1, keepdim=True).add_(0.5).floor_()


def mean_luma(gray_n1hw: Tensor) -> Tensor:
    r"""The flat gray of `ImageEnhance.Contrast`: $\lfloor \mathrm{mean} + 1/2 \rfloor$ as `(n, 1, 1, 1)`.

    In whole numbers: $\lfloor (2 \sum + hw) / (2 hw) \rfloor$, so that no sum and no quotient is rounded on the way.
    """
    pixels = gray_n1hw.shape[2] * gray_n1hw.shape[3]
    total = gray_n1hw.sum((2, 3), keepdim=True, dtype=torch.int64)
    return torch.div(total.mul_(2).add_(pixels), 2 * pixels, rounding_mode="floor").float()


def smooth(x_nchw: Tensor) -> Tensor:
    r"""Pillow's `SMOOTH` filter: weights 1 around a 5 over 13, the outermost rows and columns untouched.

    Pillow sums in float32 and rounds half up. The exact value is a multiple of 1/13 plus 1/2, so at least 1/26 away
    from where the rounding turns: any way of computing it in float32 gives
    $\lfloor (S + 13/2) / 13 \rfloor$, S the weighted sum.

    Args:
        x_nchw: whole numbers 0 to 255 in float32.
    """
    if min(x_nchw.shape[2:]) < 3:
        return x_nchw
    columns = (x_nchw[:, :, :-2] + x_nchw[:, :, 1:-1]).add_(x_nchw[:, :, 2:])
    total = (columns[..., :-2] + columns[..., 1:-1]).add_(columns[..., 2:]).add_(x_nchw[:, :, 1:-1, 1:-1], alpha=4)
    out = x_nchw.clone()
    out[:, :, 1:-1, 1:-1] = total.add_(6.5).mul_(1 / 13).floor_()
    return out


def blend(degenerate: Tensor, x_nchw: Tensor, factor: Tensor) -> Tensor:
    """Pillow's `Image.blend` before its truncation: `degenerate + factor * (x - degenerate)`, clipped to 0..255.

    All three in float32 and broadcast against each other. Factors 0 and 1 give either image exactly.
    """
    return (x_nchw - degenerate).mul_(factor).add_(degenerate).clamp_(0, 255)


def brightness(images: Tensor, factor: Parameter) -> Tensor:
    """Blend with black, as `ImageEnhance.Brightness`; equal to Pillow to the bit.

    Args:
        images: uint8 `(n, 3, h, w)`.
        factor: 0 black, 1 unchanged, above 1 brighter.

    Example:
        >>> brightness(torch.full((1, 3, 1, 1), 100, dtype=torch.uint8), 1.4).flatten().tolist()
        [140, 140, 140]
    """
    check_images(images)
    return (images * per_sample(factor, images, torch.float32)).clamp_(0, 255).to(torch.uint8)


def color(images: Tensor, factor: Parameter) -> Tensor:
    """Blend with the gray image, as `ImageEnhance.Color`; equal to Pillow to the bit.

    Args:
        images: uint8 `(n, 3, h, w)`.
        factor: 0 gray, 1 unchanged, above 1 more saturated.

    Example:
        >>> color(torch.tensor([200, 100, 0], dtype=torch.uint8).view(1, 3, 1, 1), 0.5).flatten().tolist()
        [159, 109, 59]
    """
    check_images(images)
    x_nchw = images.float()
    return blend(luma(x_nchw), x_nchw, per_sample(factor, images, torch.float32)).to(torch.uint8)


def contrast(images: Tensor, factor: Parameter) -> Tensor:
    """Blend with the image's mean gray, as `ImageEnhance.Contrast`; equal to Pillow to the bit.

    Args:
        images: uint8 `(n, 3, h, w)`.
        factor: 0 flat, 1 unchanged, above 1 more contrast.

    Example:
        >>> contrast(torch.tensor([[[[0, 200]]] * 3], dtype=torch.uint8).view(1, 3, 1, 2), 1.2)[0, 0].tolist()
        [[0, 220]]
    """
    check_images(images)
    x_nchw = images.float()
    return blend(mean_luma(luma(x_nchw)), x_nchw, per_sample(factor, images, torch.float32)).to(torch.uint8)


def sharpness(images: Tensor, factor: Parameter) -> Tensor:
    """Blend with the smoothed image, as `ImageEnhance.Sharpness`; equal to Pillow to the bit.

    Args:
        images: uint8 `(n, 3, h, w)`.
        factor: 0 smoothed, 1 unchanged, above 1 sharper.

    Example:
        >>> dot = torch.zeros(1, 3, 3, 3, dtype=torch.uint8); dot[..., 1, 1] = 130
        >>> sharpness(dot, 0.0)[0, 0, 1].tolist()
        [0, 50, 0]
    """
    check_images(images)
    x_nchw = images.float()
    return blend(smooth(x_nchw), x_nchw, per_sample(factor, images, torch.float32)).to(torch.uint8)


def grayscale(images: Tensor) -> Tensor:
    """Gray in all three channels, as `ImageOps.grayscale` and back to RGB; equal to Pillow to the bit.

    Example:
        >>> grayscale(torch.tensor([200, 100, 0], dtype=torch.uint8).view(1, 3, 1, 1)).flatten().tolist()
        [118, 118, 118]
    """
    check_images(images)
    return luma(images.float()).to(torch.uint8).expand(images.shape).contiguous()
