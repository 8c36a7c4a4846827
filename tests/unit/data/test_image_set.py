"""ImageSet refuses what does not fit, and selects without copying where it can."""

import numpy as np
import pytest

from asrnorm.core.errors import InputError, InputTypeError
from asrnorm.data.image_set import ImageSet, concatenate
from helpers.published import noise


def make(count=6):
    return ImageSet(noise(count, 4, 4, 3), np.arange(count))


@pytest.mark.parametrize(
    ("images", "labels", "error"),
    [
        (np.zeros((2, 4, 4, 3), np.float32), np.zeros(2, np.int64), InputTypeError),
        (np.zeros((2, 4, 4, 3), np.uint8), np.zeros(2, np.int32), InputTypeError),
        (np.zeros((2, 3, 4, 4), np.uint8), np.zeros(2, np.int64), InputError),
        (np.zeros((2, 4, 4), np.uint8), np.zeros(2, np.int64), InputError),
        (np.zeros((2, 4, 4, 3), np.uint8), np.zeros(3, np.int64), InputError),
    ],
)
def test_other_shapes_and_dtypes_are_refused(images, labels, error):
    with pytest.raises(error, match="ImageSet: expected"):
        ImageSet(images, labels)


def test_it_cannot_be_changed():
    with pytest.raises(AttributeError):
        make().labels = np.zeros(6, np.int64)


@pytest.mark.parametrize("rows", [slice(1, 4), [1, 2, 3], np.array([1, 2, 3])])
def test_neighbors_are_a_view(rows):
    data = make()
    part = data.take(rows)
    assert part.labels.tolist() == [1, 2, 3]
    assert np.shares_memory(part.images, data.images)


def test_a_mask_takes_what_it_marks():
    mask = np.array([True, False, False, True, False, True])
    assert make().take(mask).labels.tolist() == [0, 3, 5]
    with pytest.raises(IndexError):
        make().take(mask[:4])


@pytest.mark.parametrize("rows", [[3, 1], [0, 0], [], [-2, -1]])
def test_other_rows_are_taken_as_numpy_would(rows):
    data = make()
    np.testing.assert_array_equal(data.take(rows).images, data.images[np.array(rows, int)])


def test_concatenation_keeps_the_order():
    first, second = make(2), make(3)
    both = concatenate([first, second])
    assert both.labels.tolist() == [0, 1, 0, 1, 2]
    np.testing.assert_array_equal(both.images[2:], second.images)
    assert concatenate([first]) is first
