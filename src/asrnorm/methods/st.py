"""ST: the network also names by which right angle an image was turned.

Hendrycks, Mazeika, Kadavath and Song, *Using Self-Supervised Learning Can Improve Model Robustness and Uncertainty*,
NeurIPS 2019, after the code that its authors released.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from asrnorm.core.errors import InputError
from asrnorm.methods.base import METHODS, Batch, Method, embedding_size
from asrnorm.models import Classifier

ANGLES = 4


@METHODS.register("st")
@dataclass(kw_only=True, eq=False)
class ST(Method):
    r"""ST: cross-entropy of the upright images, and of the angle of four turned copies by a second head.

    $L = \mathrm{CE}(\text{class};\, x) + w\, \mathrm{CE}(\text{angle};\, x_0, x_{90}, x_{180}, x_{270})$. The copies
    are a second forward pass, so that running statistics are updated twice, mostly by turned images, as in its code.

    Args:
        rotation_weight: $w$.

    Raises:
        InputError: a negative weight.

    Example:
        >>> ST().rotation_weight
        0.5
    """

    capturable = True

    rotation_weight: float = 0.5

    def __post_init__(self) -> None:
        if self.rotation_weight < 0:
            raise InputError(f"st: rotation_weight must be at least 0, not {self.rotation_weight:g}")

    def create_trained(self, model: Classifier, example: Tensor) -> dict[str, nn.Module]:
        """Return the linear head of the angles."""
        return {"angles": nn.Linear(embedding_size(model, example), ANGLES)}

    def loss(self, model: Classifier, batch: Batch) -> Tensor:
        """Return the cross-entropy of the classes and the weighted one of the angles."""
        class_loss = F.cross_entropy(model(batch.images), batch.labels)
        turned, angle = turn_all(batch.images)
        logits = self.trained["angles"](model.embed(model.features(turned)))
        return class_loss + self.rotation_weight * F.cross_entropy(logits, angle)


def turn_all(images: Tensor) -> tuple[Tensor, Tensor]:
    """Return a batch turned by 0, 90, 180 and 270 degrees, one copy after the other, and their angles 0 to 3.

    Raises:
        InputError: the images are not square.

    Example:
        >>> turned, angle = turn_all(torch.arange(4.0).view(1, 1, 2, 2))
        >>> turned[1, 0].tolist(), angle.tolist()
        ([[1.0, 3.0], [0.0, 2.0]], [0, 1, 2, 3])
    """
    if images.shape[2] != images.shape[3]:
        raise InputError(f"images must be square to be turned, not {images.shape[2]}x{images.shape[3]}")
    angle = torch.arange(ANGLES, device=images.device).repeat_interleave(len(images))
    return torch.cat([images.rot90(count, (2, 3)) for count in range(ANGLES)]), angle
