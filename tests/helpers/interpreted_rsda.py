"""Run RSDA's kernel in Triton's interpreter and hold it to the tensor operations: its own process, since the choice of
interpreter is made as Triton is imported. Prints how many batches were compared."""

import sys

import torch

from asrnorm.data.augment import IDENTITY, RSDA_OPERATIONS, draw_tuples
from asrnorm.data.augment.base import byte_values, to_bytes, to_float
from asrnorm.data.augment.rsda import apply_unread, level_values
from asrnorm.kernels.rsda import apply_fused
from helpers.pictures import pictures


def compare(images, ops, levels):
    values = level_values(images.device, images.shape[2] * images.shape[3])
    fused, expected = apply_fused(images, ops, levels, values), apply_unread(images, ops, levels)
    assert torch.equal(fused, expected), f"{tuple(images.shape)}: {ops.tolist()} at {levels.tolist()}"
    return 1


def compare_units(images, ops, levels):
    """The same on floats: bytes over 255, values halfway between two, and some beyond [0, 1]."""
    shift = torch.tensor([0.0, 0.5, -0.5, 0.25, 1.5, -1.5, 300.0, 0.0]).view(-1, 1, 1, 1)
    floats = (images.float() + shift) / 255
    values = level_values(images.device, images.shape[2] * images.shape[3])
    fused = apply_fused(floats, ops, levels, values, byte_values(images.device))
    expected = to_float(apply_unread(to_bytes(floats), ops, levels), torch.float32)
    assert torch.equal(fused, expected), f"{tuple(images.shape)} in float: {ops.tolist()} at {levels.tolist()}"
    return 1


def every_level():
    """Each operation at each level, in the batch's memory order and as a cache of NHWC images has it."""
    images = pictures(11, 14)[[0, 5, 6]]  # noise, few values, a ramp
    for op, operation in enumerate(RSDA_OPERATIONS):
        for level in range(len(operation.levels)):
            order = torch.channels_last if level % 2 else torch.contiguous_format
            yield images.contiguous(memory_format=order), torch.tensor([op]), torch.tensor([level])


def chains():
    generator = torch.Generator().manual_seed(0)
    for height, width in [(32, 32), (28, 28), (1, 1), (2, 7), (3, 3), (40, 5)]:
        images = pictures(height, width)
        for count in (1, len(images)):
            for length in (3, 4):
                ops, levels = draw_tuples(count, generator, length)
                ops[:, length // 2] = torch.where(levels[:, 0] % 2 == 0, IDENTITY, ops[:, length // 2])
                yield images, *((ops[0], levels[0]) if count == 1 else (ops, levels))
    images = pictures(8, 8)
    yield images, torch.tensor([0, 6, 9]), torch.tensor([29, 7, 99])  # beyond their grids
    yield images, torch.tensor([IDENTITY]), torch.tensor([0])
    yield images[:0], torch.tensor([0]), torch.tensor([0])


if __name__ == "__main__":
    bytes_compared = sum(compare(*case) for cases in (every_level(), chains()) for case in cases)
    floats_compared = sum(compare_units(*case) for case in chains() if len(case[0]))
    sys.stdout.write(str(bytes_compared + floats_compared))
