import random

import pytest
import torch
from scipy import stats

from asrnorm.core.errors import InputError
from asrnorm.data.augment import pillow
from asrnorm.data.augment.geometry import draw_boxes, resize_boxes
from helpers.pictures import difference, one_by_one, pictures


@pytest.mark.parametrize("size", [(227, 227), (100, 160), (300, 40)])
def test_boxes_are_distributed_as_the_loop_draws_them(size):
    rng = random.Random(0)
    one_by_one_drawn = torch.tensor([pillow.draw_box(rng, *size) for _ in range(4000)])
    drawn = torch.stack(draw_boxes(4000, *size, torch.Generator().manual_seed(0)), 1)
    for a, b in zip(one_by_one_drawn.unbind(1), drawn.unbind(1), strict=True):
        assert stats.ks_2samp(a.numpy(), b.numpy()).pvalue > 1e-3


@pytest.mark.parametrize(("size", "box"), [((300, 40), (123, 0, 53, 40)), ((30, 200), (0, 80, 30, 40))])
def test_where_no_box_fits_the_largest_centered_one_is_taken(size, box):
    drawn = torch.stack(draw_boxes(50, *size, torch.Generator().manual_seed(0), scale=(0.95, 1.0)), 1)
    assert (drawn == torch.tensor(box)).all()


def test_where_no_box_fits_a_square_the_whole_is_taken():
    drawn = torch.stack(draw_boxes(5, 50, 50, torch.Generator().manual_seed(0), scale=(2.0, 3.0)), 1)
    assert (drawn == torch.tensor([0, 0, 50, 50])).all()


def test_boxes_lie_inside_the_image():
    boxes = draw_boxes(20_000, 61, 37, torch.Generator().manual_seed(0), scale=(0.01, 1.0))
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


def test_ranges_the_wrong_way_round_are_refused():
    with pytest.raises(InputError, match=r"positive ranges \(low, high\)"):
        draw_boxes(1, 5, 5, torch.Generator(), scale=(1.0, 0.5))
