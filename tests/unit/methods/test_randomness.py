"""Generators that are fixed by a key."""

import numpy as np
import pytest
import torch

import asrnorm
from asrnorm.core.errors import InputTypeError
from asrnorm.methods import Batch, keyed_generator
from helpers.smooth_net import SmoothNet

SEVEN = [7, np.int64(7), np.uint8(7), torch.tensor(7)]


@pytest.mark.parametrize("seven", SEVEN, ids=lambda number: type(number).__name__)
def test_a_number_is_the_same_key_of_whatever_library(seven):
    assert keyed_generator(0, seven, "mask").initial_seed() == 506942995748118114
    assert keyed_generator(seven, "model").initial_seed() == keyed_generator(7, "model").initial_seed()


def test_keys_are_told_apart_by_type_order_and_value():
    keys = [(0, 7, "mask"), (7, 0, "mask"), (0, "7", "mask"), (0, 8, "mask"), (0, 7, "noise"), (0, 7)]
    assert len({keyed_generator(*key).initial_seed() for key in keys}) == len(keys)


@pytest.mark.parametrize("wrong", [7.0, None, torch.tensor([7, 8])], ids=str)
def test_what_is_no_whole_number_is_refused(wrong):
    with pytest.raises(InputTypeError, match=r"^a seed or step must be a whole number, not "):
        keyed_generator(0, wrong, "mask")


@pytest.mark.parametrize("name", ["rda", "rsda", "pgd", "rsc"])
def test_a_loop_may_count_steps_and_seeds_in_any_library(name):
    images, labels = torch.rand(4, 3, 4, 4, dtype=torch.float64), torch.tensor([0, 1, 2, 0])
    torch.manual_seed(0)
    model = SmoothNet()
    losses = {
        asrnorm.create_method(name, seed=seed).loss(model, Batch(images, labels, step)).item()
        for seed, step in zip([3, np.int64(3), torch.tensor(3)], [7, torch.tensor(7), np.int64(7)], strict=True)
    }
    assert len(losses) == 1
