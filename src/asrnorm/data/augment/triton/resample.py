"""`resample.py` inside kernels: the taps of a box on each axis, and a tile of the resized box, equal to the bit.

`find_taps` writes, for each image and axis, a row of the first input of every output and a row a tap of weights in
1/2**22. `weigh` reads them for a tile of outputs: along the rows with rounding to bytes, then along the columns.
"""

import triton
import triton.language as tl

from asrnorm.data.augment.triton.byte import read_byte


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
    """The taps of one box on one axis: COUNT an output, the rest of TAPS and those outside the box with weight 0.

    A row of the table holds SPAN outputs, those of the longer axis.
    """
    position = tl.arange(0, BLOCK)
    inside = position < OUT
    scale = length.to(tl.float64) / OUT
    support = tl.maximum(scale, 1.0)
    sharpness = tl.full((), 1.0, tl.float64) / support
    center = (position.to(tl.float64) + 0.5) * scale
    first = tl.maximum(center - support + 0.5, 0.0).to(tl.int32)
    last = tl.minimum(tl.minimum((center + support + 0.5).to(tl.int32), length), first + COUNT)
    # One after the other, as Pillow does: the order of a sum rounds.
    total = tl.zeros((BLOCK,), tl.float64)
    for k in tl.static_range(TAPS):
        total = total + _triangle(first + k, last, center, sharpness)
    tl.store(taps + position, first + start, mask=inside)
    for k in tl.static_range(TAPS):
        # What lies beyond the last output has no taps, and is not stored.
        weight = _triangle(first + k, last, center, sharpness) / tl.where(inside, total, 1.0)
        tl.store(taps + (k + 1) * SPAN + position, (weight * 4194304.0 + 0.5).to(tl.int32), mask=inside)


@triton.jit
def _triangle(index, last, center, sharpness):
    height = tl.maximum(1.0 - tl.abs((index.to(tl.float64) - center + 0.5) * sharpness), 0.0)
    return tl.where(index < last, height, 0.0)


@triton.jit
def locate_tile(OUT_H: tl.constexpr, OUT_W: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """The sample of a program, the rows `(r, 1)` and columns `(1, c)` of its tile, and which of them lie inside."""
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
    """A tile of the resized box: rows `(r, 1)` and columns `(1, c)` of the output, both within it.

    Along the columns the first `row_count` taps are summed; the rest have weight 0, as have all beyond the image.
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
