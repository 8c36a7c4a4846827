"""Devices without enough memory, played by functions that raise torch's error above a size."""

from functools import partial

import pytest
import torch

from asrnorm.core.device_memory import InParts, find_fitting
from asrnorm.core.errors import DeviceMemoryError


def limited(most, seen):
    def double(batch):
        seen.append(len(batch))
        if len(batch) > most:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return 2 * batch

    return double


def test_a_batch_that_does_not_fit_is_halved_and_the_size_kept():
    seen = []
    call, batch = partial(InParts(), limited(3, seen)), torch.arange(10)
    assert torch.equal(call(batch), 2 * batch)
    assert seen == [10, 5, 2, 2, 2, 2, 2]
    assert torch.equal(call(batch[:4]), 2 * batch[:4])
    assert seen[7:] == [2, 2]


def test_one_image_that_does_not_fit_is_an_error():
    with pytest.raises(DeviceMemoryError):
        InParts()(limited(0, []), torch.arange(4))


def test_the_batch_that_fits_is_found_by_halving():
    assert find_fitting(100, limited_count(30)) == 25
    assert find_fitting(100, limited_count(0)) == 0


def limited_count(most):
    def attempt(size):
        if size > most:
            raise torch.OutOfMemoryError("CUDA out of memory")

    return attempt
