import pytest
import torch

from asrnorm.data.augment import RSDA_OPERATIONS, apply_tuple, draw_tuples
from asrnorm.data.augment.rsda import apply_unread
from asrnorm.methods.transformations import transform
from helpers.interpreter import interpret
from helpers.pictures import pictures


def test_the_kernel_gives_the_bits_of_the_tensor_operations():
    assert int(interpret("interpreted_rsda")) == sum(len(operation.levels) for operation in RSDA_OPERATIONS) + 27 + 26


@pytest.mark.gpu
def test_a_gpu_transforms_floats_in_one_kernel(monkeypatch):
    images = (pictures().cuda().float() / 255).contiguous(memory_format=torch.channels_last)
    for op, level in zip(*draw_tuples(40, torch.Generator().manual_seed(0)), strict=True):
        fused = transform(images, op.cuda(), level.cuda())
        with monkeypatch.context() as patch:
            patch.setenv("ASRNORM_BACKEND", "reference")
            assert torch.equal(fused, transform(images, op.cuda(), level.cuda()))


@pytest.mark.gpu
@pytest.mark.parametrize("size", [(32, 32), (28, 28), (64, 64), (3, 50), (1, 1)])
def test_a_gpu_gives_the_same_bits_in_one_kernel(size):
    from asrnorm.data.augment.backend import find_fused

    images = pictures(*size)
    assert find_fused(images.cuda()) is not None
    generator = torch.Generator().manual_seed(0)
    for count in (1, len(images)):
        for _ in range(40):
            ops, levels = draw_tuples(count, generator)
            if count == 1:
                ops, levels = ops[0], levels[0]
            expected = apply_unread(images, ops, levels)
            for order in (torch.contiguous_format, torch.channels_last):
                placed = images.cuda().contiguous(memory_format=order)
                assert torch.equal(apply_tuple(placed, ops.cuda(), levels.cuda()).cpu(), expected)
