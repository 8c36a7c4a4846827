"""The comparison of a file with its model can fail."""

import math

import torch

from asrnorm.exporting.verify import relative_error


def test_the_error_is_relative_to_the_largest_logit():
    assert relative_error(torch.tensor([[100.0, 1.0]]), torch.tensor([[100.0, 2.0]])) == 0.01


def test_another_shape_is_infinitely_wrong_and_nan_stays_nan():
    assert relative_error(torch.zeros(2, 3), torch.zeros(3, 2)) == math.inf
    assert math.isnan(relative_error(torch.tensor([math.nan]), torch.tensor([1.0])))
