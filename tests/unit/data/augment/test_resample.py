import PIL
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL.Image import Resampling

from asrnorm.core.errors import InputError
from asrnorm.data.augment import pillow, resize
from asrnorm.data.augment.geometry import Boxes, resize_boxes
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
    with pytest.raises(InputError, match="cannot resize 8x8 to 0x5: no pixels"):
        resize(pictures(8, 8), (0, 5))
