"""Cutout: a square of every training image is blank.

DeVries and Taylor, *Improved Regularization of Convolutional Neural Networks with Cutout*, 2017, after the code that
its authors released.
"""

from dataclasses import dataclass
from math import inf
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from asrnorm.methods.base import METHODS, Batch, Method
from asrnorm.models import Classifier


@METHODS.register("cutout")
@dataclass(kw_only=True, eq=False)
class Cutout(Method):
    """Cutout: cross-entropy of images in which squares have the mean color.

    The center of a square is any pixel, so that squares at the border are cut off and smaller. The mean color is that
    by which the network normalizes its input, so that the square is zero after it; black without such a network.

    Args:
        length: side of a square in pixels.
        holes: squares per image; they may overlap.
    """

    capturable = True
    unit_range = True
    ranges: ClassVar = {"length": (0, inf), "holes": (0, inf)}

    length: int = 16
    holes: int = 1

    def draw(self, step: int, size: int) -> dict[str, Tensor]:
        """Return the centers of the squares, as shares of height and width."""
        return {"center": torch.rand((size, self.holes, 2), generator=self.generator(step, "cutout"))}

    def loss(self, model: Classifier, batch: Batch) -> Tensor:
        """Return the cross-entropy of the images with their squares."""
        blank = find_blank(batch.own(self.drawn(batch)["center"]), batch.images.shape[2:], self.length)
        color = getattr(model, "mean", None)
        color = color.to(batch.images) if isinstance(color, Tensor) else batch.images.new_zeros(())
        return F.cross_entropy(model(torch.where(blank[:, None], color, batch.images)), batch.labels)


def find_blank(center: Tensor, image_size: tuple[int, ...], length: int) -> Tensor:
    """Return which pixels lie in a square, bool `(n, h, w)`: rows `y - length // 2` to `y + length // 2 - 1`.

    The centers, `(n, holes, 2)`, are row and column as shares of height and width.

    Example:
        >>> find_blank(torch.tensor([[[0.0, 0.5]]]), (3, 4), 2).int().tolist()
        [[[0, 1, 1, 0], [0, 0, 0, 0], [0, 0, 0, 0]]]
    """
    inside = []
    for axis, size in enumerate(image_size):
        middle = (center[..., axis : axis + 1] * size).long()
        pixel = torch.arange(size, device=center.device)
        inside.append((pixel >= middle - length // 2) & (pixel < middle + length // 2))
    return (inside[0][..., :, None] & inside[1][..., None, :]).any(1)
