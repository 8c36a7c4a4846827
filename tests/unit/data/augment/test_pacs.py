import pytest
import torch

from asrnorm.data.augment import Compose, ToFloat, grayscale, pacs, to_float
from asrnorm.data.augment.geometry import draw_boxes, resize_boxes
from asrnorm.data.augment.pacs import (
    PacsDraw,
    apply_pacs,
    apply_unfused,
    draw_jitter,
    draw_pacs,
    jitter_colors,
    random_pacs,
)
from helpers.pictures import pictures

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
        expected = Compose((crop_and_flip, jitter, gray))(images, generator(seed))
        assert torch.equal(random_pacs(images, generator(seed), SIZE), expected)


def test_flips_and_grays_come_with_their_probabilities_a_sample():
    drawn = draw_pacs(5000, (24, 21), generator())
    assert abs(drawn.flip.float().mean() - 0.5) < 0.03
    assert abs(drawn.gray.float().mean() - 0.1) < 0.02


def test_floats_are_rounded_to_bytes_first():
    images, drawn = pictures(24, 21), draw_pacs(8, (24, 21), generator())
    floats = (images.float() + 0.4) / 255
    assert torch.equal(apply_pacs(floats, drawn, SIZE), apply_pacs(images, drawn, SIZE))
    beyond = torch.where(images == 255, 3.0, torch.where(images == 0, -2.0, floats))
    assert torch.equal(apply_pacs(beyond, drawn, SIZE), apply_pacs(images, drawn, SIZE))


def test_each_image_depends_on_its_own_draws():
    images, drawn = pictures(24, 21), draw_pacs(8, (24, 21), generator())
    part = PacsDraw(*(value[2:5] for value in drawn))
    assert torch.equal(apply_pacs(images[2:5], part, SIZE), apply_pacs(images, drawn, SIZE)[2:5])


def test_a_finish_comes_last():
    images, drawn = pictures(24, 21), draw_pacs(8, (24, 21), generator())
    finish = ToFloat((0.5, 0.4, 0.3), (0.2, 0.3, 0.4))
    expected = to_float(apply_unfused(images, drawn, SIZE), finish.mean, finish.std)
    assert torch.equal(apply_pacs(images, drawn, SIZE, finish), expected)


@pytest.mark.parametrize("finish", [None, ToFloat((0.5, 0.4, 0.3), (0.2, 0.3, 0.4))])
def test_kernels_get_the_finish_as_a_table_of_the_bytes(monkeypatch, finish):
    images, drawn = pictures(24, 21), draw_pacs(8, (24, 21), generator())

    def look_up(images, drawn, size, table):
        pixels = apply_unfused(images, drawn, size)
        return pixels if table is None else torch.stack([table[c][pixels[:, c].long()] for c in range(3)], 1)

    plain = apply_pacs(images, drawn, SIZE, finish)
    monkeypatch.setattr(pacs, "find_fused_pacs", lambda images, size: look_up)
    assert torch.equal(apply_pacs(images, drawn, SIZE, finish), plain)
