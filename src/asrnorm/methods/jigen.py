"""JiGen: the network also names the order in which the tiles of an image were put together again.

Carlucci, D'Innocente, Bucci, Caputo and Tommasi, *Domain Generalization by Solving Jigsaw Puzzles*, CVPR 2019, after
the code that its authors released.
"""

import json
from dataclasses import dataclass
from functools import cache
from math import inf
from pathlib import Path
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from asrnorm.core.errors import InputError
from asrnorm.data.augment.color import luma
from asrnorm.methods.base import METHODS, Batch, Method, embedding_size
from asrnorm.models import Classifier

GRID = 3
_TILES = GRID**2


@METHODS.register("jigen")
@dataclass(kw_only=True, eq=False)
class JiGen(Method):
    r"""JiGen: cross-entropy of the classes, and of the order of the tiles by a second head.

    $L = \mathrm{CE}(\text{class}) + w\, \mathrm{CE}(\text{order})$, both of the images with their tiles in that order.

    Args:
        jigsaw_weight: $w$.
        whole_chance: probability that the tiles of an image stay in place.
        num_orders: of the 30 published permutations; the head has one output more, for the order that is kept.
        gray_chance: probability that a tile becomes gray, each on its own.
    """

    capturable = True
    unit_range = True
    ranges: ClassVar = {"whole_chance": (0, 1), "gray_chance": (0, 1), "jigsaw_weight": (0, inf), "num_orders": (1, 30)}

    jigsaw_weight: float = 0.7
    whole_chance: float = 0.9
    num_orders: int = 30
    gray_chance: float = 0.1

    def create_trained(self, model: Classifier, example: Tensor) -> dict[str, nn.Module]:
        """Return the linear head of the orders."""
        return {"orders": nn.Linear(embedding_size(model, example), self.num_orders + 1)}

    def draw(self, step: int, size: int) -> dict[str, Tensor]:
        """Return the order of each image, the tile at each of its places, and which tiles become gray."""
        generator = self.generator(step, "jigen")
        order = torch.randint(self.num_orders + 1, (size,), generator=generator)
        order = order.masked_fill_(torch.rand(size, generator=generator) < self.whole_chance, 0)
        gray = torch.rand((size, _TILES), generator=generator) < self.gray_chance
        tiles = torch.tensor([range(_TILES), *read_orders()])
        return {"order": order, "tiles": tiles[order], "gray": gray}

    def loss(self, model: Classifier, batch: Batch) -> Tensor:
        """Return the cross-entropy of the classes and the weighted one of the orders."""
        drawn = self.drawn(batch)
        order, tiles, gray = (batch.own(drawn[name]) for name in ("order", "tiles", "gray"))
        embedding = model.embed(model.features(shuffle_tiles(batch.images, tiles, gray)))
        class_loss = F.cross_entropy(model.classify(embedding), batch.labels)
        return class_loss + self.jigsaw_weight * F.cross_entropy(self.trained["orders"](embedding), order)


@cache
def read_orders() -> list[list[int]]:
    """Return the published permutations of nine tiles."""
    orders: list[list[int]] = json.loads(Path(__file__).with_name("jigen_permutations.json").read_text())["orders"]
    return orders


def shuffle_tiles(images: Tensor, tiles: Tensor, gray: Tensor) -> Tensor:
    """Return images with tile `tiles[n, t]` at place t, gray where `gray[n, tile]`; tiles are counted row by row.

    JiGen's own sizes are multiples of three. Elsewhere the border that the tiles leave, a pixel or two, stays in place.

    Example:
        >>> image = torch.arange(9.0).view(1, 1, 3, 3).expand(1, 3, 3, 3) / 255
        >>> tiles = torch.tensor([[8, 1, 2, 3, 4, 5, 6, 7, 0]])
        >>> (255 * shuffle_tiles(image, tiles, torch.zeros(1, 9, dtype=torch.bool)))[0, 0].tolist()
        [[8.0, 1.0, 2.0], [3.0, 4.0, 5.0], [6.0, 7.0, 0.0]]
    """
    n, c, h, w = images.shape
    height, width = h // GRID, w // GRID
    if not (height and width):
        raise InputError(f"jigen cuts images into {GRID}x{GRID} tiles, which {h}x{w} pixels are too few for")
    top, left = (h - GRID * height) // 2, (w - GRID * width) // 2
    inner = images[:, :, top : top + GRID * height, left : left + GRID * width]
    cut = inner.reshape(n, c, GRID, height, GRID, width).permute(0, 2, 4, 1, 3, 5).reshape(n, _TILES, c, height, width)
    luma_tiles = luma((255 * cut.flatten(0, 1)).float()).view(n, _TILES, 1, height, width) / 255
    cut = torch.where(gray[:, :, None, None, None], luma_tiles.to(images.dtype), cut)
    cut = cut.gather(1, tiles[:, :, None, None, None].expand_as(cut))
    joined = cut.view(n, GRID, GRID, c, height, width).permute(0, 3, 1, 4, 2, 5)
    out = images.clone()
    out[:, :, top : top + GRID * height, left : left + GRID * width] = joined.reshape(inner.shape)
    return out
