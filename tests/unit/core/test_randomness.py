import numpy as np
import pytest
import torch

import asrnorm
from asrnorm.core.errors import InputTypeError
from asrnorm.core.randomness import uniform_noise
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


def test_the_numbers_are_those_of_splitmix64():
    # The first outputs of the published generator for the seed 1234567, of which the upper 53 bits are taken.
    words = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431]
    found = uniform_noise(torch.tensor(1234567), (4,), dtype=torch.float64)
    assert found.tolist() == [(word >> 11) / 2**53 for word in words]


def test_the_numbers_fill_the_unit_interval_evenly():
    for dtype in (torch.float32, torch.float64):
        noise = uniform_noise(torch.tensor(5), (100_000,), dtype=dtype)
        assert 0 <= float(noise.min()) < 1e-3
        assert 1 - 1e-3 < float(noise.max()) < 1
        counts = torch.histc(noise.float(), 20, 0, 1)
        assert float((counts - 5_000).abs().max()) < 5 * 70
        assert abs(float((noise[1:] * noise[:-1]).mean()) - 0.25) < 5e-3


def test_keys_give_streams_of_their_own():
    one, other = (uniform_noise(torch.tensor(key), (1000,)) for key in (3, 4))
    assert abs(float(torch.corrcoef(torch.stack([one, other]))[0, 1])) < 0.15


def test_a_part_is_the_same_part_of_the_whole():
    whole = uniform_noise(torch.tensor(9), (6, 2, 3))
    assert torch.equal(uniform_noise(torch.tensor(9), (2, 2, 3), start=3 * 6), whole[3:5])
