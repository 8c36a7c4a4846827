import numpy as np
import pytest
import torch

from asrnorm.core.errors import InputError, InputTypeError
from asrnorm.data.augment import to_float
from asrnorm.data.augment.base import check_images, constant, in_chunks, per_sample, to_bytes
from asrnorm.data.augment.color import brightness
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
    with pytest.raises(InputError):
        brightness(pictures(), value)


def test_parameters_must_fit_the_batch():
    images = pictures()
    with pytest.raises(InputError):
        brightness(images, torch.ones(3))
    with pytest.raises(InputError):
        per_sample(torch.ones(8, device="meta"), images, torch.float32)


def test_a_single_value_may_come_as_a_number_or_a_tensor():
    images = pictures()
    results = [brightness(images, value) for value in (1.3, torch.tensor(1.3), torch.full((8,), 1.3))]
    assert all(torch.equal(result, results[0]) for result in results)


@pytest.mark.parametrize("exact", [False, True])
def test_bytes_are_divided_by_255_as_numpy_does(exact):
    images = pictures()
    assert np.array_equal(to_float(images, exact=exact).numpy(), images.numpy().astype(np.float32) / np.float32(255))
    assert to_float(images, torch.float64)[6, 0, 0, 0].item() == images[6, 0, 0, 0].item() / 255


def test_floats_are_left_as_they_are():
    images = torch.rand(2, 3, 4, 4, dtype=torch.float64)
    assert to_float(images) is images


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_every_byte_survives_the_round_trip(dtype):
    every = torch.arange(256).to(torch.uint8)
    assert torch.equal(to_bytes(to_float(every, dtype)), every)
    assert to_bytes(torch.tensor([-3.0, 7.0])).tolist() == [0, 255]


def test_constants_are_made_once():
    cpu = torch.device("cpu")
    assert constant((1.0, 2.0), cpu) is constant((1.0, 2.0), cpu)
    assert constant((1.0,), cpu, torch.float64).dtype == torch.float64


def test_chunks_give_what_the_whole_gives():
    images = torch.randint(0, 256, (7, 3, 250, 250), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    amounts = torch.arange(7)
    sizes = []

    def shift(part, amount):
        sizes.append(len(part))
        return part + amount.view(-1, 1, 1, 1).to(torch.uint8)

    result = in_chunks(shift, images, amounts)
    assert len(sizes) > 1
    assert sum(sizes) == 7
    assert torch.equal(result, shift(images, amounts))
