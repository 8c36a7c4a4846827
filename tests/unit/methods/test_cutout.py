"""Cutout against a loop over images and squares."""

import pytest
import torch
import torch.nn.functional as F

import asrnorm
from asrnorm.core.errors import InputError
from asrnorm.methods import Batch
from asrnorm.models.base import NormalizedInput
from helpers.smooth_net import SmoothNet, random_images


def cut_by_loop(images, center, length, color):
    images = images.clone()
    for image, holes in zip(images, center.tolist(), strict=True):
        height, width = image.shape[1:]
        for row, column in holes:
            y, x = int(row * height), int(column * width)
            top, bottom = max(0, y - length // 2), min(height, y + length // 2)
            left, right = max(0, x - length // 2), min(width, x + length // 2)
            image[:, top:bottom, left:right] = color
    return images


@pytest.mark.parametrize(("length", "holes"), [(4, 1), (3, 2), (0, 1)])
def test_squares_have_the_color_that_is_zero_after_normalization(length, holes):
    images, labels = random_images(9, size=8)
    color = torch.tensor([0.2, 0.4, 0.6]).double()
    model = NormalizedInput(SmoothNet(size=8), color.tolist(), (0.5, 0.5, 0.5)).double()
    method = asrnorm.create_method("cutout", length=length, holes=holes, seed=2)
    cut = cut_by_loop(images, method.draw(7, 9)["center"], length, color[:, None, None])
    expected = F.cross_entropy(model(cut), labels)
    torch.testing.assert_close(method.loss(model, Batch(images, labels, 7)), expected)
    assert torch.equal(cut, images) == (length == 0)


def test_without_normalization_squares_are_black():
    (images, labels), model = random_images(9, size=8), SmoothNet(size=8)
    method = asrnorm.create_method("cutout", length=4)
    expected = F.cross_entropy(model(cut_by_loop(images, method.draw(0, 9)["center"], 4, 0.0)), labels)
    torch.testing.assert_close(method.loss(model, Batch(images, labels)), expected)


def test_centers_are_uniform_over_all_pixels():
    rows = (asrnorm.create_method("cutout").draw(0, 8000)["center"][:, 0, 0] * 8).long().bincount(minlength=8)
    assert rows.min() > 850
    assert len(rows) == 8


def test_negative_numbers_are_refused():
    with pytest.raises(InputError, match="cutout: length must be at least 0, not -1"):
        asrnorm.create_method("cutout", length=-1)
