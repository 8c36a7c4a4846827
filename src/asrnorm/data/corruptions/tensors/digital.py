"""Noise and the digital corruptions of tensors: brightness, saturation, contrast, pixelation, elastic transform."""

import torch
from torch import Tensor
from torch.nn import functional as F

from asrnorm.data.corruptions.tensors.base import TENSOR_CORRUPTIONS, Draws, Settings, round_levels
from asrnorm.data.corruptions.tensors.blur import smooth


@TENSOR_CORRUPTIONS.register("gaussian_noise")
def gaussian_noise(x_nchw: Tensor, draws: Draws, settings: Settings) -> Tensor:
    """Add N(0, sd) to every value."""
    return draws.normal(*x_nchw.shape[1:]).mul_(settings["sd"]).add_(x_nchw)


@TENSOR_CORRUPTIONS.register("shot_noise")
def shot_noise(x_nchw: Tensor, draws: Draws, settings: Settings) -> Tensor:
    """Count Poisson photons, `photons` of them where an image is white: fewer photons, more noise."""
    photons = settings["photons"]
    return draws.poisson(x_nchw * photons, settings.largest("photons")) / photons


@TENSOR_CORRUPTIONS.register("impulse_noise")
def impulse_noise(x_nchw: Tensor, draws: Draws, settings: Settings) -> Tensor:
    """Replace a fraction `amount` of all values by 0 or 1, half each."""
    chance, amount = draws.uniform(*x_nchw.shape[1:]), settings["amount"]
    return torch.where(chance < amount, (chance < amount / 2).float(), x_nchw)


@TENSOR_CORRUPTIONS.register("speckle_noise")
def speckle_noise(x_nchw: Tensor, draws: Draws, settings: Settings) -> Tensor:
    """Add N(0, sd) times the value to every value."""
    return draws.normal(*x_nchw.shape[1:]).mul_(settings["sd"]).add_(1).mul_(x_nchw)


@TENSOR_CORRUPTIONS.register("brightness")
def brightness(x_nchw: Tensor, _draws: Draws, settings: Settings) -> Tensor:
    """Add to the value of HSV."""
    hue, saturation, value = _to_hsv(x_nchw)
    return _from_hsv(hue, saturation, (value + settings["add"]).clamp_(0, 1))


@TENSOR_CORRUPTIONS.register("saturate")
def saturate(x_nchw: Tensor, _draws: Draws, settings: Settings) -> Tensor:
    """Scale and shift the saturation of HSV."""
    hue, saturation, value = _to_hsv(x_nchw)
    return _from_hsv(hue, (saturation * settings["factor"] + settings["add"]).clamp_(0, 1), value)


@TENSOR_CORRUPTIONS.register("contrast")
def contrast(x_nchw: Tensor, _draws: Draws, settings: Settings) -> Tensor:
    """Pull every value towards the mean of its channel."""
    mean = x_nchw.double().mean((2, 3), keepdim=True).float()
    return (x_nchw - mean) * settings["factor"] + mean


def _to_hsv(x_nchw: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return hue in sixths of the circle from 0 to 6, saturation and value, each `(n, 1, h, w)`."""
    red, green, blue = x_nchw.split(1, 1)
    value, least = x_nchw.amax(1, keepdim=True), x_nchw.amin(1, keepdim=True)
    span = value - least
    divisor = torch.where(span > 0, span, 1)
    hue = torch.where(value == green, 2 + (blue - red) / divisor, (green - blue) / divisor)
    hue = torch.where(value == blue, 4 + (red - green) / divisor, hue)
    hue = torch.where(span > 0, hue, 0)  # gray
    return torch.where(hue < 0, hue + 6, hue), span / torch.where(value > 0, value, 1), value


def _from_hsv(hue: Tensor, saturation: Tensor, value: Tensor) -> Tensor:
    r"""Return RGB: channel c is $v - v s \max(0, \min(k, 4 - k, 1))$ with $k = (o_c + h) \bmod 6$, o = 5, 3, 1."""
    chroma = value * saturation
    channels = []
    for offset in (5, 3, 1):
        k = (hue + offset).remainder(6)
        channels.append(value - chroma * torch.minimum(k, 4 - k).clamp_(0, 1))
    return torch.cat(channels, 1)


@TENSOR_CORRUPTIONS.register("pixelate")
def pixelate(x_nchw: Tensor, _draws: Draws, settings: Settings) -> Tensor:
    """Shrink with a box filter and enlarge back, rounding to gray levels after each pass as Pillow does."""

    def shrink_and_enlarge(scale: float) -> Tensor:
        x = round_levels(x_nchw) * 255
        for axis in (3, 2):
            size = x.shape[axis]
            x = _resize(_resize(x, axis, max(1, int(size * scale))), axis, size)
        return x / 255

    return settings.choose("scale", shrink_and_enlarge)


def _resize(levels_nchw: Tensor, axis: int, out: int) -> Tensor:
    """Resize an axis of whole gray levels as Pillow does with a box filter."""
    size, device = levels_nchw.shape[axis], levels_nchw.device
    stretch = size / out
    wide = max(1.0, stretch)
    center = (torch.arange(out, device=device, dtype=torch.float64) + 0.5) * stretch
    first, end = ((center + side * wide / 2 + 0.5).floor().clamp_(0, size) for side in (-1, 1))
    total, weight = torch.zeros((), device=device), torch.zeros((), device=device)
    for tap in range(int(wide) + 2):
        pixel = first + tap
        offset = (pixel + 0.5 - center) / wide
        share = ((pixel < end) & (offset > -0.5) & (offset <= 0.5)).float().view(-1, *[1] * (3 - axis))
        total = total + share * levels_nchw.index_select(axis, pixel.long().clamp_(max=size - 1))
        weight = weight + share
    return (total / weight + 0.5).floor_()


@TENSOR_CORRUPTIONS.register("elastic_transform")
def elastic_transform(x_nchw: Tensor, draws: Draws, settings: Settings) -> Tensor:
    """Move three points by up to `affine`, and the image with them, then stretch it locally."""
    height, width = x_nchw.shape[2:]
    side = min(height, width)
    x = _move(x_nchw, draws.uniform(3, 2, low=-1.0, high=1.0) * (settings["affine"].view(-1, 1, 1) * side))
    if settings.largest("alpha") == 0:
        return x
    field = draws.uniform(2, height, width, low=-1.0, high=1.0)
    field = smooth(field, settings, "sigma", unit=side, mode="reflect", truncate=3.0)
    right, down = (field * (settings["alpha"] * side)).unbind(1)
    row, column = _pixels(x)
    grid = torch.stack([(2 * (column + right) + 1) / width - 1, (2 * (row + down) + 1) / height - 1], -1)
    stretched = F.grid_sample(x, grid, "bilinear", "reflection", align_corners=False)
    return torch.where(settings["alpha"] > 0, stretched, x)


def _move(x_nchw: Tensor, shift_n32: Tensor) -> Tensor:
    """Move the images by the affine maps that shift three points."""
    height, width = x_nchw.shape[2:]
    arm = max(1, min(height, width) // 3)
    last, corner, first = shift_n32.unbind(1)  # of the points (+, +), (+, -) and (-, -)
    (a, c), (b, d) = (
        (side / (2 * arm)).view(-1, 2, 1, 1).unbind(1) for side in (corner - first, last - corner)
    )  # the map is [[1 + a, b], [c, 1 + d]] around the second point
    a, d = a + 1, d + 1
    determinant = a * d - b * c
    determinant = torch.where(determinant.abs() < 1e-6, 1e-6, determinant)
    row, column = _pixels(x_nchw)
    x_corner, y_corner = width // 2 + arm, height // 2 - arm
    x = column - x_corner - corner[:, 0].view(-1, 1, 1)
    y = row - y_corner - corner[:, 1].view(-1, 1, 1)
    source_x = (d * x - b * y) / determinant + x_corner
    source_y = (a * y - c * x) / determinant + y_corner
    grid = torch.stack([2 * source_x / max(1, width - 1) - 1, 2 * source_y / max(1, height - 1) - 1], -1)
    return F.grid_sample(x_nchw, grid, "bilinear", "reflection", align_corners=True)


def _pixels(x_nchw: Tensor) -> tuple[Tensor, Tensor]:
    """Return the rows `(h, 1)` and columns `(w,)` of the pixels as float32."""
    height, width = x_nchw.shape[2:]
    row = torch.arange(height, device=x_nchw.device, dtype=torch.float32)
    return row[:, None], torch.arange(width, device=x_nchw.device, dtype=torch.float32)
