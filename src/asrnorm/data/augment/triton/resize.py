"""`resample.resize` in one launch, equal to the bit: whole images of one size share their taps."""

from functools import lru_cache

import torch
import triton
import triton.language as tl
from torch import Tensor

from asrnorm.data.augment.geometry import num_taps, shared_taps
from asrnorm.data.augment.triton.resample import locate_tile, weigh

_TILE, _WARPS = 1024, 8  # pixels and warps a program, as in `pacs.py`


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
    """`resize` in one launch; the result is channels-last.

    Args:
        images: uint8 `(n, 3, h, w)` in any memory order.
        size: height and width of the result, which `find_fused_resize` has allowed.
    """
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
    """The taps of rows and columns as `weigh` reads them: first input, then a row of weights a tap."""
    pairs = [shared_taps(length, out) for length, out in zip((height, width), size, strict=True)]
    most = max(weights.shape[1] for _, weights in pairs)
    table = torch.zeros((2, most + 1, max(size)), dtype=torch.int32)
    for axis, (first, weights) in zip(table, pairs, strict=True):
        axis[0, : len(first)] = first
        axis[1 : 1 + weights.shape[1], : len(first)] = weights.T
    return table.to(device)
