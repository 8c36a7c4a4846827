"""PACS's training set in three launches: resized crop, flip, color jitter and gray, equal to the bit.

The mean gray that a contrast blends with is known only when the whole image has gone through what comes before it. So
the first kernel finds the taps of every box, the second resamples, adjusts up to the contrast and sums the gray of
each image in whole numbers, whose order does not matter, and the third blends, adjusts further and writes. A program
takes a tile of one image, so that its branches on the order drawn are the same for all its pixels.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from asrnorm.data.augment.geometry import num_taps
from asrnorm.data.augment.pacs import PacsDraw
from asrnorm.data.augment.triton.byte import write_byte
from asrnorm.data.augment.triton.enhance import blend, gray_of
from asrnorm.data.augment.triton.hue import turn_hue
from asrnorm.data.augment.triton.resample import find_taps, locate_tile, weigh

# Twice the sum of so many bytes fits into 32 bits.
MOST_PIXELS = 1 << 22

# Shrinking by up to two; every tap of a row is code of its own in the second kernel.
MOST_TAPS = 4

# Pixels and warps a program: four pixels a thread keep the registers low enough to hide what loads wait for.
_TILE, _WARPS = 1024, 8


# Below, 0 is brightness, 1 contrast, 2 saturation and 3 hue, as in `jitter.py`.


@triton.jit
def _find_contrast(order):
    place = 0
    for step in range(4):
        place = tl.where(tl.load(order + step) == 1, step, place)
    return place


@triton.jit
def _adjust(red, green, blue, begin, end, factors, hue, order):
    # The adjustments drawn from place `begin` until before `end`; a contrast is not among them.
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


# What is drawn lies in rows of larger tensors at any address: each alignment would be compiled anew, perhaps amid a
# capture.
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
        tl.where(tl.load(height + sample) <= OUT_H, 2, ROW_TAPS),  # where nothing shrinks, two have weight
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
    """`apply_pacs` in three launches; nothing is read by the host.

    Args:
        images: `(n, 3, h, w)` in any memory order, uint8, or float32 in [0, 1], which is rounded to bytes first.
        drawn: on the same device.
        size: height and width of the result, which `find_fused_pacs` has allowed.
        table: what each byte becomes, float32 `(3, 256)`: the result then is float32 and channels-last, as networks on
            a GPU take it. A table, so that the quotients are those of the caller's division, which a GPU rounds in its
            own way.
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
    shared = {"OUT_H": out_h, "OUT_W": out_w, "enable_fp_fusion": False}  # Pillow rounds products and sums apart
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
