import numpy as np
import pytest
import torch

from asrnorm.core.errors import InputError, InputTypeError
from asrnorm.data.augment import brightness, random_crop_flip
from asrnorm.data.augment.base import check_generator, check_images, constant, in_pieces, per_sample
from helpers.pictures import pictures


@pytest.mark.parametrize(
    ("images", "error", "message"),
    [
        (torch.zeros(1, 3, 2, 2), InputTypeError, "got torch.float32; augment before converting"),
        (np.zeros((1, 3, 2, 2), np.uint8), InputTypeError, "got ndarray"),
        (torch.zeros(2, 2, 3, dtype=torch.uint8), InputError, r"got \(2, 2, 3\); for one image: images.unsqueeze"),
        (torch.zeros(1, 2, 2, 3, dtype=torch.uint8), InputError, "for NHWC: images.permute"),
        (torch.zeros(1, 1, 2, 2, dtype=torch.uint8), InputError, r"expected images \(n, 3, h, w\)"),
    ],
)
def test_what_is_no_batch_of_rgb_images_is_refused(images, error, message):
    with pytest.raises(error, match=message):
        check_images(images)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_parameters_must_be_finite(value):
    with pytest.raises(InputError, match="finite parameter"):
        brightness(pictures(), value)


def test_parameters_must_fit_the_batch():
    images = pictures()
    with pytest.raises(InputError, match=r"one a sample, \(8,\), got shape \(3,\)"):
        brightness(images, torch.ones(3))
    with pytest.raises(InputError, match="the parameter is on meta"):
        per_sample(torch.ones(8, device="meta"), images, torch.float32)


def test_a_single_value_may_come_as_a_number_or_a_tensor():
    images = pictures()
    results = [brightness(images, value) for value in (1.3, torch.tensor(1.3), torch.full((8,), 1.3))]
    assert all(torch.equal(result, results[0]) for result in results)


def test_a_generator_on_another_device_is_refused():
    class Elsewhere:
        device = torch.device("cuda")

    with pytest.raises(
        InputError, match=r"generator is on cuda, the images on cpu; make it with torch.Generator\('cpu"
    ):
        check_generator(pictures(), Elsewhere())
    with pytest.raises(InputError, match="make it with"):
        random_crop_flip(pictures(), Elsewhere())


def test_constants_are_made_once():
    cpu = torch.device("cpu")
    assert constant([1.0, 2.0], cpu) is constant((1.0, 2.0), cpu)
    assert constant((1.0,), cpu, torch.float64).dtype == torch.float64


def test_pieces_give_what_the_whole_gives():
    images = torch.randint(0, 256, (7, 3, 250, 250), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    amounts = torch.arange(7)
    sizes = []

    def shift(part, amount):
        sizes.append(len(part))
        return part + amount.view(-1, 1, 1, 1).to(torch.uint8)

    result = in_pieces(shift, images, amounts)
    assert len(sizes) > 1
    assert sum(sizes) == 7
    assert torch.equal(result, shift(images, amounts))
