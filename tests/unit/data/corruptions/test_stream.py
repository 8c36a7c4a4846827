import numpy as np
import pytest

from asrnorm.data.corruptions.base import Streams


def test_an_image_draws_the_same_alone_and_among_others():
    whole = Streams(3, "fog", 2, range(10))
    alone = Streams(3, "fog", 2, [7])
    np.testing.assert_array_equal(whole.normal(4, 5)[7], alone.normal(4, 5)[0])
    np.testing.assert_array_equal(whole.uniform(3)[7], alone.uniform(3)[0])
    np.testing.assert_array_equal(whole.integers(-2, 2, 6)[7], alone.integers(-2, 2, 6)[0])


@pytest.mark.parametrize("other", [(1, "fog", 2, [7]), (0, "snow", 2, [7]), (0, "fog", 3, [7]), (0, "fog", 2, [8])])
def test_seed_corruption_severity_and_index_all_count(other):
    first = Streams(0, "fog", 2, [7]).uniform(100)
    assert not np.isclose(first, Streams(*other).uniform(100)).any()


def test_draws_have_their_distributions():
    streams = Streams(0, "x", 1, range(20))
    uniform = streams.uniform(5000, low=-3.0, high=5.0)
    assert uniform.min() >= -3
    assert uniform.max() < 5
    assert uniform.mean() == pytest.approx(1.0, abs=0.05)
    assert streams.normal(5000).std() == pytest.approx(1.0, abs=0.02)
    assert np.unique(streams.integers(-2, 2, 100)).tolist() == [-2, -1, 0, 1]
    assert streams.poisson(np.full((20, 5000), 7.0)).var() == pytest.approx(7.0, rel=0.03)


def test_negative_and_huge_seeds_and_indices_are_taken():
    assert Streams(-1, "x", 1, [2**70, -1]).uniform(2).shape == (2, 2)


def test_large_and_negative_indices_have_streams_of_their_own():
    indices = [5, 5 + 2**32, 5 + 2**63, -5]
    drawn = {tuple(row) for row in Streams(0, "fog", 3, indices).uniform(4).tolist()}
    assert len(drawn) == len(indices)
