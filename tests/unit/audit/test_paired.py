"""Intervals of paired differences: against McNemar's exact test, the bootstrap, and what must hold by symmetry."""

import math

import numpy as np
import pytest
import torch
from scipy.stats import binomtest

from asrnorm.audit.page import find_best
from asrnorm.audit.paired import is_higher, pack, paired_interval


def make_case(right):
    return pack(torch.as_tensor(np.asarray(right, bool)))


def make_pair(only_first, only_second, both=20, num_images=100):
    first, second = np.zeros((2, num_images), bool)
    first[: both + only_first] = True
    second[:both] = True
    second[both + only_first : both + only_first + only_second] = True
    return make_case(first), make_case(second)


@pytest.mark.parametrize("only_second", [0, 1, 3, 10])
def test_one_is_higher_where_mcnemars_exact_test_says_so(only_second):
    for only_first in range(only_second, 30):
        first, second = make_pair(only_first, only_second)
        p = binomtest(only_first, only_first + only_second).pvalue if only_first + only_second else 1.0
        if not 0.03 < p < 0.07:  # at the border the normal approximation may differ
            assert is_higher([first], [second], 100) == (p < 0.05), (only_first, only_second)


def test_images_that_change_nothing_change_nothing_but_the_size_of_a_point():
    pairs = (make_pair(7, 2, both, count) for both, count in ((0, 100), (60, 100)))
    one, other = (paired_interval([first], [second], 100) for first, second in pairs)
    assert one == other


def test_the_mean_of_several_cases_has_the_interval_of_a_bootstrap_over_images():
    generator = np.random.default_rng(0)
    skill = generator.random(400)  # the cases of an image are alike
    first = [skill + 0.1 > generator.random(400) * 0.5 + 0.3 for _ in range(6)]
    second = [skill > generator.random(400) * 0.5 + 0.3 for _ in range(4)]
    difference = np.mean(first, axis=0) - np.mean(second, axis=0)
    means = [difference[generator.integers(0, 400, 400)].mean() for _ in range(4000)]
    found = paired_interval([make_case(case) for case in first], [make_case(case) for case in second], 400)
    assert found == pytest.approx(np.quantile(means, (0.025, 0.975)), abs=0.004)


def test_the_other_way_round_the_ends_change_sign():
    first, second = make_pair(9, 4)
    low, high = paired_interval([first], [second], 100)
    assert paired_interval([second], [first], 100) == pytest.approx((-high, -low))


def test_nothing_is_higher_than_what_is_not_known_image_by_image():
    first, _ = make_pair(50, 0)
    for unknown in ([""], []):
        assert paired_interval([first], unknown, 100) == (-math.inf, math.inf)


def test_the_better_of_two_models_is_marked_only_beyond_the_interval():
    close, far = make_pair(28, 26, both=0), make_pair(28, 6, both=0)
    columns = [[close[0]], [far[0]], [far[1]]], [[close[1]], [far[1]], [far[0]]]
    assert find_best(columns, 100) == [None, 0, 1]
    assert find_best(columns[:1], 100) == []
