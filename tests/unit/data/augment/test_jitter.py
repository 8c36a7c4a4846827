import itertools

import pytest
import torch

from asrnorm.data.augment import pacs as module
from asrnorm.data.augment import pillow
from asrnorm.data.augment.pacs import Jitter, JitterRange, draw_jitter, jitter_colors
from helpers.pictures import difference, one_by_one, pictures

ORDERS = torch.tensor(list(itertools.permutations(range(4))))


def expected_of(images, drawn):
    return one_by_one(images, pillow.jitter_colors, *(values.tolist() for values in drawn))


def every_order(generator):
    drawn = draw_jitter(len(ORDERS), generator)
    return pictures(17, 19).repeat(3, 1, 1, 1), drawn._replace(order=ORDERS)


def test_without_a_word_all_four_go_as_far_as_in_the_training_of_pacs():
    drawn = draw_jitter(24_000, torch.Generator().manual_seed(0))
    assert drawn.factors.min(0).values.tolist() == pytest.approx([0.6] * 3, abs=1e-3)
    assert drawn.factors.max(0).values.tolist() == pytest.approx([1.4] * 3, abs=1e-3)
    assert [drawn.hue.min().item(), drawn.hue.max().item()] == pytest.approx([-0.4, 0.4], abs=1e-3)


def test_every_order_of_the_four_equals_pillow():
    images, drawn = every_order(torch.Generator().manual_seed(0))
    assert difference(jitter_colors(images, drawn), expected_of(images, drawn)) == 0


def test_the_way_without_reading_the_mask_gives_the_same_bits(monkeypatch):
    images, drawn = every_order(torch.Generator().manual_seed(1))

    def unread(x, kind, factor, wanted):
        return module._blend(x, torch.where(wanted, kind, module.BRIGHTNESS), torch.where(wanted, factor, 1.0))

    monkeypatch.setattr(module, "_blend_some", unread)
    assert difference(jitter_colors(images, drawn), expected_of(images, drawn)) == 0


def test_random_draws_on_large_images_equal_pillow():
    images = pictures(222, 222)
    drawn = draw_jitter(8, torch.Generator().manual_seed(2))
    assert difference(jitter_colors(images, drawn), expected_of(images, drawn)) == 0


def test_draws_fill_their_ranges_and_all_orders_occur_equally():
    drawn = draw_jitter(24_000, torch.Generator().manual_seed(0), JitterRange(0.4, 0.2, 0.1, 0.3))
    for column, width in zip(drawn.factors.unbind(1), (0.4, 0.2, 0.1), strict=True):
        assert 1 - width <= column.min() < 1 - 0.99 * width
        assert 1 + 0.99 * width < column.max() <= 1 + width
        assert abs(column.mean() - 1) < 0.02 * width
    assert 0.29 < drawn.hue.max() <= 0.3
    counts = torch.unique(drawn.order, dim=0, return_counts=True)[1]
    assert len(counts) == 24
    assert counts.min() > 850


def test_factors_are_never_negative():
    drawn = draw_jitter(1000, torch.Generator().manual_seed(0), JitterRange(brightness=3.0))
    assert drawn.factors.min() == 0


def test_no_spread_changes_only_what_hsv_loses():
    images = pictures()
    still = Jitter(torch.ones(8, 3), torch.zeros(8), torch.arange(4).expand(8, 4))
    expected = one_by_one(images, lambda image: pillow.shift_hue(image, 0.0))
    assert difference(jitter_colors(images, still), expected) == 0
    drawn = draw_jitter(8, torch.Generator(), JitterRange(0, 0, 0, 0))
    assert difference(jitter_colors(images, drawn), expected) == 0
