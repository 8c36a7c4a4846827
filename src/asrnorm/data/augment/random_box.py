"""torchvision's `RandomResizedCrop` on batches: the rule by which a box is drawn."""

import math

import torch
from torch import Tensor

from asrnorm.data.augment.resample import Boxes
from asrnorm.errors import InputError

_ATTEMPTS = 10


def draw_boxes(
    count: int,
    height: int,
    width: int,
    generator: torch.Generator,
    *,
    scale: tuple[float, float] = (0.8, 1.0),
    ratio: tuple[float, float] = (3 / 4, 4 / 3),
) -> Boxes:
    """Draw a box in each image as `RandomResizedCrop` does.

    An area, uniform in `scale` of the image's, and an aspect ratio, uniform in the logarithm, make a box; the first of
    ten that fits is taken and placed uniformly. Where none of the ten fits, the largest centered box whose aspect is
    within `ratio` is taken. All ten are drawn at once, so that nothing waits for the device; the rule is torchvision's,
    its stream of random numbers is not.

    Args:
        count: number of images.
        height: of the images.
        width: of the images.
        generator: the boxes are made on its device.
        scale: least and greatest share of the area.
        ratio: least and greatest width over height.

    Example:
        >>> boxes = draw_boxes(100, 50, 40, torch.Generator().manual_seed(0))
        >>> bool((boxes.top + boxes.height <= 50).all() and (boxes.left + boxes.width <= 40).all())
        True
    """
    if not (0 < scale[0] <= scale[1] and 0 < ratio[0] <= ratio[1]):
        raise InputError(f"expected positive ranges (low, high), got scale {scale} and ratio {ratio}")
    device = generator.device
    uniform = torch.rand((4, count, _ATTEMPTS), generator=generator, device=device, dtype=torch.float64)
    area = height * width * (scale[0] + (scale[1] - scale[0]) * uniform[0])
    aspect = torch.exp(math.log(ratio[0]) + (math.log(ratio[1]) - math.log(ratio[0])) * uniform[1])
    widths = torch.sqrt(area * aspect).round().long()
    heights = torch.sqrt(area / aspect).round().long()
    fits = (widths > 0) & (widths <= width) & (heights > 0) & (heights <= height)
    first = fits.int().argmax(1, keepdim=True)
    found = fits.any(1)
    box_height = heights.gather(1, first).squeeze(1)
    box_width = widths.gather(1, first).squeeze(1)
    whole_height, whole_width = _largest(height, width, ratio)
    box_height = torch.where(found, box_height, whole_height)
    box_width = torch.where(found, box_width, whole_width)
    room_y, room_x = height - box_height, width - box_width
    top = torch.where(found, _place(uniform[2, :, 0], room_y), (height - whole_height) // 2)
    left = torch.where(found, _place(uniform[3, :, 0], room_x), (width - whole_width) // 2)
    return Boxes(top, left, box_height, box_width)


def _place(uniform: Tensor, room: Tensor) -> Tensor:
    return torch.minimum((uniform * (room + 1)).long(), room)


def _largest(height: int, width: int, ratio: tuple[float, float]) -> tuple[int, int]:
    """Height and width of the box that is taken where no drawn one fits."""
    if width / height < ratio[0]:
        return min(height, round(width / ratio[0])), width
    if width / height > ratio[1]:
        return height, min(width, round(height * ratio[1]))
    return height, width
