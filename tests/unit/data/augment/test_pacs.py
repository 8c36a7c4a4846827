import itertools

import pytest
import torch

from asrnorm.data.augment import pacs, pillow, to_float
from asrnorm.data.augment.color import grayscale
from asrnorm.data.augment.geometry import draw_boxes, resize_boxes
from asrnorm.data.augment.pacs import (
    Jitter,
    PacsDraw,
    apply_pacs,
    apply_unfused,
    draw_jitter,
    draw_pacs,
    jitter_colors,
)
from helpers.pictures import difference, one_by_one, pictures

ORDERS = torch.tensor(list(itertools.permutations(range(4))))
SIZE = (20, 18)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def test_it_is_the_chain_of_its_steps_with_their_draws():
    images = pictures(24, 21)

    def crop_and_flip(images, generator):
        boxes = draw_boxes(len(images), 24, 21, generator)
        return resize_boxes(images, boxes, SIZE, torch.rand(len(images), generator=generator) < 0.5)

    def jitter(images, generator):
        return jitter_colors(images, draw_jitter(len(images), generator))

    def gray(images, generator):
        chosen = torch.rand(len(images), generator=generator) < 0.1
        return torch.where(chosen.view(-1, 1, 1, 1), grayscale(images), images)

    for seed in range(3):
        drawing = generator(seed)
        expected = gray(jitter(crop_and_flip(images, drawing), drawing), drawing)
        assert torch.equal(apply_pacs(images, draw_pacs(8, (24, 21), generator(seed)), SIZE), expected)


def test_flips_and_grays_come_with_their_probabilities_a_sample():
    drawn = draw_pacs(5000, (24, 21), generator())
    assert abs(drawn.flip.float().mean() - 0.5) < 0.03
    assert abs(drawn.gray.float().mean() - 0.1) < 0.02


def test_floats_are_rounded_to_bytes_first():
    images, drawn = pictures(24, 21), draw_pacs(8, (24, 21), generator())
    floats = (images.float() + 0.4) / 255
    beyond = torch.where(images == 255, 3.0, torch.where(images == 0, -2.0, floats))
    expected = to_float(apply_pacs(images, drawn, SIZE))
    assert torch.equal(apply_pacs(floats, drawn, SIZE), expected)
    assert torch.equal(apply_pacs(beyond, drawn, SIZE), expected)


def test_each_image_depends_on_its_own_draws():
    images, drawn = pictures(24, 21), draw_pacs(8, (24, 21), generator())
    part = PacsDraw(*(value[2:5] for value in drawn))
    assert torch.equal(apply_pacs(images[2:5], part, SIZE), apply_pacs(images, drawn, SIZE)[2:5])


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_kernels_return_floats_for_floats_by_a_table_of_the_bytes(monkeypatch, dtype):
    images, drawn = pictures(24, 21), draw_pacs(8, (24, 21), generator())
    images = images if dtype == torch.uint8 else to_float(images)

    def look_up(images, drawn, size, table):
        pixels = apply_unfused(images, drawn, size)
        return pixels if table is None else torch.stack([table[c][pixels[:, c].long()] for c in range(3)], 1)

    plain = apply_pacs(images, drawn, SIZE)
    monkeypatch.setattr(pacs, "find_fused_pacs", lambda images, size: look_up)
    assert torch.equal(apply_pacs(images, drawn, SIZE), plain)


def expected_of(images, drawn):
    return one_by_one(images, pillow.jitter_colors, *(values.tolist() for values in drawn))


def every_order(generator):
    drawn = draw_jitter(len(ORDERS), generator)
    return pictures(17, 19).repeat(3, 1, 1, 1), drawn._replace(order=ORDERS)


def test_every_order_of_the_four_equals_pillow():
    images, drawn = every_order(torch.Generator().manual_seed(0))
    assert difference(jitter_colors(images, drawn), expected_of(images, drawn)) == 0


def test_the_way_without_reading_the_mask_gives_the_same_bits(monkeypatch):
    images, drawn = every_order(torch.Generator().manual_seed(1))

    def unread(x, wanted, change, *parameters):  # as on a GPU
        return torch.where(wanted.view(-1, 1, 1, 1), change(x, *parameters), x)

    monkeypatch.setattr(pacs, "change_rows", unread)
    assert difference(jitter_colors(images, drawn), expected_of(images, drawn)) == 0


def test_random_draws_on_large_images_equal_pillow():
    images = pictures(222, 222)
    drawn = draw_jitter(8, torch.Generator().manual_seed(2))
    assert difference(jitter_colors(images, drawn), expected_of(images, drawn)) == 0


def test_draws_fill_their_ranges_and_all_orders_occur_equally():
    drawn = draw_jitter(24_000, torch.Generator().manual_seed(0))
    for column, middle in zip((*drawn.factors.unbind(1), drawn.hue), (1, 1, 1, 0), strict=True):
        assert middle - 0.4 <= column.min() < middle - 0.399
        assert middle + 0.399 < column.max() <= middle + 0.4
        assert abs(column.mean() - middle) < 0.008
    counts = torch.unique(drawn.order, dim=0, return_counts=True)[1]
    assert len(counts) == 24
    assert counts.min() > 850


def test_no_spread_changes_only_what_hsv_loses():
    images = pictures()
    still = Jitter(torch.ones(8, 3), torch.zeros(8), torch.arange(4).expand(8, 4))
    expected = one_by_one(images, lambda image: pillow.shift_hue(image, 0.0))
    assert difference(jitter_colors(images, still), expected) == 0
