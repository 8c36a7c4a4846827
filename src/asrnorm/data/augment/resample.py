"""Pillow's antialiased bilinear resize of whole images or of a box in each, equal to the bit.

Pillow resizes along the rows, rounds to uint8, then along the columns. Each output value is a weighted mean of a few
input values; the weights are a triangle as wide as the scale asks for, in float64, then rounded to 22 binary digits;
the sum is in whole numbers. So is this, with the taps of all samples gathered at once.

Pillow 13 takes the columns first where an image loses much more of its height than of its width; the rounding between
the passes then falls otherwise, by one gray level in some pixels. Here the rows always come first, as in every Pillow
before it, which is what published results were made with.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from asrnorm.data.augment.batch import check_images, in_pieces
from asrnorm.errors import InputError

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
