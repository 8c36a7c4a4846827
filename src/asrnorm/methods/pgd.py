"""PGD adversarial training: the loss of images that an attack within a small ball has made.

Madry et al., *Towards Deep Learning Models Resistant to Adversarial Attacks*, ICLR 2018.
"""

from dataclasses import dataclass
from math import inf
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from asrnorm.core.randomness import draw_key, uniform_noise
from asrnorm.methods.attacks import perturb
from asrnorm.methods.base import METHODS, Batch, Method
from asrnorm.models import Classifier


@METHODS.register("pgd")
@dataclass(kw_only=True, eq=False)
class PGD(Method):
    """PGD: adversarial training, each batch replaced by the last images of an attack on it.

    Args:
        epsilon: radius of the L-infinity ball.
        ascent_steps: steps of the attack.
        ascent_lr: size of one signed step.
        random_start: start at a point drawn uniformly from the ball.
    """

    capturable = True
    unit_range = True
    ranges: ClassVar = {"epsilon": (0, inf), "ascent_lr": (0, inf), "ascent_steps": (0, inf)}

    epsilon: float = 8 / 255
    ascent_steps: int = 10
    ascent_lr: float = 2 / 255
    random_start: bool = True

    def loss(self, model: Classifier, batch: Batch) -> Tensor:
        """Return the mean cross-entropy of the attacked images; the originals are not trained on."""
        attacked = perturb(
            model,
            batch.images,
            batch.labels,
            epsilon=self.epsilon,
            step_size=self.ascent_lr,
            steps=self.ascent_steps,
            random_start=self.random_start,
            noise=self._noise(batch) if self.random_start else None,
            keep_worst=False,
        )
        return F.cross_entropy(model(attacked), batch.labels)

    def draw(self, step: int, size: int) -> dict[str, Tensor]:  # noqa: ARG002
        """Return the key of the random start."""
        return {"key": draw_key(self.generator(step, "pgd.start"))} if self.random_start else {}

    def _noise(self, batch: Batch) -> Tensor:
        images = batch.images
        if images.device.type == "cpu":
            shape = (batch.global_size, *images.shape[1:])
            generator = self.generator(batch.step, "pgd.start")
            return batch.own(torch.rand(shape, generator=generator, dtype=images.dtype))
        start = batch.offset * images[0].numel()
        return uniform_noise(self.drawn(batch)["key"], images.shape, start=start, dtype=images.dtype)
