"""Attacks that a model is scored under: FGSM and PGD of several strengths, and the ascent of ADA.

Goodfellow et al., 2015; Madry et al., 2018; Volpi et al., 2018. The ASR-Norm paper reports accuracy after "several
adversarial updates" and says no more, so there is a grid of weak and strong ones.
"""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from asrnorm.methods.ascent import Ascent
from asrnorm.methods.attack import perturb
from asrnorm.models import Classifier

_LEVELS = 255  # of a pixel
_REACH = 2.5  # PGD may walk this many times the radius: Madry et al.'s rule, 2/255 at radius 8/255 in ten steps
_ADA_BATCH = 32  # the public codes of ADA climb the mean over such a batch, which divides the step


class Attack(Protocol):
    """A way to make images harder for a model."""

    @property
    def name(self) -> str:
        """What the attack is called in results."""

    def apply(self, model: Classifier, images: Tensor, labels: Tensor, generator: torch.Generator) -> Tensor:
        """Return the attacked images, float in [0, 1]."""


@dataclass(frozen=True)
class SignedSteps:
    """Signed gradient steps within an L-infinity ball: FGSM where there is one step, else PGD from a random start.

    Args:
        level: radius of the ball in levels of a pixel, so that 8 is 8/255.
        steps: how many.

    Example:
        >>> SignedSteps(0.5, 1).name, SignedSteps(8, 10).name, round(SignedSteps(8, 10).step_size * 255, 6)
        ('fgsm-0.5', 'pgd10-8', 2.0)
    """

    level: float
    steps: int

    @property
    def name(self) -> str:
        """`fgsm-<level>` or `pgd<steps>-<level>`."""
        return f"fgsm-{self.level:g}" if self.steps == 1 else f"pgd{self.steps}-{self.level:g}"

    @property
    def epsilon(self) -> float:
        """The radius of the ball, of images in [0, 1]."""
        return self.level / _LEVELS

    @property
    def step_size(self) -> float:
        """The whole radius at once, or 2.5 times the radius over the number of steps."""
        return self.epsilon if self.steps == 1 else _REACH * self.epsilon / self.steps

    def apply(self, model: Classifier, images: Tensor, labels: Tensor, generator: torch.Generator) -> Tensor:
        """Return the attacked images."""
        attacked: Tensor = perturb(
            model,
            images,
            labels,
            epsilon=self.epsilon,
            step_size=self.step_size,
            steps=self.steps,
            random_start=self.steps > 1,
            generator=generator,
        )
        return attacked


@dataclass(frozen=True)
class SemanticAscent:
    """The ascent of ADA: plain gradient steps on the loss less the distance in the semantic space, then clipped.

    Args:
        lr: step size of the public codes, which climb the mean over 32 images: one image moves by `lr / 32` times its
            own gradient.
        steps: how many; 25 is what the ASR-Norm paper trains with on CIFAR-10.
        penalty: on the distance.

    Example:
        >>> SemanticAscent(lr=20).name
        'ada25-20'
    """

    lr: float = 1.0
    steps: int = 25
    penalty: float = 1.0

    @property
    def name(self) -> str:
        """`ada<steps>-<lr>`."""
        return f"ada{self.steps}-{self.lr:g}"

    def apply(self, model: Classifier, images: Tensor, labels: Tensor, generator: torch.Generator) -> Tensor:  # noqa: ARG002
        """Return the climbed images; nothing is drawn from the generator."""
        climbed: Tensor = self.ascent(len(images)).climb(model, images, labels)
        return climbed

    def ascent(self, batch: int) -> Ascent:
        """Return the settings for batches of a size."""
        # By sample, and not by batch, so that the batch size of the evaluation does not change the step.
        return Ascent(
            penalty=self.penalty,
            steps=self.steps,
            lr=self.lr / _ADA_BATCH,
            batch=batch,
            reduction="sample",
            clip=True,
        )


ATTACKS: tuple[Attack, ...] = (
    *(SignedSteps(level, steps) for steps in (1, 10) for level in (0.5, 1, 2, 8)),
    SemanticAscent(lr=1),
    SemanticAscent(lr=20),
)
