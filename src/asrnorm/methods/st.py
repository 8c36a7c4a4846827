"""ST and TTT: the network also names by which right angle an image was turned.

Hendrycks, Mazeika, Kadavath and Song, *Using Self-Supervised Learning Can Improve Model Robustness and Uncertainty*,
NeurIPS 2019; Sun et al., *Test-Time Training with Self-Supervision for Generalization under Distribution Shifts*, ICML
2020; both after the code that their authors released.
"""

from dataclasses import dataclass
from math import inf
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from asrnorm.core.errors import InputError
from asrnorm.methods.base import METHODS, Batch, Method, embedding_size
from asrnorm.models import Classifier
from asrnorm.models.rotation_resnet import ANGLES, find_rotation, rotation_logits


@METHODS.register("st")
@dataclass(kw_only=True, eq=False)
class ST(Method):
    r"""ST: cross-entropy of the upright images, and of the angle of four turned copies by a second head.

    $L = \mathrm{CE}(\text{class};\, x) + w\, \mathrm{CE}(\text{angle};\, x_0, x_{90}, x_{180}, x_{270})$. The copies
    are a second forward pass, so that running statistics are updated twice, mostly by turned images, as in its code.

    Args:
        rotation_weight: $w$.
    """

    capturable = True
    ranges: ClassVar = {"rotation_weight": (0, inf)}

    rotation_weight: float = 0.5

    def create_trained(self, model: Classifier, example: Tensor) -> dict[str, nn.Module]:
        """Return the linear head of the angles."""
        return {"angles": nn.Linear(embedding_size(model, example), ANGLES)}

    def loss(self, model: Classifier, batch: Batch) -> Tensor:
        """Return the cross-entropy of the classes and the weighted one of the angles."""
        class_loss = F.cross_entropy(model(batch.images), batch.labels)
        turned, angle = turn_all(batch.images)
        return class_loss + self.rotation_weight * F.cross_entropy(self.angle_logits(model, turned), angle)

    def angle_logits(self, model: Classifier, turned: Tensor) -> Tensor:
        """Return the logits of the angles of turned images."""
        logits: Tensor = self.trained["angles"](model.embed(model.features(turned)))
        return logits


@METHODS.register("ttt")
@dataclass(kw_only=True, eq=False)
class TTT(ST):
    """TTT: ST with a branch of the network in place of the head, and a weight of 1.

    The loss of the training; `adapt=slow` or `online` in a config lets the scores learn the angles of test images too.
    A network without a rotation branch, any but `resnet26_ttt`, gets the head of ST and cannot be adapted.

    Args:
        rotation_weight: of the angles.
    """

    rotation_weight: float = 1.0

    def create_trained(self, model: Classifier, example: Tensor) -> dict[str, nn.Module]:
        """Return the head of ST if the network has no branch."""
        return {} if find_rotation(model) is not None else super().create_trained(model, example)

    def angle_logits(self, model: Classifier, turned: Tensor) -> Tensor:
        """Return the logits of the branch, or of the head."""
        return super().angle_logits(model, turned) if self.trained else rotation_logits(model, turned)


def turn_all(images: Tensor) -> tuple[Tensor, Tensor]:
    """Return a batch turned by 0, 90, 180 and 270 degrees, one copy after the other, and their angles 0 to 3.

    Example:
        >>> turned, angle = turn_all(torch.arange(4.0).view(1, 1, 2, 2))
        >>> turned[1, 0].tolist(), angle.tolist()
        ([[1.0, 3.0], [0.0, 2.0]], [0, 1, 2, 3])
    """
    if images.shape[2] != images.shape[3]:
        raise InputError(f"images must be square to be turned, not {images.shape[2]}x{images.shape[3]}")
    angle = torch.arange(ANGLES, device=images.device).repeat_interleave(len(images))
    return torch.cat([images.rot90(count, (2, 3)) for count in range(ANGLES)]), angle
