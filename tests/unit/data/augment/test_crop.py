import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from asrnorm.core.errors import InputError
from asrnorm.data.augment import pillow, random_crop_flip
from asrnorm.data.augment.geometry import reflect, shift_flip
from helpers.pictures import difference, one_by_one, pictures


@given(size=st.integers(2, 40), data=st.data())
def test_reflection_is_that_of_numpy(size, data):
    padding = data.draw(st.integers(0, size - 1))
    expected = np.pad(np.arange(size), padding, mode="reflect")
    assert reflect(torch.arange(-padding, size + padding), size).tolist() == expected.tolist()


@pytest.mark.parametrize("size", [(32, 32), (9, 14)])
def test_every_offset_equals_padding_cutting_and_flipping(size):
    images = pictures(*size)
    for top in range(9):
        lefts, flips = torch.arange(8), torch.arange(8) % 2 == top % 2
        tops = torch.full((8,), top)
        expected = one_by_one(
            images,
            lambda image, *values: pillow.shift_flip(image, *values, padding=4),
            *(values.tolist() for values in (tops, lefts, flips)),
        )
        assert difference(shift_flip(images, tops, lefts, flips, padding=4), expected) == 0


def test_samples_are_shifted_independently_and_uniformly():
    # Each pixel says where it came from, so the offsets and flips can be read off the result.
    position = torch.arange(32, dtype=torch.uint8)
    images = torch.stack(torch.broadcast_tensors(position[:, None], position[None], position.new_zeros(1, 1)))
    result = random_crop_flip(images.expand(20_000, 3, 32, 32), torch.Generator().manual_seed(0)).int()
    rows = result[:, 0, 16, 16]
    flipped = result[:, 1, 16, 15] > result[:, 1, 16, 16]
    assert 0.48 < flipped.float().mean() < 0.52
    counts = torch.bincount(rows)[12:21]
    assert len(counts) == 9
    assert counts.sum() == 20_000
    assert counts.min() > 0.9 * 20_000 / 9
    assert abs(float(torch.corrcoef(torch.stack((rows, result[:, 1, 16, 16] * (1 - 2 * flipped.int()))))[0, 1])) < 0.05


def test_the_same_seed_gives_the_same_batch():
    first, second, third = (random_crop_flip(pictures(), torch.Generator().manual_seed(seed)) for seed in (3, 3, 4))
    assert torch.equal(first, second)
    assert not torch.equal(first, third)


def test_no_padding_and_no_flip_change_nothing():
    images = pictures()
    assert torch.equal(random_crop_flip(images, torch.Generator(), padding=0, flip=0.0), images)


def test_a_padding_that_cannot_be_mirrored_is_refused():
    with pytest.raises(InputError, match="padding of 0 to 3 for images of 4x9, got 4"):
        random_crop_flip(pictures(4, 9), torch.Generator())
