import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from asrnorm.core.errors import InputError
from asrnorm.data.augment import pillow
from asrnorm.data.augment.color import (
    autocontrast,
    brightness,
    color,
    contrast,
    cumulative_histogram,
    grayscale,
    hsv_to_rgb,
    rgb_to_hsv,
    sharpness,
    shift_channel,
    shift_hue,
    solarize,
)
from helpers.pictures import difference, one_by_one, pictures, to_batch

VALUES = np.arange(256, dtype=np.uint8)
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


def plane(first: int) -> np.ndarray:
    """All 65,536 triples that begin with a value, as an image."""
    return np.stack(np.broadcast_arrays(np.uint8(first), VALUES[:, None], VALUES[None]), -1)


def test_both_ways_equal_pillow_for_every_fifth_plane_of_the_cube():
    for first in range(0, 256, 5):
        triples = plane(first)
        as_tensor = to_batch([triples]).float()
        hsv = to_batch([np.asarray(Image.fromarray(triples).convert("HSV"))])
        assert difference(rgb_to_hsv(as_tensor).to(torch.uint8), hsv) == 0
        from_hsv = Image.frombytes("HSV", (256, 256), np.ascontiguousarray(triples).tobytes()).convert("RGB")
        assert difference(hsv_to_rgb(as_tensor).to(torch.uint8), to_batch([np.asarray(from_hsv)])) == 0


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), amounts=st.lists(st.floats(-0.5, 0.5), min_size=8, max_size=8))
def test_each_sample_turns_by_its_own_amount_as_pillow_does(seed, amounts):
    images = pictures(13, 11, seed)
    expected = one_by_one(images, pillow.shift_hue, amounts)
    assert difference(shift_hue(images, torch.tensor(amounts, dtype=torch.float64)), expected) == 0


def test_gray_images_have_no_hue_to_turn():
    gray = torch.arange(256, dtype=torch.uint8).expand(1, 3, 1, 256)
    assert torch.equal(shift_hue(gray, 0.3), gray)


@pytest.mark.parametrize("cutoff", [0, 0.1, 3.0, 20.0, 49.0, 49.9, 50.0, 60.0, 100.0])
def test_cutoffs_outside_the_grid_equal_pillow(cutoff):
    images = pictures(13, 17)
    expected = one_by_one(images, lambda image: pillow.OPERATIONS["autocontrast"](image, cutoff))
    assert difference(autocontrast(images, cutoff), expected) == 0


@settings(max_examples=60, deadline=None)
@given(
    height=st.integers(1, 40),
    width=st.integers(1, 40),
    seed=st.integers(0, 2**32 - 1),
    cutoffs=st.lists(st.floats(0, 60), min_size=8, max_size=8),
)
def test_autocontrast_with_a_cutoff_a_sample_equals_pillow(height, width, seed, cutoffs):
    images = pictures(height, width, seed)
    expected = one_by_one(images, pillow.OPERATIONS["autocontrast"], cutoffs)
    assert difference(autocontrast(images, torch.tensor(cutoffs, dtype=torch.float64)), expected) == 0


@pytest.mark.parametrize("low", range(0, 256, 5))
def test_autocontrast_equals_pillow_for_every_pair_of_extremes(low):
    # Each image holds all values between its extremes, so that every entry of the lookup table is met.
    highs = torch.arange(256)
    images = torch.arange(256).expand(256, 3, 1, 256)
    bounds = highs.view(-1, 1, 1, 1)
    images = images.clamp(min=low).minimum(bounds.clamp(min=low)).to(torch.uint8)
    assert difference(autocontrast(images), one_by_one(images, lambda i: pillow.OPERATIONS["autocontrast"](i, 0))) == 0


def test_histogram_counts_every_pixel_once():
    images = pictures(5, 7)
    cdf = cumulative_histogram(images)
    assert cdf.shape == (8, 3, 256)
    assert (cdf[..., -1] == 35).all()
    assert (cdf[2, :, 0] == 35).all()  # the black image
    assert (cdf[3, :, 254] == 0).all()  # the white one


@pytest.mark.parametrize("threshold", [0, 1, 127, 128, 255, 256])
def test_solarize_equals_pillow(threshold):
    images = pictures()
    expected = one_by_one(images, lambda image: pillow.OPERATIONS["solarize"](image, threshold))
    assert difference(solarize(images, threshold), expected) == 0


@pytest.mark.parametrize("channel", [0, 1, 2])
def test_shift_clips_and_leaves_other_channels(channel):
    images = pictures()
    amounts = [-255, -120, -1, 0, 1, 60, 120, 255]
    expected = one_by_one(images, lambda image, amount: pillow.shift_channel(image, amount, channel), amounts)
    assert difference(shift_channel(images, torch.tensor(amounts), channel), expected) == 0


def test_wrong_arguments_are_named():
    images = pictures()
    with pytest.raises(InputError):
        shift_channel(images, 1, channel=3)
    with pytest.raises(InputError):
        autocontrast(images, -0.1)


def test_an_empty_batch_stays_empty():
    images = torch.zeros(0, 3, 4, 4, dtype=torch.uint8)
    assert autocontrast(images, 1.0).shape == solarize(images).shape == images.shape
