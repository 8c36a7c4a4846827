"""RSDA's tuples as one kernel: one program per image, which stays in registers from the first operation to the last.

`apply_unread` of `data/augment/rsda.py` computes every operation and selects; here a program branches to its own. The
results are bit-identical: integers where the tensor operations are exact, float32 and float64 with product and sum
rounded separately where Pillow rounds twice.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from asrnorm.kernels.pixels import blend, gray_of, read_byte, write_byte

# Three channels of this many pixels fit into the registers of one block.
MOST_PIXELS = 64 * 64


@triton.jit
def _clip(x):
    return tl.minimum(tl.maximum(x, 0), 255)


@triton.jit
def _stretch(x, inside, cut, PIXELS: tl.constexpr, BLOCK: tl.constexpr):
    # Autocontrast of one channel. The block's padding is counted as black and subtracted again.
    cdf = tl.cumsum(tl.histogram(tl.where(inside, x, 0), 256), 0) - (BLOCK - PIXELS)
    # Both counts are at most 256: one reduction carries them.
    both = tl.sum((cdf <= cut).to(tl.int32) + ((cdf < PIXELS - cut).to(tl.int32) << 16), 0)
    lo, hi = both & 0xFFFF, both >> 16
    flat = hi <= lo
    scale = tl.full((), 255.0, tl.float64) / tl.where(flat, 255, hi - lo).to(tl.float64)
    offset = -(tl.where(flat, 0, lo).to(tl.float64) * scale)
    stretched = x.to(tl.float64) * scale + offset
    return tl.minimum(tl.maximum(stretched, 0.0), 255.0).to(tl.int32)


@triton.jit
def _smooth(total, x, interior):
    # The low 16 bits of the packed sum are this channel's; floor((S + 13/2) / 13) in integers.
    return tl.where(interior, (2 * (total & 0xFFFF).to(tl.int32) + 13) // 26, x)


# Tuples are rows of larger tensors at any address: each alignment would be compiled separately, perhaps in a capture.
@triton.jit(do_not_specialize=["tuple_n"], do_not_specialize_on_alignment=["ops", "levels", "values", "units"])
def _apply(
    images,
    out,
    ops,
    levels,
    values,
    units,
    image_n,
    image_c,
    image_h,
    image_w,
    out_n,
    out_c,
    out_h,
    out_w,
    tuple_n,
    LENGTH: tl.constexpr,
    LEVELS: tl.constexpr,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
    UNIT: tl.constexpr,
):
    sample = tl.program_id(0).to(tl.int64)
    pixel = tl.arange(0, BLOCK)
    row, column = pixel // WIDTH, pixel % WIDTH
    inside = pixel < HEIGHT * WIDTH
    source = images + sample * image_n + row * image_h + column * image_w
    red = read_byte(source, inside, UNIT)
    green = read_byte(source + image_c, inside, UNIT)
    blue = read_byte(source + 2 * image_c, inside, UNIT)

    for step in range(LENGTH):
        op = tl.load(ops + sample * tuple_n + step).to(tl.int32)
        level = tl.load(levels + sample * tuple_n + step)
        level = tl.minimum(tl.maximum(level, 0), LEVELS - 1).to(tl.int32)
        # Any other number, such as the identity's -1, matches no branch below.
        value = tl.load(values + tl.minimum(tl.maximum(op, 0), 9) * LEVELS + level)
        if op == 0:
            cut = value.to(tl.int32)
            red = _stretch(red, inside, cut, HEIGHT * WIDTH, BLOCK)
            green = _stretch(green, inside, cut, HEIGHT * WIDTH, BLOCK)
            blue = _stretch(blue, inside, cut, HEIGHT * WIDTH, BLOCK)
        elif op == 1:
            black = tl.zeros_like(red)
            red, green, blue = blend(black, red, value), blend(black, green, value), blend(black, blue, value)
        elif op == 2:
            gray = gray_of(red, green, blue)
            red, green, blue = blend(gray, red, value), blend(gray, green, value), blend(gray, blue, value)
        elif op == 3:
            gray = gray_of(red, green, blue)
            total = tl.sum(tl.where(inside, gray, 0), 0)
            mean = (2 * total + HEIGHT * WIDTH) // (2 * HEIGHT * WIDTH)
            red, green, blue = blend(mean, red, value), blend(mean, green, value), blend(mean, blue, value)
        elif op == 4:
            # Neighbors are in other threads' registers: the channels are exchanged packed, rows first, then columns.
            between_rows = (row > 0) & (row < HEIGHT - 1)
            between_columns = inside & (column > 0) & (column < WIDTH - 1)
            up, down = tl.where(between_rows, pixel - WIDTH, pixel), tl.where(between_rows, pixel + WIDTH, pixel)
            left, right = tl.where(between_columns, pixel - 1, pixel), tl.where(between_columns, pixel + 1, pixel)
            packed = red.to(tl.int64) | (green.to(tl.int64) << 16) | (blue.to(tl.int64) << 32)
            three = packed + tl.gather(packed, up, 0) + tl.gather(packed, down, 0)
            nine = three + tl.gather(three, left, 0) + tl.gather(three, right, 0) + 4 * packed
            interior = between_rows & between_columns
            red = blend(_smooth(nine, red, interior), red, value)
            green = blend(_smooth(nine >> 16, green, interior), green, value)
            blue = blend(_smooth(nine >> 32, blue, interior), blue, value)
        elif op == 5:
            threshold = value.to(tl.int32)
            red = tl.where(red < threshold, red, 255 - red)
            green = tl.where(green < threshold, green, 255 - green)
            blue = tl.where(blue < threshold, blue, 255 - blue)
        elif op == 6:
            gray = gray_of(red, green, blue)
            red, green, blue = gray, gray, gray
        elif op == 7:
            red = _clip(red + value.to(tl.int32))
        elif op == 8:
            green = _clip(green + value.to(tl.int32))
        elif op == 9:
            blue = _clip(blue + value.to(tl.int32))

    target = out + sample * out_n + row * out_h + column * out_w
    write_byte(target, red, inside, units, UNIT)
    write_byte(target + out_c, green, inside, units, UNIT)
    write_byte(target + 2 * out_c, blue, inside, units, UNIT)


def apply_fused(images: Tensor, ops: Tensor, levels: Tensor, values: Tensor, units: Tensor | None = None) -> Tensor:
    """Compute `apply_tuple` in one launch, for tuples on the device of the images; the host reads nothing.

    Args:
        images: uint8 `(n, 3, h, w)` in any memory order, of at most `MOST_PIXELS` pixels; with `units` float32 in
            [0, 1], rounded to bytes first and returned as float32.
        ops: operation indices, `(k,)` for the batch or `(n, k)` for each sample; other numbers do nothing.
        levels: indices into the grids, of the same shape; clamped to the grid.
        values: parameter of each operation at each level, float32 `(10, levels)`; see `level_values`.
        units: the float32 of each byte, `(256,)`: a table, so that the quotients have the rounding of PyTorch's
            division on a GPU.
    """
    out = torch.empty_like(images)
    count, _, height, width = images.shape
    if out.numel() == 0:
        return out
    block = max(32, triton.next_power_of_2(height * width))
    with torch.cuda.device_of(images):  # kernels are launched on the current device
        _apply[(count,)](
            images,
            out,
            ops.contiguous(),
            levels.contiguous(),
            values,
            values if units is None else units,
            *images.stride(),
            *out.stride(),
            ops.shape[1] if ops.ndim == 2 else 0,
            LENGTH=ops.shape[-1],
            LEVELS=values.shape[1],
            HEIGHT=height,
            WIDTH=width,
            BLOCK=block,
            UNIT=units is not None,
            num_warps=min(16, max(1, block // 128)),
            # A fused product and sum would round once where Pillow rounds twice.
            enable_fp_fusion=False,
        )
    return out
