"""Snow, fog and frost of tensors."""

from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from asrnorm.data.corruptions import weather as reference
from asrnorm.data.corruptions.tensors.base import TENSOR_CORRUPTIONS, Draws, Settings, truncate_levels
from asrnorm.data.corruptions.tensors.blur import smear, zoom_in


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
    """Draw fractal maps by `corruptions.weather.displace_midpoints`, `(n, side, side)`, scaled to 0..1."""
    noise = draws.uniform(side * side, low=-1.0, high=1.0)
    zeros_nhw = torch.zeros_like(noise).view(-1, side, side)
    height_nhw: Tensor = reference.displace_midpoints(zeros_nhw, noise, decay_n11, torch.roll)
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
