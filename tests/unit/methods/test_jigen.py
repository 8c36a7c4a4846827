"""JiGen against loops over images and tiles, and its published orders."""

import numpy as np
import pytest
import torch
from PIL import Image

import asrnorm
from asrnorm.core.errors import InputError
from asrnorm.methods import Batch
from asrnorm.methods.jigen import read_orders, shuffle_tiles
from helpers.smooth_net import SmoothNet, random_images


def byte_images(count, size):
    return np.random.default_rng(1).integers(0, 256, (count, size, size, 3), np.uint8)


def as_input(images_nhwc):
    return torch.from_numpy(images_nhwc).permute(0, 3, 1, 2).float() / 255


def shuffle_by_pillow(image_hwc, tiles, gray):
    """One image, cut, grayed and put together as JiGen's loader does it."""
    whole = Image.fromarray(image_hwc)
    side, border = len(image_hwc) // 3, (len(image_hwc) - len(image_hwc) // 3 * 3) // 2
    boxes = [(border + x * side, border + y * side) for y in range(3) for x in range(3)]
    cut = [whole.crop((left, top, left + side, top + side)) for left, top in boxes]
    cut = [tile.convert("L").convert("RGB") if is_gray else tile for tile, is_gray in zip(cut, gray, strict=True)]
    for (left, top), source in zip(boxes, tiles, strict=True):
        whole.paste(cut[source], (left, top))
    return np.asarray(whole)


@pytest.mark.parametrize("size", [9, 10, 11, 32])
def test_tiles_are_those_of_pillow(size):
    images = byte_images(6, size)
    tiles = torch.tensor([range(9), *read_orders()[:5]])
    gray = torch.rand((6, 9), generator=torch.Generator().manual_seed(0)) < 0.4
    expected = np.stack([shuffle_by_pillow(*one) for one in zip(images, tiles.tolist(), gray.tolist(), strict=True)])
    torch.testing.assert_close(shuffle_tiles(as_input(images), tiles, gray), as_input(expected), rtol=0, atol=1e-6)


def test_the_loss_is_the_sum_of_two_cross_entropies_over_shuffled_images():
    (images, labels), model = random_images(8, size=9), SmoothNet(size=9)
    method = asrnorm.create_method("jigen", seed=1, jigsaw_weight=0.6, whole_chance=0.4, gray_chance=0.0)
    method.build(model, images)
    drawn = method.draw(5, 8)
    total = 0.0
    for image, label, order in zip(images, labels, drawn["order"].tolist(), strict=True):
        tiles = [image[:, y : y + 3, x : x + 3] for y in (0, 3, 6) for x in (0, 3, 6)]
        places = read_orders()[order - 1] if order else range(9)
        rows = [torch.cat([tiles[places[3 * row + column]] for column in range(3)], 2) for row in range(3)]
        embedding = model.embed(torch.cat(rows, 1)[None])
        orders = method.trained["orders"](embedding)[0]
        total += -model.classify(embedding)[0].log_softmax(0)[label] - 0.6 * orders.log_softmax(0)[order]
    torch.testing.assert_close(method.loss(model, Batch(images, labels, 5)), total / 8, rtol=1e-10, atol=0)
    assert drawn["order"].unique().numel() > 2


def test_the_orders_are_thirty_different_ones_and_not_the_kept_one():
    orders = read_orders()
    assert len({tuple(order) for order in orders}) == 30
    assert all(sorted(order) == list(range(9)) for order in orders)
    assert list(range(9)) not in orders
    assert orders[:2] == [[7, 2, 0, 1, 5, 6, 3, 4, 8], [0, 1, 2, 3, 4, 5, 6, 8, 7]]


def test_most_images_keep_their_order_and_the_others_take_any():
    drawn = asrnorm.create_method("jigen").draw(0, 20_000)
    counts = drawn["order"].bincount(minlength=31) / 20_000
    assert counts[0] == pytest.approx(0.9 + 0.1 / 31, abs=0.01)
    assert counts[1:].min() > 0.5 * 0.1 / 31
    assert drawn["gray"].float().mean() == pytest.approx(0.1, abs=0.01)


@pytest.mark.parametrize(
    "option", [{"whole_chance": 1.1}, {"gray_chance": -0.1}, {"num_orders": 31}, {"num_orders": 0}]
)
def test_numbers_out_of_range_are_refused(option):
    with pytest.raises(InputError, match=f"jigen: {next(iter(option))} must be in "):
        asrnorm.create_method("jigen", **option)


def test_images_too_small_for_tiles_are_refused():
    with pytest.raises(InputError, match="3x3 tiles, which 2x8 pixels are too few for"):
        shuffle_tiles(torch.rand(1, 3, 2, 8), torch.zeros(1, 9, dtype=torch.long), torch.zeros(1, 9, dtype=torch.bool))
