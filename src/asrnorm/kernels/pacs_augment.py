"""The PACS augmentation in three launches, and resizing in one; bit-identical to `data/augment`.

`find_taps` writes, for each image and axis, the first input of every output and the weights of its taps in 1/2**22.
`weigh` applies them to a tile of outputs: along the rows with rounding to bytes, then along the columns. In `resize`,
whole images of one size share their taps.

A contrast blends with the mean gray of the whole image, which depends on all earlier adjustments. So the first kernel
computes the taps of every box; the second resamples, adjusts up to the contrast and sums the gray of each image in
integers, whose order does not matter; the third blends, applies the other adjustments and writes. A program processes a
tile of one image, so all its pixels take the same branches.
"""

from functools import lru_cache

import torch
import triton
import triton.language as tl
from torch import Tensor

from asrnorm.data.augment.base import num_taps
from asrnorm.data.augment.geometry import shared_taps
from asrnorm.data.augment.pacs import PacsDraw
from asrnorm.kernels.pixels import blend, gray_of, read_byte, turn_hue, write_byte


@triton.jit
def find_taps(
    taps,
    start,
    length,
    OUT: tl.constexpr,
    COUNT: tl.constexpr,
    SPAN: tl.constexpr,
    TAPS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Compute the taps of one box on one axis: COUNT per output; the rest of TAPS and those outside the box weigh 0.

    A row of the table has SPAN entries, the number of outputs of the longer axis.
    """
    position = tl.arange(0, BLOCK)
    inside = position < OUT
    scale = length.to(tl.float64) / OUT
    support = tl.maximum(scale, 1.0)
    sharpness = tl.full((), 1.0, tl.float64) / support
    center = (position.to(tl.float64) + 0.5) * scale
    first = tl.maximum(center - support + 0.5, 0.0).to(tl.int32)
    last = tl.minimum(tl.minimum((center + support + 0.5).to(tl.int32), length), first + COUNT)
    # In Pillow's order, since sums round.
    total = tl.zeros((BLOCK,), tl.float64)
    for k in tl.static_range(TAPS):
        total = total + _triangle(first + k, last, center, sharpness)
    tl.store(taps + position, first + start, mask=inside)
    for k in tl.static_range(TAPS):
        # Positions beyond the last output have no taps, and are not stored.
        weight = _triangle(first + k, last, center, sharpness) / tl.where(inside, total, 1.0)
        tl.store(taps + (k + 1) * SPAN + position, (weight * 4194304.0 + 0.5).to(tl.int32), mask=inside)


@triton.jit
def _triangle(index, last, center, sharpness):
    height = tl.maximum(1.0 - tl.abs((index.to(tl.float64) - center + 0.5) * sharpness), 0.0)
    return tl.where(index < last, height, 0.0)


@triton.jit
def locate_tile(OUT_H: tl.constexpr, OUT_W: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Return a program's sample, the rows `(r, 1)` and columns `(1, c)` of its tile, and which of them are inside."""
    ACROSS: tl.constexpr = (OUT_W + COLUMNS - 1) // COLUMNS
    TILES: tl.constexpr = ACROSS * ((OUT_H + ROWS - 1) // ROWS)
    sample = (tl.program_id(0) // TILES).to(tl.int64)
    tile = tl.program_id(0) % TILES
    row = (tile // ACROSS) * ROWS + tl.arange(0, ROWS)[:, None]
    column = (tile % ACROSS) * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    return sample, row, column, (row < OUT_H) & (column < OUT_W)


@triton.jit
def weigh(
    image,
    row_taps,
    column_taps,
    row,
    column,
    inside,
    row_count,
    image_c,
    image_h,
    image_w,
    IMAGE_H: tl.constexpr,
    IMAGE_W: tl.constexpr,
    SPAN: tl.constexpr,
    ROW_TAPS: tl.constexpr,
    COLUMN_TAPS: tl.constexpr,
    UNIT: tl.constexpr,
):
    """Return a tile of the resized box; rows `(r, 1)` and columns `(1, c)` of the output must lie within it.

    Along the columns the first `row_count` taps are summed; the others, and all beyond the image, have weight 0.
    """
    first_row = tl.load(row_taps + row)
    first_column = tl.load(column_taps + column)
    half = tl.zeros(inside.shape, tl.int32) + 2097152
    red, green, blue = half, half, half
    for i in range(ROW_TAPS):
        if i < row_count:
            row_weight = tl.load(row_taps + (i + 1) * SPAN + row)
            line = image + tl.minimum(first_row + i, IMAGE_H - 1) * image_h
            line_red, line_green, line_blue = half, half, half
            for j in tl.static_range(COLUMN_TAPS):
                weight = tl.load(column_taps + (j + 1) * SPAN + column)
                source = line + tl.minimum(first_column + j, IMAGE_W - 1) * image_w
                line_red += read_byte(source, inside, UNIT) * weight
                line_green += read_byte(source + image_c, inside, UNIT) * weight
                line_blue += read_byte(source + 2 * image_c, inside, UNIT) * weight
            red += (line_red >> 22) * row_weight
            green += (line_green >> 22) * row_weight
            blue += (line_blue >> 22) * row_weight
    return red >> 22, green >> 22, blue >> 22


# Pixels and warps per program: four pixels per thread use few enough registers to hide the latency of loads.
_TILE, _WARPS = 1024, 8


@triton.jit
def _resize(
    images, out, taps, image_n, image_c, image_h, image_w,
    IMAGE_H: tl.constexpr, IMAGE_W: tl.constexpr, OUT_H: tl.constexpr, OUT_W: tl.constexpr, SPAN: tl.constexpr,
    TAPS: tl.constexpr, ROW_TAPS: tl.constexpr, COLUMN_TAPS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    sample, row, column, inside = locate_tile(OUT_H, OUT_W, ROWS, COLUMNS)
    red, green, blue = weigh(
        images + sample * image_n, taps, taps + (TAPS + 1) * SPAN,
        tl.minimum(row, OUT_H - 1), tl.minimum(column, OUT_W - 1), inside, ROW_TAPS,
        image_c, image_h, image_w, IMAGE_H, IMAGE_W, SPAN, ROW_TAPS, COLUMN_TAPS, False,
    )  # fmt: skip
    # Channels-last, as networks on a GPU take them.
    target = out + ((sample * OUT_H + row) * OUT_W + column) * 3
    tl.store(target, red.to(tl.uint8), mask=inside)
    tl.store(target + 1, green.to(tl.uint8), mask=inside)
    tl.store(target + 2, blue.to(tl.uint8), mask=inside)


def resize_fused(images: Tensor, size: tuple[int, int]) -> Tensor:
    """Compute `resize` of uint8 images in one launch, to a size that `find_fused_resize` accepts; channels-last."""
    count, _, image_h, image_w = images.shape
    out_h, out_w = size
    out = torch.empty(
        (count, 3, out_h, out_w), dtype=torch.uint8, device=images.device, memory_format=torch.channels_last
    )
    if count == 0:
        return out
    row_taps, column_taps = num_taps(image_h, out_h), num_taps(image_w, out_w)
    columns = min(256, triton.next_power_of_2(out_w))
    rows = _TILE // columns
    with torch.cuda.device_of(images):
        _resize[(count * triton.cdiv(out_h, rows) * triton.cdiv(out_w, columns),)](
            images, out, _tabulate(image_h, image_w, size, images.device), *images.stride(),
            IMAGE_H=image_h, IMAGE_W=image_w, OUT_H=out_h, OUT_W=out_w, SPAN=max(size),
            TAPS=max(row_taps, column_taps), ROW_TAPS=row_taps, COLUMN_TAPS=column_taps, ROWS=rows, COLUMNS=columns,
            num_warps=_WARPS,
        )  # fmt: skip
    return out


@lru_cache(maxsize=32)
def _tabulate(height: int, width: int, size: tuple[int, int], device: torch.device) -> Tensor:
    """Return the taps of rows and columns as `weigh` reads them: the first inputs, then one row of weights per tap."""
    pairs = [shared_taps(length, out) for length, out in zip((height, width), size, strict=True)]
    most = max(weights.shape[1] for _, weights in pairs)
    table = torch.zeros((2, most + 1, max(size)), dtype=torch.int32)
    for axis, (first, weights) in zip(table, pairs, strict=True):
        axis[0, : len(first)] = first
        axis[1 : 1 + weights.shape[1], : len(first)] = weights.T
    return table.to(device)


MOST_PIXELS = 1 << 22  # twice the sum of this many bytes fits into 32 bits
MOST_TAPS = 4  # enough to halve a size; the second kernel unrolls the taps of a row


# Below, 0 is brightness, 1 contrast, 2 saturation and 3 hue, as in `data/augment/pacs.py`.


@triton.jit
def _find_contrast(order):
    position = 0
    for step in range(4):
        position = tl.where(tl.load(order + step) == 1, step, position)
    return position


@triton.jit
def _adjust(red, green, blue, begin, end, factors, hue, order):
    # Apply the adjustments at positions `begin` to `end - 1` of the order; the contrast is not among them.
    for step in range(4):
        kind = tl.where((step >= begin) & (step < end), tl.load(order + step), -1)
        if kind == 3:
            # Truncated towards zero, and wrapped as the hue byte wraps.
            steps = (tl.load(hue).to(tl.float64) * 255.0).to(tl.int32) & 255
            red, green, blue = turn_hue(red, green, blue, steps)
        elif kind >= 0:
            factor = tl.load(factors + kind).to(tl.float32)
            low = tl.where(kind == 2, gray_of(red, green, blue), 0)
            red, green, blue = blend(low, red, factor), blend(low, green, factor), blend(low, blue, factor)
    return red, green, blue


# Drawn parameters are rows of larger tensors at any address: each alignment would be compiled separately, perhaps in
# a capture.
@triton.jit(do_not_specialize_on_alignment=["top", "left", "height", "width"])
def _prepare(
    taps,
    totals,
    top,
    left,
    height,
    width,
    OUT_H: tl.constexpr,
    OUT_W: tl.constexpr,
    SPAN: tl.constexpr,
    TAPS: tl.constexpr,
    ROW_TAPS: tl.constexpr,
    COLUMN_TAPS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    sample = (tl.program_id(0) // 2).to(tl.int64)
    taps += tl.program_id(0).to(tl.int64) * (TAPS + 1) * SPAN
    if tl.program_id(0) % 2 == 0:
        start, length = tl.load(top + sample).to(tl.int32), tl.load(height + sample).to(tl.int32)
        find_taps(taps, start, length, OUT_H, ROW_TAPS, SPAN, TAPS, BLOCK)
        tl.store(totals + sample, 0)
    else:
        start, length = tl.load(left + sample).to(tl.int32), tl.load(width + sample).to(tl.int32)
        find_taps(taps, start, length, OUT_W, COLUMN_TAPS, SPAN, TAPS, BLOCK)


@triton.jit(do_not_specialize_on_alignment=["height", "flip", "factors", "hue", "order"])
def _crop(
    images,
    crops,
    taps,
    totals,
    height,
    flip,
    factors,
    hue,
    order,
    image_n,
    image_c,
    image_h,
    image_w,
    IMAGE_H: tl.constexpr,
    IMAGE_W: tl.constexpr,
    OUT_H: tl.constexpr,
    OUT_W: tl.constexpr,
    SPAN: tl.constexpr,
    TAPS: tl.constexpr,
    ROW_TAPS: tl.constexpr,
    COLUMN_TAPS: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    UNIT: tl.constexpr,
):
    sample, row, column, inside = locate_tile(OUT_H, OUT_W, ROWS, COLUMNS)
    near = tl.minimum(column, OUT_W - 1)
    row_taps = taps + sample * 2 * (TAPS + 1) * SPAN
    red, green, blue = weigh(
        images + sample * image_n,
        row_taps,
        row_taps + (TAPS + 1) * SPAN,
        tl.minimum(row, OUT_H - 1),
        tl.where(tl.load(flip + sample) != 0, OUT_W - 1 - near, near),
        inside,
        tl.where(tl.load(height + sample) <= OUT_H, 2, ROW_TAPS),  # without shrinking, two have weight
        image_c,
        image_h,
        image_w,
        IMAGE_H,
        IMAGE_W,
        SPAN,
        ROW_TAPS,
        COLUMN_TAPS,
        UNIT,
    )
    order += sample * 4
    red, green, blue = _adjust(red, green, blue, 0, _find_contrast(order), factors + sample * 3, hue + sample, order)
    total = tl.sum(tl.sum(tl.where(inside, gray_of(red, green, blue), 0), 1), 0)
    tl.atomic_add(totals + sample, total, sem="relaxed")
    target = crops + sample * 3 * OUT_H * OUT_W + row * OUT_W + column
    tl.store(target, red.to(tl.uint8), mask=inside)
    tl.store(target + OUT_H * OUT_W, green.to(tl.uint8), mask=inside)
    tl.store(target + 2 * OUT_H * OUT_W, blue.to(tl.uint8), mask=inside)


@triton.jit(do_not_specialize_on_alignment=["factors", "hue", "order", "gray", "table"])
def _finish(
    crops,
    out,
    totals,
    factors,
    hue,
    order,
    gray,
    table,
    out_n,
    out_c,
    out_h,
    out_w,
    OUT_H: tl.constexpr,
    OUT_W: tl.constexpr,
    BLOCK: tl.constexpr,
    UNIT: tl.constexpr,
):
    PIXELS: tl.constexpr = OUT_H * OUT_W
    TILES: tl.constexpr = (PIXELS + BLOCK - 1) // BLOCK
    sample = (tl.program_id(0) // TILES).to(tl.int64)
    pixel = (tl.program_id(0) % TILES) * BLOCK + tl.arange(0, BLOCK)
    inside = pixel < PIXELS
    source = crops + sample * 3 * PIXELS + pixel
    red = tl.load(source, mask=inside, other=0).to(tl.int32)
    green = tl.load(source + PIXELS, mask=inside, other=0).to(tl.int32)
    blue = tl.load(source + 2 * PIXELS, mask=inside, other=0).to(tl.int32)
    order += sample * 4
    factors += sample * 3
    mean = (2 * tl.load(totals + sample) + PIXELS) // (2 * PIXELS)
    factor = tl.load(factors + 1).to(tl.float32)
    red, green, blue = blend(mean, red, factor), blend(mean, green, factor), blend(mean, blue, factor)
    red, green, blue = _adjust(red, green, blue, _find_contrast(order) + 1, 4, factors, hue + sample, order)
    if tl.load(gray + sample) != 0:
        red = gray_of(red, green, blue)
        green, blue = red, red
    target = out + sample * out_n + (pixel // OUT_W) * out_h + (pixel % OUT_W) * out_w
    write_byte(target, red, inside, table, UNIT)
    write_byte(target + out_c, green, inside, table + 256, UNIT)
    write_byte(target + 2 * out_c, blue, inside, table + 512, UNIT)


def apply_fused(images: Tensor, drawn: PacsDraw, size: tuple[int, int], table: Tensor | None = None) -> Tensor:
    """Compute `apply_pacs` in three launches; the host reads nothing.

    Args:
        images: `(n, 3, h, w)` in any memory order, uint8, or float32 in [0, 1], which is rounded to bytes first.
        drawn: on the same device.
        size: height and width of the result, accepted by `find_fused_pacs`.
        table: the float32 of each byte and channel, `(3, 256)`, for a float32 result in channels-last, as networks on a
            GPU take it: a table, so that the quotients have the rounding of PyTorch's division on a GPU.
    """
    count, _, image_h, image_w = images.shape
    out_h, out_w = size
    if table is None:
        out = torch.empty((count, 3, out_h, out_w), dtype=torch.uint8, device=images.device)
    else:
        out = torch.empty(
            (count, 3, out_h, out_w), dtype=table.dtype, device=images.device, memory_format=torch.channels_last
        )
    if count == 0:
        return out
    top, left, height, width, flip, factors, hue, order, gray = (value.contiguous() for value in drawn)
    row_taps, column_taps = num_taps(image_h, out_h), num_taps(image_w, out_w)
    span, most = max(size), max(row_taps, column_taps)
    taps = torch.empty((count, 2, most + 1, span), dtype=torch.int32, device=images.device)
    totals = torch.empty(count, dtype=torch.int32, device=images.device)
    crops = torch.empty((count, 3, out_h, out_w), dtype=torch.uint8, device=images.device)
    columns = min(256, triton.next_power_of_2(out_w))
    rows = _TILE // columns
    shared = {"OUT_H": out_h, "OUT_W": out_w, "enable_fp_fusion": False}  # Pillow rounds products and sums separately
    resampling = {"SPAN": span, "TAPS": most, "ROW_TAPS": row_taps, "COLUMN_TAPS": column_taps}
    with torch.cuda.device_of(images):  # kernels are launched on the current device
        _prepare[(2 * count,)](
            taps, totals, top, left, height, width, BLOCK=triton.next_power_of_2(span), **resampling, **shared
        )
        _crop[(count * triton.cdiv(out_h, rows) * triton.cdiv(out_w, columns),)](
            images,
            crops,
            taps,
            totals,
            height,
            flip.view(torch.uint8),
            factors,
            hue,
            order,
            *images.stride(),
            IMAGE_H=image_h,
            IMAGE_W=image_w,
            ROWS=rows,
            COLUMNS=columns,
            UNIT=images.dtype == torch.float32,
            num_warps=_WARPS,
            **resampling,
            **shared,
        )
        _finish[(count * triton.cdiv(out_h * out_w, _TILE),)](
            crops,
            out,
            totals,
            factors,
            hue,
            order,
            gray.view(torch.uint8),
            out if table is None else table,
            *out.stride(),
            BLOCK=_TILE,
            UNIT=table is not None,
            num_warps=_WARPS,
            **shared,
        )
    return out
