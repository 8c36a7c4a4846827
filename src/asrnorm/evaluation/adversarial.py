"""Accuracy under attack: FGSM and PGD of several strengths, and the ascent of ADA.

Goodfellow et al., 2015; Madry et al., 2018; Volpi et al., 2018. The ASR-Norm paper reports accuracy after "several
adversarial updates" and says no more, so a grid of weak and strong attacks is reported.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from asrnorm.data import FileSet, ImageSet
from asrnorm.errors import InputError
from asrnorm.evaluation.inference import Inference
from asrnorm.evaluation.score import check_labels
from asrnorm.evaluation.shard import iterate_batches
from asrnorm.methods import keyed_generator
from asrnorm.methods.mode import evaluating
from asrnorm.models import Classifier
from asrnorm.precision import Precision
from asrnorm.world import ALONE, World

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
    def step_size(self) -> float:
        """The whole radius at once, or 2.5 times the radius over the number of steps."""
        epsilon = self.level / _LEVELS
        return epsilon if self.steps == 1 else _REACH * epsilon / self.steps

    def apply(self, model: Classifier, images: Tensor, labels: Tensor, generator: torch.Generator) -> Tensor:
        """Return the attacked images."""
        from asrnorm.methods.attack import perturb

        attacked: Tensor = perturb(
            model,
            images,
            labels,
            epsilon=self.level / _LEVELS,
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
        from asrnorm.methods.ascent import Ascent

        # By sample, and not by batch, so that the batch size of the evaluation does not change the step.
        ascent = Ascent(
            penalty=self.penalty,
            steps=self.steps,
            lr=self.lr / _ADA_BATCH,
            batch=len(images),
            reduction="sample",
            clip=True,
        )
        climbed: Tensor = ascent.climb(model, images, labels)
        return climbed


ATTACKS: tuple[Attack, ...] = (
    *(SignedSteps(level, steps) for steps in (1, 10) for level in (0.5, 1, 2, 8)),
    SemanticAscent(lr=1),
    SemanticAscent(lr=20),
)


def score_attacks(
    model: Classifier,
    data: ImageSet | FileSet,
    *,
    attacks: Sequence[Attack] = ATTACKS,
    name: str = "source",
    batch_size: int = 500,
    device: torch.device | str | None = None,
    precision: Precision = "float32",
    resize: tuple[int, int] | None = None,
    seed: int = 0,
    world: World = ALONE,
) -> dict[str, float]:
    """Return the accuracy of a model on a domain under each attack, by the attack's name.

    The model is attacked in evaluation mode and left as it was. The number of processes does not change the result;
    random starts are drawn a batch at a time, so there the batch size does.

    Args:
        model: a `Classifier` that takes float images in [0, 1].
        data: images and labels, as a rule the source's test images.
        attacks: which; by default FGSM and PGD with 10 steps at .5, 1, 2 and 8 levels, and ADA's ascent at two rates.
        name: of the domain, for error lines.
        batch_size: the most images in a batch.
        device: where the model lies; found from its parameters where `None`.
        precision: `bfloat16` computes under autocast.
        resize: height and width to which images are resized first.
        seed: of the random starts.
        world: the processes that share the work; all of them must call this.

    Raises:
        InputError: no images, or labels that the model does not know.
    """
    inference = Inference.of(model, device=device, precision=precision, size=resize)
    if len(data) == 0:
        raise InputError(f"domain {name!r} has no images to score")
    check_labels(data.labels, model.num_classes, name)
    num_right = torch.zeros(len(attacks), dtype=torch.int64, device=inference.device)
    with evaluating(model):
        for batch, images, labels in iterate_batches(data, batch_size, world):
            images_nchw = inference.to_input(images)
            labels_n = torch.from_numpy(labels.copy()).to(inference.device)
            for row, attack in enumerate(attacks):
                generator = keyed_generator(seed, batch, attack.name, device=inference.device)
                with inference.autocast():
                    attacked = attack.apply(model, images_nchw, labels_n, generator)
                with torch.inference_mode():
                    guess_n = inference.logits(attacked).argmax(1)
                num_right[row] += (guess_n == labels_n).sum()
    counts = world.sum(num_right).tolist()
    return {attack.name: count / len(data) for attack, count in zip(attacks, counts, strict=True)}
