"""Gaussian, defocus, motion, zoom and glass blur of tensors."""

import math
from itertools import chain

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from asrnorm.data.corruptions.blur import disk
from asrnorm.data.corruptions.tensors.base import (
    TENSOR_CORRUPTIONS,
    Draws,
    Settings,
    round_levels,
    table,
    truncate_levels,
)


def pad_mirrored(x_nchw: Tensor, reach: int) -> Tensor:
    """Pad rows and columns by `reach`, mirrored as OpenCV does by default: c b a b c b a."""
    for axis in (2, 3):
        size = x_nchw.shape[axis]
        period = max(1, 2 * (size - 1))
        index = torch.arange(-reach, size + reach, device=x_nchw.device).remainder(period)
        x_nchw = x_nchw.index_select(axis, torch.minimum(index, period - index))
    return x_nchw


def smooth(
    x_nchw: Tensor, settings: Settings, option: str, *, unit: float = 1.0, mode: str = "nearest", truncate: float = 4.0
) -> Tensor:
    """Blur with a Gaussian whose sigma is an option, times `unit` pixels; `mode` and `truncate` as in scipy."""
    reach, sigma = int(truncate * settings.largest(option) * unit + 0.5), settings.column(option)[:, None] * unit
    if reach == 0:
        return x_nchw
    tap = torch.arange(-reach, reach + 1, device=x_nchw.device)
    weight_sk = torch.exp(-0.5 * (tap / sigma.clamp(min=1e-6)) ** 2) * (tap.abs() <= (truncate * sigma + 0.5).floor())
    weight_nk = settings.pick(weight_sk / weight_sk.sum(1, keepdim=True)).float()
    for axis in (2, 3):
        size = x_nchw.shape[axis]
        weights = weight_nk
        if mode == "reflect" and weights.shape[1] > 2 * size:  # taps that are a period apart read the same pixel
            weights = F.pad(weights, (0, -weights.shape[1] % (2 * size))).unflatten(1, (-1, 2 * size)).sum(1)
        index = torch.arange(-reach, size + weights.shape[1] - 1 - reach, device=x_nchw.device)
        if mode == "reflect":
            index = torch.minimum(index.remainder(2 * size), (-1 - index).remainder(2 * size))
        padded, x_nchw = x_nchw.index_select(axis, index.clamp(0, size - 1)), torch.zeros_like(x_nchw)
        for offset, weight in enumerate(weights.unbind(1)):
            x_nchw.addcmul_(padded.narrow(axis, offset, size), weight.view(-1, 1, 1, 1))
    return x_nchw


@TENSOR_CORRUPTIONS.register("gaussian_blur")
def gaussian_blur(x_nchw: Tensor, _draws: Draws, settings: Settings) -> Tensor:
    """Blur every channel with a Gaussian."""
    return smooth(x_nchw, settings, "sigma")


@TENSOR_CORRUPTIONS.register("defocus_blur")
def defocus_blur(x_nchw: Tensor, _draws: Draws, settings: Settings) -> Tensor:
    """Blur with a disk, the shape of a lens out of focus."""
    height, width = x_nchw.shape[2:]
    kernels = [disk(row["radius"], row["alias"]) for row in settings.rows]
    reach = max(len(kernel) // 2 for kernel in kernels)
    padded = pad_mirrored(x_nchw.double(), reach)
    plain = tuple(tuple(np.pad(kernel, reach - len(kernel) // 2).ravel().tolist()) for kernel in kernels)
    kernel_s = table(plain, x_nchw.device).view(-1, 1, 2 * reach + 1, 2 * reach + 1)
    size = padded.shape[2:]
    weights = settings.pick(torch.fft.rfft2(kernel_s, s=size)).conj()
    return torch.fft.irfft2(torch.fft.rfft2(padded) * weights, s=size)[:, :, :height, :width].float()


@TENSOR_CORRUPTIONS.register("motion_blur")
def motion_blur(x_nchw: Tensor, draws: Draws, settings: Settings) -> Tensor:
    """Smear each image in a direction between -45 and 45 degrees."""
    return smear(x_nchw, draws.uniform(low=-45.0, high=45.0), settings)


def smear(x_nchw: Tensor, angle_n: Tensor, settings: Settings) -> Tensor:
    """Blur along a line that starts at each pixel, as `corruptions.blur.smear`, with `radius` and `sigma`."""
    n, channels, height, width = x_nchw.shape
    tap = torch.arange(2 * math.ceil(settings.largest("radius")) + 1, device=x_nchw.device)
    weight_sk = torch.exp(-(tap**2) / (2 * settings.column("sigma")[:, None] ** 2))
    weight_sk = weight_sk * (tap <= 2 * settings.column("radius")[:, None].ceil())
    weight_nk = settings.pick(weight_sk / weight_sk.sum(1, keepdim=True)).float()
    radians = torch.deg2rad(angle_n)[:, None]
    right_nk, down_nk = (torch.ceil(tap * slope - 0.5).long() for slope in (radians.cos(), radians.sin()))
    row, column = torch.arange(height, device=x_nchw.device), torch.arange(width, device=x_nchw.device)
    pixels, total = x_nchw.flatten(2), torch.zeros_like(x_nchw)
    for down, right, weight in zip(down_nk.unbind(1), right_nk.unbind(1), weight_nk.unbind(1), strict=True):
        rows, columns = (row + down[:, None]).clamp_(0, height - 1), (column + right[:, None]).clamp_(0, width - 1)
        index = (rows[:, :, None] * width + columns[:, None, :]).view(n, 1, -1).expand(-1, channels, -1)
        total.addcmul_(pixels.gather(2, index).view_as(x_nchw), weight.view(-1, 1, 1, 1))
    return round_levels(total)


@TENSOR_CORRUPTIONS.register("zoom_blur")
def zoom_blur(x_nchw: Tensor, _draws: Draws, settings: Settings) -> Tensor:
    """Average the image and its zooms by `np.arange(1, end, step)`."""
    factors = [np.arange(1, row["end"], row["step"]).tolist() for row in settings.rows]
    distinct = list(dict.fromkeys(chain.from_iterable(factors)))
    # The image itself and each of its zooms have the same weight.
    rows = tuple((1.0, *(float(factor in own) for factor in distinct)) for own in factors)
    share_s = table(rows, x_nchw.device) / table(tuple((1.0 + len(own),) for own in factors), x_nchw.device)
    whole, *weights = settings.pick(share_s).float().unbind(1)
    total = x_nchw * whole.view(-1, 1, 1, 1)
    for factor, weight in zip(distinct, weights, strict=True):
        total.addcmul_(zoom_in(x_nchw, factor), weight.view(-1, 1, 1, 1))
    return total


def zoom_in(x_nchw: Tensor, factor: float) -> Tensor:
    """Enlarge the middle to the size of the whole, as `corruptions.blur.zoom_in`."""
    if factor == 1.0:
        return x_nchw
    middle, enlarged, trimmed, is_beyond = [], [], [], []
    for size in x_nchw.shape[2:]:
        kept = math.ceil(size / factor)
        large = round(kept * factor)
        middle.append(slice((size - kept) // 2, (size - kept) // 2 + kept))
        enlarged.append(large)
        trimmed.append(slice((large - size) // 2, (large - size) // 2 + size))
        # Rounding may put the last position beyond the edge; scipy takes 0 there.
        is_beyond.append(large > 1 and (trimmed[-1].stop - 1) * ((kept - 1) / (large - 1)) > kept - 1)
    zoomed = F.interpolate(x_nchw[:, :, *middle], enlarged, mode="bilinear", align_corners=True)[:, :, *trimmed]
    for axis in (axis for axis in (2, 3) if is_beyond[axis - 2]):
        zoomed.select(axis, -1).zero_()
    return zoomed


@TENSOR_CORRUPTIONS.register("glass_blur")
def glass_blur(x_nchw: Tensor, draws: Draws, settings: Settings) -> Tensor:
    """Blur, copy every pixel from a random neighbor, blur again; the passes of copies are the reference's."""
    height, width = x_nchw.shape[2:]
    position = torch.arange(height * width, device=x_nchw.device)
    row, column = position // width, position % width
    reach, rounds = settings["reach"].flatten(1), settings["rounds"].flatten(1)
    is_visited = (row > reach) & (row <= height - reach) & (column > reach) & (column <= width - reach)
    pixels = truncate_levels(smooth(x_nchw, settings, "sigma")).flatten(2)
    for done in range(int(settings.largest("rounds"))):
        down, right = (draws.uniform(2, height * width, low=-1.0, high=1.0) * reach[:, None]).floor().long().unbind(1)
        neighbor = position + torch.where(is_visited & (done < rounds), down * width + right, 0)
        # A later neighbor already has a copy, so its origin counts. The chain of such copies is followed to its end in
        # doubled steps; one of more than 64 has a probability below 2**-64.
        last = torch.maximum(position, neighbor)
        for _ in range(6):
            last = last.gather(1, last)
        pixels = pixels.gather(2, neighbor.gather(1, last)[:, None].expand_as(pixels))
    return smooth(pixels.view_as(x_nchw), settings, "sigma")
