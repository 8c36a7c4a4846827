"""The size in which a network sees images: one rule for training, selection, evaluation and export.

Pillow's antialiased bilinear resize of whole images or of a box in each, equal to the bit.

Pillow resizes along the rows, rounds to uint8, then along the columns. Each output value is a weighted mean of a few
input values; the weights are a triangle as wide as the scale asks for, in float64, then rounded to 22 binary digits;
the sum is in whole numbers. So is this, with the taps of all samples gathered at once.

Pillow 13 takes the columns first where an image loses much more of its height than of its width; the rounding between
the passes then falls otherwise, by one gray level in some pixels. Here the rows always come first, as in every Pillow
before it, which is what published results were made with.

torchvision's `RandomResizedCrop` on batches: the rule by which a box is drawn.

Random crop with reflected borders, and flip: what CIFAR-10 is trained with, each sample its own offset.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from asrnorm.core.errors import InputError
from asrnorm.data.augment.base import check_generator, check_images, in_pieces

PACS_SIZE, PACS_CROP = (227, 227), (222, 222)  # images as published, and as RSC and JiGen cut and test them


def network_size(augment: str, image_size: tuple[int, int]) -> tuple[int, int]:
    """Return the size of a network's input: 222 for images of 227 under the PACS set, else the images' own.

    Trained on crops of that size, it is tested on whole images resized to it.

    Args:
        augment: what the network is trained with, as the config names it.
        image_size: height and width of the suite's images.

    Example:
        >>> network_size("pacs", (227, 227)), network_size("pacs", (64, 64)), network_size("none", (227, 227))
        ((222, 222), (64, 64), (227, 227))
    """
    return PACS_CROP if augment == "pacs" and image_size == PACS_SIZE else image_size


_WEIGHT_BITS = 22


class Boxes(NamedTuple):
    """A box in each image: first row and column, height and width, int64 `(n,)` each."""

    top: Tensor
    left: Tensor
    height: Tensor
    width: Tensor


def whole(images: Tensor) -> Boxes:
    """Return the boxes that hold each image entirely."""
    n, _, h, w = images.shape
    full = torch.zeros(n, dtype=torch.int64, device=images.device)
    return Boxes(full, full, full + h, full + w)


def resize(images: Tensor, size: tuple[int, int]) -> Tensor:
    """Resize to `(height, width)` as `Image.resize(..., BILINEAR)`, rows first; on a GPU by a kernel where it can.

    Example:
        >>> resize(torch.tensor([0, 100], dtype=torch.uint8).expand(1, 3, 1, 2), (1, 4))[0, 0].tolist()
        [[0, 25, 75, 100]]
    """
    from asrnorm.data.augment.backend import find_fused_resize  # which asks this module how many taps there are

    check_images(images)
    fused = find_fused_resize(images, size)
    return resize_boxes(images, whole(images), size) if fused is None else fused(images, size)


def resize_boxes(images: Tensor, boxes: Boxes, size: tuple[int, int], flip: Tensor | None = None) -> Tensor:
    """Cut a box out of each image and resize it, as Pillow's `crop` and then `resize(..., BILINEAR)`.

    Boxes are data: the shapes do not depend on them, and nothing waits for the device.

    Args:
        images: uint8 `(n, 3, h, w)`.
        boxes: inside the images and at least one pixel high and wide.
        size: height and width of the result.
        flip: bool `(n,)`, where the result is to be mirrored; it costs nothing here.
    """
    check_images(images)
    if min(size) < 1 or min(images.shape[2:]) < 1:
        raise InputError(f"cannot resize {images.shape[2]}x{images.shape[3]} to {size[0]}x{size[1]}: no pixels")
    h, w = images.shape[2:]
    column_k, weight_k = _taps(boxes.left, boxes.width, w, size[1])
    if flip is not None:
        mirrored = flip[:, None, None]
        column_k = torch.where(mirrored, column_k.flip(1), column_k)
        weight_k = torch.where(mirrored, weight_k.flip(1), weight_k)
    return in_pieces(_weigh_both, images, column_k, weight_k, *_taps(boxes.top, boxes.height, h, size[0]))


def num_taps(limit: int, out: int) -> int:
    """As many inputs as an output of any box within `limit` may need; boxes that need fewer give the rest weight 0.

    Example:
        >>> num_taps(227, 222), num_taps(32, 64)
        (3, 2)
    """
    return math.ceil(2 * max(1.0, limit / out))


def shared_taps(length: int, out: int) -> tuple[Tensor, Tensor]:
    """Return the first input of every output, `(out,)`, and the weights of its taps, `(out, k)`, of a whole axis.

    Example:
        >>> first, weights = shared_taps(2, 4)
        >>> first.tolist(), (weights / 2**22).tolist()
        ([0, 0, 0, 1], [[1.0, 0.0], [0.75, 0.25], [0.25, 0.75], [1.0, 0.0]])
    """
    start, whole_axis = torch.zeros(1, dtype=torch.int64), torch.full((1,), length)
    index_k, weight_k = _taps(start, whole_axis, length, out)
    return index_k[0, :, 0], weight_k[0]


def _taps(start: Tensor, length: Tensor, limit: int, out: int) -> tuple[Tensor, Tensor]:
    """Which inputs each output reads and with what weight, for boxes `start .. start + length` on one axis.

    Args:
        start: first input of each box, int64 `(n,)`.
        length: inputs in it.
        limit: size of the axis, which bounds the number of taps k.
        out: number of outputs.

    Returns:
        Input index and weight in 1/2**22, int64 and int32 `(n, out, k)`. Taps outside the box have weight 0.
    """
    length64 = length.double()[:, None]
    scale = length64 / torch.full_like(length64, out)  # by a tensor: a GPU would multiply by a number's reciprocal
    support = scale.clamp(min=1.0)
    center = (torch.arange(out, dtype=torch.float64, device=start.device) + 0.5) * scale
    first = (center - support + 0.5).trunc().clamp_(min=0)
    last = (center + support + 0.5).trunc().minimum(length64)
    sharpness = torch.ones_like(support) / support
    indices, weights = [], []
    total = torch.zeros_like(center)
    for k in range(num_taps(limit, out)):
        index = first + k
        weight = (1 - ((index - center + 0.5) * sharpness).abs()).clamp_(min=0).masked_fill(index >= last, 0)
        total = total + weight  # one after the other, as Pillow does: the order of a sum rounds
        indices.append(index)
        weights.append(weight)
    weight_k = torch.stack(weights, 2) / total[..., None]
    index_k = torch.minimum(torch.stack(indices, 2), length64[..., None] - 1).long() + start[:, None, None]
    return index_k, (weight_k * (1 << _WEIGHT_BITS) + 0.5).int()


def _weigh_both(images: Tensor, column_k: Tensor, weight_k: Tensor, row_k: Tensor, row_weight_k: Tensor) -> Tensor:
    return _weigh(_weigh(images, column_k, weight_k, axis=3), row_k, row_weight_k, axis=2)


def _weigh(images: Tensor, index_k: Tensor, weight_k: Tensor, axis: int) -> Tensor:
    """Sum the taps along an axis in int32, round half up, and return uint8."""
    n = images.shape[0]
    shape = list(images.shape)
    shape[axis] = index_k.shape[1]
    view = (n, 1, 1, shape[3]) if axis == 3 else (n, 1, shape[2], 1)
    total = torch.full((1,), 1 << (_WEIGHT_BITS - 1), dtype=torch.int32, device=images.device)
    for index, weight in zip(index_k.unbind(2), weight_k.unbind(2), strict=True):
        taps = images.gather(axis, index.view(view).expand(shape))
        total = total + taps * weight.view(view)
    return (total >> _WEIGHT_BITS).to(torch.uint8)


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


def reflect(index: Tensor, size: int) -> Tensor:
    """Mirror indices that lie outside `0..size-1` at the first and last element, which are not repeated.

    Example:
        >>> reflect(torch.arange(-2, 6), 4).tolist()
        [2, 1, 0, 1, 2, 3, 2, 1]
    """
    return (size - 1) - ((size - 1) - index.abs()).abs()


def shift_flip(images: Tensor, top: Tensor, left: Tensor, flip: Tensor, padding: int) -> Tensor:
    """Pad by reflection, cut a window of the original size at `(top, left)`, mirror it where `flip` is set.

    The three are one gather from the images as they are: nothing is padded, no sample is visited by a loop.

    Args:
        images: uint8 `(n, 3, h, w)`.
        top: first row of each window in the padded image, int64 `(n,)`, 0 to `2 * padding`.
        left: first column, likewise.
        flip: bool `(n,)`.
        padding: rows and columns added on each side.
    """
    n, c, h, w = images.shape
    row = reflect(top[:, None] + torch.arange(-padding, h - padding, device=images.device), h)
    column = reflect(left[:, None] + torch.arange(-padding, w - padding, device=images.device), w)
    column = torch.where(flip[:, None], column.flip(1), column)
    source = (row[:, :, None] * w + column[:, None, :]).view(n, 1, h * w)
    return images.flatten(2).gather(2, source.expand(n, c, h * w)).view(n, c, h, w)


def random_crop_flip(images: Tensor, generator: torch.Generator, *, padding: int = 4, flip: float = 0.5) -> Tensor:
    """Shift each image by up to `padding` pixels with reflected borders, and mirror it with probability `flip`.

    Args:
        images: uint8 `(n, 3, h, w)`; the result has the same shape.
        generator: on the images' device.
        padding: at most `min(h, w) - 1`, since a border is mirrored once.
        flip: probability of a horizontal flip.

    Example:
        >>> images = torch.arange(48, dtype=torch.uint8).view(1, 3, 4, 4)
        >>> random_crop_flip(images, torch.Generator().manual_seed(0), padding=1).shape
        torch.Size([1, 3, 4, 4])
    """
    check_images(images)
    check_generator(images, generator)
    n, _, h, w = images.shape
    if not 0 <= padding < max(1, min(h, w)):
        raise InputError(f"expected a padding of 0 to {min(h, w) - 1} for images of {h}x{w}, got {padding}")
    top, left = torch.randint(2 * padding + 1, (2, n), generator=generator, device=images.device)
    mirrored = torch.rand(n, generator=generator, device=images.device) < flip
    return shift_flip(images, top, left, mirrored, padding)
