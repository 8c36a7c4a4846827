import random

import numpy as np
import PIL
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL.Image import Resampling
from scipy import stats

from asrnorm.core.errors import InputError
from asrnorm.data.augment import geometry, pillow, resize
from asrnorm.data.augment.geometry import Boxes, crop_flip, draw_boxes, reflect, resize_boxes
from helpers.pictures import difference, one_by_one, pictures

ROWS_FIRST = int(PIL.__version__.split(".")[0]) < 13


@settings(max_examples=60, deadline=None)
@given(
    height=st.integers(1, 70),
    width=st.integers(1, 70),
    out_height=st.integers(1, 70),
    out_width=st.integers(1, 70),
    seed=st.integers(0, 2**32 - 1),
    data=st.data(),
)
def test_any_box_to_any_size_equals_pillow(height, width, out_height, out_width, seed, data):
    images = pictures(height, width, seed)
    boxes = []
    for _ in images:
        box_height, box_width = data.draw(st.integers(1, height)), data.draw(st.integers(1, width))
        top, left = data.draw(st.integers(0, height - box_height)), data.draw(st.integers(0, width - box_width))
        boxes.append((top, left, box_height, box_width))
    flips = data.draw(st.lists(st.booleans(), min_size=8, max_size=8))
    size = (out_height, out_width)
    expected = one_by_one(images, lambda i, box, flip: pillow.resize_box(i, box, size, flip), boxes, flips)
    as_data = Boxes(*torch.tensor(boxes).unbind(1))
    assert difference(resize_boxes(images, as_data, size, torch.tensor(flips)), expected) == 0


@pytest.mark.parametrize("size", [(227, 227), (300, 200), (150, 400), (222, 222), (500, 375)])
def test_whole_images_to_222_equal_pillow_in_one_call(size):
    images = pictures(*size)
    expected = one_by_one(images, lambda image: image.resize((222, 222), Resampling.BILINEAR))
    # Pillow 13 may take the columns first where the height shrinks more; see the module's docstring.
    may_differ = not ROWS_FIRST and size[0] > 222 and size[0] > size[1]
    assert difference(resize(images, (222, 222)), expected) <= int(may_differ)


@pytest.mark.parametrize("scale", [(64, 222), (227, 40)])
def test_either_axis_alone_equals_pillow_in_one_call(scale):
    images = pictures(48, 56)
    for size in ((48, scale[1]), (scale[0], 56)):
        expected = one_by_one(images, lambda image, size=size: image.resize(size[::-1], Resampling.BILINEAR))
        assert difference(resize(images, size), expected) == 0


def test_the_same_size_is_the_same_image():
    images = pictures(17, 23)
    assert torch.equal(resize(images, (17, 23)), images)


def test_sizes_without_pixels_are_refused():
    with pytest.raises(InputError):
        resize(pictures(8, 8), (0, 5))


@pytest.mark.parametrize("size", [(227, 227), (100, 160), (300, 40)])
def test_boxes_are_distributed_as_the_loop_draws_them(size):
    rng = random.Random(0)
    one_by_one_drawn = torch.tensor([pillow.draw_box(rng, *size) for _ in range(4000)])
    drawn = torch.stack(draw_boxes(4000, *size, torch.Generator().manual_seed(0)), 1)
    for a, b in zip(one_by_one_drawn.unbind(1), drawn.unbind(1), strict=True):
        assert stats.ks_2samp(a.numpy(), b.numpy()).pvalue > 1e-3


@pytest.mark.parametrize(("size", "box"), [((300, 40), (123, 0, 53, 40)), ((30, 200), (0, 80, 30, 40))])
def test_where_no_box_fits_the_largest_centered_one_is_taken(size, box):
    drawn = torch.stack(draw_boxes(50, *size, torch.Generator().manual_seed(0)), 1)
    assert (drawn == torch.tensor(box)).all()


def test_where_no_box_fits_a_square_the_whole_is_taken(monkeypatch):
    monkeypatch.setattr(geometry, "SCALE", (2.0, 3.0))
    drawn = torch.stack(draw_boxes(5, 50, 50, torch.Generator().manual_seed(0)), 1)
    assert (drawn == torch.tensor([0, 0, 50, 50])).all()


def test_boxes_lie_inside_the_image(monkeypatch):
    monkeypatch.setattr(geometry, "SCALE", (0.01, 1.0))
    boxes = draw_boxes(20_000, 61, 37, torch.Generator().manual_seed(0))
    assert min(boxes.top.min(), boxes.left.min()) == 0
    assert min(boxes.height.min(), boxes.width.min()) >= 1
    assert (boxes.top + boxes.height).max() == 61
    assert (boxes.left + boxes.width).max() == 37


def test_crops_equal_pillow_with_the_same_boxes():
    images = pictures(227, 227)
    boxes = draw_boxes(8, 227, 227, torch.Generator().manual_seed(5))
    result = resize_boxes(images, boxes, (222, 222), torch.ones(8, dtype=torch.bool))
    rows = torch.stack(boxes, 1).tolist()
    expected = one_by_one(images, lambda image, box: pillow.resize_box(image, box, (222, 222), True), rows)
    assert difference(result, expected) == 0


@given(size=st.integers(2, 40), data=st.data())
def test_reflection_is_that_of_numpy(size, data):
    padding = data.draw(st.integers(0, size - 1))
    expected = np.pad(np.arange(size), padding, mode="reflect")
    assert reflect(torch.arange(-padding, size + padding), size).tolist() == expected.tolist()


@pytest.mark.parametrize("size", [(32, 32), (9, 14)])
def test_every_offset_equals_padding_cutting_and_flipping(size):
    images = pictures(*size)
    for top in range(9):
        lefts, flips = torch.arange(8), torch.arange(8) % 2 == top % 2
        tops = torch.full((8,), top)
        expected = one_by_one(
            images,
            lambda image, *values: pillow.crop_flip(image, *values, padding=4),
            *(values.tolist() for values in (tops, lefts, flips)),
        )
        assert difference(crop_flip(images, tops, lefts, flips, padding=4), expected) == 0
