"""Crops, flips, affine maps and Pillow's antialiased bilinear resize on batches; both equal Pillow to the bit.

Pillow resizes along the rows, rounds to uint8, then along the columns. Each output value is a weighted mean of a few
input values, the taps: the weights form a triangle whose width depends on the scale, are computed in float64 and
rounded to 22 binary digits, and the sum is in integers. Here the taps of all samples are gathered at once.

Pillow 13 takes the columns first where an image loses much more of its height than of its width, which changes some
pixels by one gray level. Here the rows always come first, as in every version before it.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from asrnorm.core.errors import InputError
from asrnorm.data.augment.base import check_images, find_fused_resize, in_chunks, num_taps

_WEIGHT_BITS = 22


class Boxes(NamedTuple):
    """A box in each image: first row and column, height and width, int64 `(n,)` each."""

    top: Tensor
    left: Tensor
    height: Tensor
    width: Tensor


def resize(images: Tensor, size: tuple[int, int]) -> Tensor:
    """Resize to `(height, width)` as `Image.resize(..., BILINEAR)` does; on a GPU with Triton by one kernel.

    Example:
        >>> resize(torch.tensor([0, 100], dtype=torch.uint8).expand(1, 3, 1, 2), (1, 4))[0, 0].tolist()
        [[0, 25, 75, 100]]
    """
    check_images(images)
    if (fused := find_fused_resize(images, size)) is not None:
        return fused(images, size)
    start = torch.zeros(images.shape[0], dtype=torch.int64, device=images.device)
    return resize_boxes(images, Boxes(start, start, start + images.shape[2], start + images.shape[3]), size)


def resize_boxes(images: Tensor, boxes: Boxes, size: tuple[int, int], flip: Tensor | None = None) -> Tensor:
    """Cut a box out of each image and resize it, as Pillow's `crop` and then `resize(..., BILINEAR)`.

    Boxes are data: shapes do not depend on them, and nothing synchronizes. They lie inside the images and have at least
    one pixel. `flip`, bool `(n,)`, says which results to mirror.
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
    return in_chunks(_weigh_axes, images, column_k, weight_k, *_taps(boxes.top, boxes.height, h, size[0]))


def shared_taps(length: int, out: int) -> tuple[Tensor, Tensor]:
    """Return the first input of every output, `(out,)`, and the weights of its taps, `(out, k)`, of a whole axis."""
    start, whole_axis = torch.zeros(1, dtype=torch.int64), torch.full((1,), length)
    index_k, weight_k = _taps(start, whole_axis, length, out)
    return index_k[0, :, 0], weight_k[0]


def _taps(start: Tensor, length: Tensor, limit: int, out: int) -> tuple[Tensor, Tensor]:
    """Return index and weight (in 1/2**22, 0 outside the box) of the inputs of each output, `(n, out, k)` each."""
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
        total = total + weight  # in Pillow's order, since sums round
        indices.append(index)
        weights.append(weight)
    weight_k = torch.stack(weights, 2) / total[..., None]
    index_k = torch.minimum(torch.stack(indices, 2), length64[..., None] - 1).long() + start[:, None, None]
    return index_k, (weight_k * (1 << _WEIGHT_BITS) + 0.5).int()


def _weigh_axes(images: Tensor, column_k: Tensor, weight_k: Tensor, row_k: Tensor, row_weight_k: Tensor) -> Tensor:
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


# RandomResizedCrop of the training on PACS: share of the image's area, width over height, and attempts.
SCALE, RATIO, _ATTEMPTS = (0.8, 1.0), (3 / 4, 4 / 3), 10


def draw_boxes(count: int, height: int, width: int, generator: torch.Generator) -> Boxes:
    """Draw a box in each of `count` images as torchvision's `RandomResizedCrop` does, on the generator's device.

    A uniform area within `SCALE` and a log-uniform aspect ratio within `RATIO` make a box; the first of ten that fits
    is taken, at a uniform position. If none fits, the largest centered box with an aspect within `RATIO` is taken. All
    ten are drawn at once, so that nothing synchronizes; the stream of random numbers is not torchvision's.
    """
    uniform = torch.rand((4, count, _ATTEMPTS), generator=generator, device=generator.device, dtype=torch.float64)
    area = height * width * (SCALE[0] + (SCALE[1] - SCALE[0]) * uniform[0])
    aspect = torch.exp(math.log(RATIO[0]) + (math.log(RATIO[1]) - math.log(RATIO[0])) * uniform[1])
    widths = torch.sqrt(area * aspect).round().long()
    heights = torch.sqrt(area / aspect).round().long()
    fits = (widths > 0) & (widths <= width) & (heights > 0) & (heights <= height)
    first = fits.int().argmax(1, keepdim=True)
    found = fits.any(1)
    whole_height, whole_width = min(height, round(width / RATIO[0])), min(width, round(height * RATIO[1]))
    box_height = torch.where(found, heights.gather(1, first).squeeze(1), whole_height)
    box_width = torch.where(found, widths.gather(1, first).squeeze(1), whole_width)
    top = torch.where(found, _draw_offset(uniform[2, :, 0], height - box_height), (height - whole_height) // 2)
    left = torch.where(found, _draw_offset(uniform[3, :, 0], width - box_width), (width - whole_width) // 2)
    return Boxes(top, left, box_height, box_width)


def _draw_offset(uniform: Tensor, largest: Tensor) -> Tensor:
    return torch.minimum((uniform * (largest + 1)).long(), largest)


def reflect(index: Tensor, size: int) -> Tensor:
    """Mirror indices outside `0..size-1` at the first and last element, which are not repeated."""
    return (size - 1) - ((size - 1) - index.abs()).abs()


def crop_flip(images: Tensor, top: Tensor, left: Tensor, flip: Tensor, padding: int, *, black: bool = False) -> Tensor:
    """Pad by reflection, or black, crop a window of the original size at `(top, left)`, mirror where `flip` is set.

    All three are one gather: nothing is padded, and no loop runs over the samples. `top` and `left` are int64 `(n,)`, 0
    to `2 * padding`, `flip` is bool `(n,)`, and the images may have any dtype.
    """
    n, c, h, w = images.shape
    rows = top[:, None] + torch.arange(-padding, h - padding, device=images.device)
    columns = left[:, None] + torch.arange(-padding, w - padding, device=images.device)
    row, column = reflect(rows, h), reflect(columns, w)
    column = torch.where(flip[:, None], column.flip(1), column)
    source = (row[:, :, None] * w + column[:, None, :]).view(n, 1, h * w)
    cropped = images.flatten(2).gather(2, source.expand(n, c, h * w)).view(n, c, h, w)
    if not black:
        return cropped
    columns = torch.where(flip[:, None], columns.flip(1), columns)
    inside = ((rows >= 0) & (rows < h))[:, None, :, None] & ((columns >= 0) & (columns < w))[:, None, None, :]
    return cropped * inside


def affine(images: Tensor, matrix: Tensor) -> Tensor:
    r"""Resample each image as `Image.transform(size, AFFINE, matrix, BILINEAR)`: black where it looks outside.

    The pixel at column x and row y shows the input at $(a x + b y + c, d x + e y + f)$, both counted to the centers of
    pixels; the matrix has $a, b, c, d, e, f$ of each image, float64 `(n, 6)`. As in Pillow, coordinates and weights are
    float64, and the result is truncated.

    Example:
        >>> row = torch.tensor([10, 20, 30], dtype=torch.uint8).expand(1, 3, 1, 3)
        >>> affine(row, torch.tensor([[1.0, 0, 1, 0, 1, 0]], dtype=torch.float64))[0, 0].tolist()
        [[20, 30, 0]]
    """
    check_images(images)
    if matrix.shape != (images.shape[0], 6) or matrix.dtype != torch.float64:
        raise InputError(f"expected a float64 matrix ({images.shape[0]}, 6), got {matrix.dtype} {tuple(matrix.shape)}")
    return in_chunks(_affine, images, matrix)


def _affine(images: Tensor, matrix: Tensor) -> Tensor:
    n, c, h, w = images.shape
    column = torch.arange(w, dtype=torch.float64, device=images.device).add_(0.5)
    row = torch.arange(h, dtype=torch.float64, device=images.device).add_(0.5)[:, None]
    first, second = matrix.view(n, 2, 3, 1, 1).unbind(1)
    x_nhw, y_nhw = (part[:, 0] * column + part[:, 1] * row + part[:, 2] for part in (first, second))
    inside = (x_nhw >= 0) & (x_nhw < w) & (y_nhw >= 0) & (y_nhw < h)
    x_nhw, y_nhw = x_nhw - 0.5, y_nhw - 0.5
    left, top = x_nhw.floor(), y_nhw.floor()
    right_part, lower_part = (x_nhw - left)[:, None], (y_nhw - top)[:, None]
    columns = [(left + k).clamp_(0, w - 1).long() for k in range(2)]
    flat = images.flatten(2)

    def blend_row(k: int) -> Tensor:
        start = (top + k).clamp_(0, h - 1).long() * w
        index = [(start + column).view(n, 1, h * w).expand(n, c, h * w) for column in columns]
        one, other = (flat.gather(2, each).view(n, c, h, w).double() for each in index)
        return other.sub_(one).mul_(right_part).add_(one)

    upper = blend_row(0)
    mixed = blend_row(1).sub_(upper).mul_(lower_part).add_(upper)
    return mixed.mul_(inside[:, None]).to(torch.uint8)
