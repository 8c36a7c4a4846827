import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from asrnorm.data.augment import brightness, color, contrast, grayscale, pillow, sharpness
from helpers.pictures import difference, one_by_one, pictures

OPERATIONS = {"brightness": brightness, "color": color, "contrast": contrast, "sharpness": sharpness}


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("factor", [-1.0, 0.0, 0.1, 1.0, 1.37, 5.0, 300.0])
def test_factors_outside_the_grid_equal_pillow(name, factor):
    images = pictures()
    expected = one_by_one(images, lambda image: pillow.OPERATIONS[name](image, factor))
    assert difference(OPERATIONS[name](images, factor), expected) == 0


@settings(max_examples=60, deadline=None)
@given(
    name=st.sampled_from(sorted(OPERATIONS)),
    height=st.integers(1, 40),
    width=st.integers(1, 40),
    seed=st.integers(0, 2**32 - 1),
    factors=st.lists(st.floats(-2, 3, width=32), min_size=8, max_size=8),
)
def test_each_sample_has_its_own_factor(name, height, width, seed, factors):
    images = pictures(height, width, seed)
    expected = one_by_one(images, pillow.OPERATIONS[name], factors)
    assert difference(OPERATIONS[name](images, torch.tensor(factors)), expected) == 0


def test_grayscale_equals_pillow_for_every_color():
    values = torch.arange(256, dtype=torch.uint8)
    for red in range(0, 256, 5):
        plane = torch.stack(torch.broadcast_tensors(values.new_tensor(red), values[:, None], values[None])).unsqueeze(0)
        assert difference(grayscale(plane), one_by_one(plane, pillow.grayscale)) == 0


def test_the_mean_of_contrast_is_rounded_half_up():
    # Means of 1/2 and of 5/2: Python's int(mean + 0.5) gives 1 and 3, rounding to even would give 0 and 2.
    images = torch.tensor([[0, 1], [2, 3]], dtype=torch.uint8).view(2, 1, 1, 2).expand(2, 3, 1, 2)
    assert contrast(images, 0.0)[:, 0, 0, 0].tolist() == [1, 3]


@pytest.mark.parametrize("size", [(1, 9), (2, 2), (9, 2), (3, 3)])
def test_images_too_small_to_smooth_stay_as_they_are(size):
    images = pictures(*size)
    expected = one_by_one(images, lambda image: pillow.OPERATIONS["sharpness"](image, 0.0))
    assert difference(sharpness(images, 0.0), expected) == 0


@pytest.mark.parametrize("operation", OPERATIONS.values())
def test_the_input_is_left_alone_and_memory_order_does_not_matter(operation):
    images = pictures()
    before = images.clone()
    result = operation(images, 1.3)
    assert torch.equal(images, before)
    assert torch.equal(operation(images.to(memory_format=torch.channels_last), 1.3), result)
