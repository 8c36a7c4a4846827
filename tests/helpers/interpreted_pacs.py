"""Run the kernels of PACS's augmentation in Triton's interpreter and hold them to the tensor operations: their own
process, since the choice of interpreter is made as Triton is imported. Prints how many images were compared."""

import itertools
import math
import sys

import torch

from asrnorm.data.augment import to_float
from asrnorm.data.augment.base import byte_values
from asrnorm.data.augment.pacs import PacsDraw, apply_unfused, draw_pacs
from asrnorm.kernels.pacs_augment import apply_fused
from helpers.pictures import pictures

ORDERS = torch.tensor(list(itertools.permutations(range(4))))


def compare(images, drawn, size, kinds=("bytes", "floats")):
    """Bytes to bytes from an NHWC cache, floats to floats from what a pool gives."""
    expected = apply_unfused(images, drawn, size)
    if "bytes" in kinds:
        fused = apply_fused(images.contiguous(memory_format=torch.channels_last), drawn, size)
        assert torch.equal(fused, expected), f"{tuple(images.shape)} to {size}: {drawn}"
    if "floats" in kinds:
        # Rounded back to the same bytes from anywhere near them, and clipped beyond the ends.
        near = torch.linspace(-0.45, 0.45, math.prod(images.shape[1:])).view(images.shape[1:])
        floats = (images + near + 300 * (images == 255) - 300 * (images == 0)) / 255
        fused = apply_fused(floats, drawn, size, byte_values(images.device).expand(3, 256).contiguous())
        assert fused.is_contiguous(memory_format=torch.channels_last)
        assert torch.equal(fused, to_float(expected)), f"{tuple(images.shape)} to {size} in float: {drawn}"
    return len(images)


def every_order():
    """All orders of the four adjustments, with the ends of their ranges and beyond."""
    images = pictures(9, 11, seed=1).repeat(3, 1, 1, 1)
    drawn = draw_pacs(24, (9, 11), torch.Generator().manual_seed(0))
    yield images, drawn._replace(order=ORDERS), (9, 11)
    still = torch.ones(24, 3, dtype=torch.float64)
    drawn = drawn._replace(order=ORDERS, factors=still, hue=torch.zeros(24, dtype=torch.float64))
    yield images, drawn, (7, 12), ["floats"]
    wide = torch.tensor([0.0, 2.5, 1.0], dtype=torch.float64)
    factors = torch.stack([wide.roll(i) for i in range(24)])
    hue = torch.linspace(-0.5, 0.5, 24, dtype=torch.float64)
    yield images, drawn._replace(order=ORDERS.flip(0), factors=factors, hue=hue, gray=~drawn.gray), (9, 11), ["bytes"]


def sizes():
    """Shrinking, growing and flat, and the boxes that are a pixel, a line, or all of the image."""
    generator = torch.Generator().manual_seed(1)
    shapes = [((16, 16), (16, 16)), ((13, 21), (11, 20)), ((5, 40), (9, 21)), ((3, 2), (40, 3)), ((1, 1), (2, 1))]
    for image_size, size in shapes:
        yield pictures(*image_size), draw_pacs(8, image_size, generator), size, ["bytes"]
    zero, one = torch.zeros(8, dtype=torch.int64), torch.ones(8, dtype=torch.int64)
    images, drawn = pictures(12, 10), draw_pacs(8, (12, 10), generator)
    yield images, drawn._replace(top=one * 11, left=one * 9, height=one, width=one), (6, 5), ["floats"]
    yield images, drawn._replace(top=zero, left=zero, height=one * 12, width=one * 10), (6, 5), ["floats"]
    yield images, drawn._replace(top=one * 3, left=zero, height=one, width=one * 10), (12, 9), ["floats"]


def hues():
    """A grid of the color cube, its corners included, turned to all sides."""
    level = torch.tensor([0, 1, 2, 84, 127, 128, 200, 253, 254, 255])
    colors = torch.cartesian_prod(level, level, level).T.reshape(1, 3, 25, 40).to(torch.uint8)
    hue = torch.arange(-127, 128, 17, dtype=torch.float64) / 255
    count = len(hue)
    drawn = draw_pacs(count, (25, 40), torch.Generator().manual_seed(2))
    zero = torch.zeros(count, dtype=torch.int64)
    drawn = drawn._replace(
        top=zero,
        left=zero,
        height=zero + 25,
        width=zero + 40,
        gray=zero > 0,
        order=torch.tensor([3, 0, 1, 2]).expand(count, 4),
        factors=torch.ones(count, 3, dtype=torch.float64),
        hue=hue,
    )
    yield colors.expand(count, 3, 25, 40), drawn, (25, 40), ["bytes"]


def real_size():
    images = pictures(227, 227)[[0, 6]]
    drawn = draw_pacs(2, (227, 227), torch.Generator().manual_seed(3))
    yield images[:1], PacsDraw(*(value[:1] for value in drawn)), (222, 222), ["bytes"]
    yield images[1:], PacsDraw(*(value[1:] for value in drawn)), (222, 222), ["floats"]
    yield images[:0], PacsDraw(*(value[:0] for value in drawn)), (222, 222)


if __name__ == "__main__":
    cases = itertools.chain(every_order(), sizes(), hues(), real_size())
    sys.stdout.write(str(sum(compare(*case) for case in cases)))
