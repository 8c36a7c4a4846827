import pytest
import torch

from asrnorm.data.augment.geometry import resize
from helpers.interpreter import interpret
from helpers.pictures import pictures


def test_the_kernel_gives_the_bits_of_the_tensor_operations():
    assert int(interpret("interpreted_resize")) == 6 * 8 + 2


@pytest.mark.gpu
@pytest.mark.parametrize(
    "shape", [((227, 227), (222, 222)), ((64, 64), (64, 64)), ((50, 300), (40, 270)), ((1, 3), (2, 2))]
)
def test_a_gpu_gives_the_same_bits(shape):
    from asrnorm.data.augment.backend import find_fused_resize

    image_size, size = shape
    images = pictures(*image_size)
    assert find_fused_resize(images.cuda(), size) is not None
    for order in (torch.contiguous_format, torch.channels_last):
        result = resize(images.cuda().contiguous(memory_format=order), size)
        assert torch.equal(result.cpu(), resize(images, size))
