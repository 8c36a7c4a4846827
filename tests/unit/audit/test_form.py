"""The form of a model's input: its size, and what its outputs are."""

import pytest
import torch

from asrnorm.audit.form import Form, are_probabilities
from asrnorm.core.errors import InputError


def test_an_image_made_smaller_keeps_something_of_every_pixel():
    images = torch.zeros(1, 3, 8, 8)
    images[..., 0] = 1.0  # the first column alone, between the places that plain sampling would look at
    small = Form(size=(2, 2)).prepare(images)
    assert small.shape == (1, 3, 2, 2)
    assert bool((small[..., 0] > 0.05).all())
    assert Form(size=(8, 8)).prepare(images) is images


def test_numbers_that_do_not_add_up_to_one_are_no_probabilities():
    rows = torch.tensor([[0.25, 0.75], [0.5, 0.5]])
    assert are_probabilities(rows)
    assert are_probabilities(rows.half() * 1.0005)
    assert not are_probabilities(rows * 1.02)
    assert not are_probabilities(torch.tensor([[0.25, 0.75], [0.5, 0.47]]))
    assert not are_probabilities(torch.tensor([[-0.01, 1.01]]))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("classes", [2, 10, 1000])
def test_probabilities_are_known_however_they_are_rounded(classes, dtype):
    logits = 3 * torch.randn(50, classes, generator=torch.Generator().manual_seed(0))
    assert are_probabilities(logits.softmax(1).to(dtype))
    assert not are_probabilities(logits.to(dtype))


@pytest.mark.parametrize("classes", [2, 10, 20])
def test_probabilities_in_eight_bits_are_known_too(classes):
    logits = torch.randn(50, classes, generator=torch.Generator().manual_seed(0))
    assert are_probabilities((logits.softmax(1) * 256).round() / 256)


def test_a_mean_of_bytes_is_refused():
    with pytest.raises(InputError, match=r"values in \[0, 1\]: divide those for 0 to 255 by 255"):
        Form(mean=(124, 116, 104), std=(58, 57, 57))
