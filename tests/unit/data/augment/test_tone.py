import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from asrnorm.core.errors import InputError
from asrnorm.data.augment import autocontrast, pillow, shift_channel, solarize
from asrnorm.data.augment.color import cumulative_histogram
from helpers.pictures import difference, one_by_one, pictures


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
    with pytest.raises(InputError, match="expected channel 0"):
        shift_channel(images, 1, channel=3)
    with pytest.raises(InputError, match="at least 0 percent"):
        autocontrast(images, -0.1)


def test_an_empty_batch_stays_empty():
    images = torch.zeros(0, 3, 4, 4, dtype=torch.uint8)
    assert autocontrast(images, 1.0).shape == solarize(images).shape == images.shape
