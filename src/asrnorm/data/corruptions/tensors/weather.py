"""Snow, fog, frost and spatter of tensors."""

from functools import lru_cache

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from asrnorm.data.corruptions import weather as reference
from asrnorm.data.corruptions.tensors.base import TENSOR_CORRUPTIONS, TIE, Draws, Settings, table, truncate_levels
from asrnorm.data.corruptions.tensors.blur import pad_mirrored, smear, smooth, zoom_in


@TENSOR_CORRUPTIONS.register("snow")
def snow(x_nchw: Tensor, draws: Draws, settings: Settings) -> Tensor:
    """Whiten the image and add falling flakes, and the same flakes turned by 180 degrees."""
    flakes = draws.normal(1, *x_nchw.shape[2:]).mul_(settings["sd"]).add_(settings["mean"])
    zoomed = settings.choose("zoom", lambda factor: zoom_in(flakes, factor))
    flakes = truncate_levels(torch.where(zoomed < settings["threshold"], 0, zoomed))
    fallen = smear(flakes, draws.uniform(low=-135.0, high=-45.0), settings)
    red, green, blue = reference.GRAY.tolist()
    gray = x_nchw[:, :1] * red + x_nchw[:, 1:2] * green + x_nchw[:, 2:] * blue
    keep = settings["keep"]
    x = keep * x_nchw + (1 - keep) * torch.maximum(x_nchw, gray * 1.5 + 0.5)
    return x + fallen + fallen.flip(2, 3)


@TENSOR_CORRUPTIONS.register("fog")
def fog(x_nchw: Tensor, draws: Draws, settings: Settings) -> Tensor:
    """Add a plasma fractal and scale back to the image's maximum."""
    height, width = x_nchw.shape[2:]
    brightest, density = x_nchw.amax((1, 2, 3), keepdim=True), settings["density"]
    side = max(2, 1 << (max(height, width) - 1).bit_length())
    haze = plasma(draws, side, settings["decay"].view(-1, 1, 1))[:, None, :height, :width]
    return (x_nchw + density * haze) * (brightest / (brightest + density))


def plasma(draws: Draws, side: int, decay_n11: Tensor) -> Tensor:
    """Draw maps by the diamond-square algorithm as `corruptions.weather.plasma`, scaled to 0..1, `(n, side, side)`."""
    noise = draws.uniform(side * side, low=-1.0, high=1.0)
    height_nhw = torch.zeros_like(noise).view(-1, side, side)
    amplitude = torch.full_like(decay_n11, reference.FIRST_AMPLITUDE)
    used, step = 0, side

    def displace(neighbors: Tensor) -> Tensor:
        nonlocal used
        count = neighbors.shape[1] * neighbors.shape[2]
        drawn = noise[:, used : used + count].view(neighbors.shape)
        used += count
        return neighbors / 4 + amplitude**2 * drawn

    while step >= 2:
        half = step // 2
        corner = height_nhw[:, ::step, ::step]
        below = corner + corner.roll(-1, 1)
        center = displace(below + below.roll(-1, 2))
        height_nhw[:, half::step, half::step] = center
        height_nhw[:, ::step, half::step] = displace(center + center.roll(1, 1) + corner + corner.roll(-1, 2))
        height_nhw[:, half::step, ::step] = displace(center + center.roll(1, 2) + below)
        step, amplitude = half, amplitude / decay_n11
    height_nhw -= height_nhw.amin((1, 2), keepdim=True)
    return height_nhw / height_nhw.amax((1, 2), keepdim=True)


@lru_cache(maxsize=16)
def load_photographs(
    source: str | None, scale: float, height: int, width: int, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Return the photographs one after the other, `(pixels, 3)`, and the first pixel, rows and columns of each."""
    pictures = reference.scaled_pictures(source, scale, height, width)
    pixels = np.concatenate([picture.reshape(-1, 3) for picture in pictures])
    first = np.cumsum([0, *(picture.size // 3 for picture in pictures)])
    facts = [(int(start), *picture.shape[:2]) for start, picture in zip(first, pictures, strict=False)]
    return torch.from_numpy(pixels).to(device), torch.tensor(facts, device=device)


@TENSOR_CORRUPTIONS.register("frost")
def frost(x_nchw: Tensor, draws: Draws, settings: Settings) -> Tensor:
    """Add a random piece of one of five photographs of frost, with weight `add`, to the image with weight `keep`."""
    height, width = x_nchw.shape[2:]
    source, device = settings.rows[0].get("source"), x_nchw.device
    which, down, right = draws.uniform(3).unbind(1)

    def cut(scale: float) -> Tensor:
        pixels, facts = load_photographs(None if source is None else str(source), scale, height, width, device)
        first, rows, columns = facts[(which * len(facts)).long()].T
        # The last position is never drawn, as in the published script.
        top, left = ((u * room.clamp(min=1)).long() for u, room in ((down, rows - height), (right, columns - width)))
        row = top[:, None] + torch.arange(height, device=device)
        column = (first + left)[:, None] + torch.arange(width, device=device)
        return pixels[(row * columns[:, None])[:, :, None] + column[:, None]].permute(0, 3, 1, 2)

    return settings["keep"] * x_nchw + settings["add"] / 255 * settings.choose("scale", cut)


@TENSOR_CORRUPTIONS.register("spatter")
def spatter(x_nchw: Tensor, draws: Draws, settings: Settings) -> Tensor:
    """Cover the image with drops of water or mud where a smooth random layer is above a threshold."""
    layer = draws.normal(1, *x_nchw.shape[2:]).mul_(settings["sd"]).add_(settings["mean"])
    layer = smooth(layer, settings, "sigma")

    def cover(mud: bool) -> Tensor:
        return _add_mud(x_nchw, layer, settings) if mud else _add_water(x_nchw, layer, settings)

    return settings.choose("mud", cover)


def _add_mud(x_nchw: Tensor, layer_n1hw: Tensor, settings: Settings) -> Tensor:
    cover = smooth((layer_n1hw > settings["threshold"]).float(), settings, "strength")
    cover = torch.where(cover < reference.MUD_EDGE, 0, cover)
    return x_nchw * (1 - cover) + _color(reference.MUD, x_nchw) * cover


def _add_water(x_nchw: Tensor, layer_n1hw: Tensor, settings: Settings) -> Tensor:
    layer = torch.where(layer_n1hw < settings["threshold"], 0, layer_n1hw)
    # Values above 1 wrap around in 8 bits, as in the published script.
    liquid = (layer * 255).trunc_().remainder_(256)
    shine = liquid * _relief(liquid)
    brightest = shine.amax((2, 3), keepdim=True)
    shine = shine / torch.where(brightest > 0, brightest, 1)
    return x_nchw + shine * settings["strength"] * _color(reference.WATER, x_nchw)


def _color(rgb: np.ndarray, x_nchw: Tensor) -> Tensor:
    return table(tuple(rgb.tolist()), x_nchw.device).float().view(1, 3, 1, 1)


def _relief(liquid_n1hw: Tensor) -> Tensor:
    """Light the drops from one side, by their distance from the nearest edge, in gray levels."""
    distance = (_box_mean(_distance(find_edges(liquid_n1hw))) + TIE).floor_()
    level = _equalize(distance)
    around = pad_mirrored(level, 1)
    above, middle, below = around[:, :, :-2], around[:, :, 1:-1], around[:, :, 2:]
    embossed = 2 * (below[..., 2:] - above[..., :-2]) + below[..., 1:-1] - above[..., 1:-1]
    embossed = (embossed + middle[..., 2:] - middle[..., :-2] + level).clamp_(0, 255)
    return _box_mean(embossed).round_()


def _box_mean(x_n1hw: Tensor) -> Tensor:
    padded = pad_mirrored(x_n1hw, 1)
    rows = padded[:, :, :-2] + padded[:, :, 1:-1] + padded[:, :, 2:]
    return (rows[..., :-2] + rows[..., 1:-1] + rows[..., 2:]) / 9


_TAN = 13573 / 32768  # OpenCV's tangent of 22.5 degrees
_SPREAD = 16  # steps by which strong edges spread along weak ones; drops have hardly any weak edges


def find_edges(gray_n1hw: Tensor) -> Tensor:
    """Return Canny's edges of whole gray levels, with the thresholds of the published script, as booleans."""
    padded = F.pad(gray_n1hw, (1, 1, 1, 1), mode="replicate")
    across, down = padded[..., 2:] - padded[..., :-2], padded[:, :, 2:] - padded[:, :, :-2]
    dx = across[:, :, :-2] + 2 * across[:, :, 1:-1] + across[:, :, 2:]
    dy = down[..., :-2] + 2 * down[..., 1:-1] + down[..., 2:]
    x, y = dx.abs(), dy.abs()
    size = x + y
    height, width = size.shape[2:]
    around = F.pad(size, (1, 1, 1, 1))

    def at(row: int, column: int) -> Tensor:
        return around[:, :, 1 + row : 1 + row + height, 1 + column : 1 + column + width]

    beside = (size > at(0, -1)) & (size >= at(0, 1))
    above = (size > at(-1, 0)) & (size >= at(1, 0))
    falling = (size > at(-1, -1)) & (size > at(1, 1))
    rising = (size > at(-1, 1)) & (size > at(1, -1))
    diagonal = torch.where((dx < 0) == (dy < 0), falling, rising)
    ridge = torch.where(y < x * _TAN, beside, torch.where(y > x * (_TAN + 2), above, diagonal))
    weak = ridge & (size > reference.EDGE_LOW)
    edge = weak & (size > reference.EDGE_HIGH)
    for _ in range(_SPREAD):
        edge = weak & (F.max_pool2d(edge.float(), 3, 1, 1) > 0)
    return edge


def _distance(edge_n1hw: Tensor) -> Tensor:
    """Return the distance to the nearest edge, cut off at `FARTHEST` pixels: along the rows, then across them."""
    # Paper: the script takes OpenCV's distance, which approximates this one within 2 %.
    reach = reference.FARTHEST
    square = torch.where(edge_n1hw, 0.0, float(reach**2))
    for axis in (3, 2):
        size = square.shape[axis]
        padded = F.pad(square, (reach, reach) if axis == 3 else (0, 0, reach, reach), value=float(reach**2))
        for offset in range(2 * reach + 1):
            square = torch.minimum(square, padded.narrow(axis, offset, size) + float((offset - reach) ** 2))
    return square.sqrt()


def _equalize(level_n1hw: Tensor) -> Tensor:
    """Equalize the histogram of levels 0 to `FARTHEST`, as OpenCV."""
    count_nk = torch.stack([(level_n1hw == level).sum((1, 2, 3)) for level in range(reference.FARTHEST + 1)], 1)
    total = level_n1hw[0].numel()
    up_to = count_nk.cumsum(1)
    lowest = count_nk.gather(1, (up_to > 0).long().argmax(1, keepdim=True))
    scale = 255 / (total - lowest).clamp(min=1)
    mapped = torch.where(
        lowest == total, torch.arange(count_nk.shape[1], device=count_nk.device), ((up_to - lowest) * scale).round_()
    )
    return mapped.float().gather(1, level_n1hw.long().flatten(1)).view_as(level_n1hw)
