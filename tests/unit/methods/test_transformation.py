import pytest
import torch

from asrnorm.data.augment import apply_tuple
from asrnorm.methods.transformations import to_bytes, to_unit, transform

BYTES = torch.arange(256, dtype=torch.uint8)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_every_byte_survives_the_way_to_float_and_back(dtype):
    exact = {torch.float32, torch.float64, torch.float16}
    back = to_bytes(to_unit(BYTES, dtype))
    assert (back == BYTES).all() if dtype in exact else (back.int() - BYTES.int()).abs().max() <= 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_equals_the_operations_on_bytes(dtype):
    pixels = torch.randint(0, 256, (4, 3, 5, 7), dtype=torch.uint8)
    ops, levels = torch.tensor([1, 7, 5]), torch.tensor([19, 3, 0])
    changed = transform(to_unit(pixels, dtype), ops, levels)
    assert changed.dtype == dtype
    assert torch.equal(to_bytes(changed), apply_tuple(pixels, ops, levels))


def test_the_identity_gives_back_the_images_themselves():
    images = torch.rand(2, 3, 4, 4)  # not bytes over 255: rounding would show
    assert transform(images, torch.tensor([-1, -1]), torch.tensor([0, 0])) is images
