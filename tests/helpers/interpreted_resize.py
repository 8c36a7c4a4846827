"""Run the kernel that resizes whole images in Triton's interpreter and hold it to the tensor operations: its own
process, since the choice of interpreter is made as Triton is imported. Prints how many images were compared."""

import sys

import torch

from asrnorm.data.augment.geometry import resize
from asrnorm.kernels.pacs_augment import resize_fused
from helpers.pictures import pictures

SHAPES = (
    ((16, 16), (16, 16)),
    ((13, 21), (11, 20)),
    ((5, 40), (9, 21)),
    ((3, 2), (40, 3)),
    ((1, 1), (2, 1)),
    ((23, 300), (20, 270)),  # several tiles a row
)


def compare(images, size):
    """From both memory orders, to bytes in channels-last."""
    for order in (torch.contiguous_format, torch.channels_last):
        fused = resize_fused(images.contiguous(memory_format=order), size)
        assert fused.is_contiguous(memory_format=torch.channels_last)
        assert torch.equal(fused, resize(images, size)), f"{tuple(images.shape)} to {size}"
    return len(images)


if __name__ == "__main__":
    count = sum(compare(pictures(*image_size), size) for image_size, size in SHAPES)
    count += compare(pictures(227, 227)[[0, 6]], (222, 222))
    sys.stdout.write(str(count + compare(pictures()[:0], (20, 20))))
