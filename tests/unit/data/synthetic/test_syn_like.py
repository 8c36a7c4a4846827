import numpy as np
import pytest

from asrnorm.data.synthetic import build_syn_like


@pytest.mark.parametrize("count", [0, 25, 100])
def test_classes_are_as_equal_as_the_count_allows(count):
    images, labels = build_syn_like(count)
    assert (images.shape, images.dtype, labels.dtype) == ((count, 32, 32, 3), np.uint8, np.int64)
    assert np.ptp(np.bincount(labels, minlength=10)) <= 1


def test_the_seed_chooses_images_and_order():
    one, again, other = (build_syn_like(40, seed=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one[0], again[0])
    np.testing.assert_array_equal(one[1], again[1])
    assert (one[1] != other[1]).any()
    assert (one[0] != other[0]).any(axis=(1, 2, 3)).all()
