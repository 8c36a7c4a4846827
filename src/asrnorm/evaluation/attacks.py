"""Accuracy under attack by FGSM (Goodfellow et al., 2015), PGD (Madry et al., 2018) and ADA (Volpi et al., 2018).

The ASR-Norm paper reports accuracy after "several adversarial updates" without details, so `ATTACKS` is a grid of weak
and strong ones.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, cast

import torch
from torch import Tensor, nn

from asrnorm.core.distributed import ALONE, World
from asrnorm.core.errors import InputError
from asrnorm.core.frozen_eval import evaluating
from asrnorm.core.precision import Precision
from asrnorm.data import FileSet, ImageSet
from asrnorm.evaluation.inference import Inference, can_be_captured
from asrnorm.evaluation.score import check_labels, iterate_batches, subsample
from asrnorm.methods import keyed_generator
from asrnorm.methods.ascent import AscendBatch, Ascent
from asrnorm.methods.attacks import AttackGraph, Ball, perturb
from asrnorm.models.base import PARTS, Classifier

_LEVELS = 255  # of a pixel
_REACH = 2.5  # total length of PGD's steps over the radius, as Madry et al.: ten steps of 2/255 at radius 8/255
_ADA_BATCH = 32  # the public codes of ADA ascend the mean over such a batch, which divides the step


class Attack(Protocol):
    """A change of images that raises a model's loss."""

    @property
    def name(self) -> str:
        """The key of the attack in results."""

    def apply(self, model: Classifier, images: Tensor, labels: Tensor, generator: torch.Generator) -> Tensor:
        """Return the attacked images, float in [0, 1]."""


@dataclass(frozen=True)
class SignedSteps:
    """Signed gradient steps in an L-infinity ball: FGSM with one step, PGD from a random start with several.

    Example:
        >>> SignedSteps(0.5, 1).name, SignedSteps(8, 10).name, round(SignedSteps(8, 10).step_size * 255, 6)
        ('fgsm-0.5', 'pgd10-8', 2.0)
    """

    level: float  # radius of the ball in pixel levels; 8 is 8/255
    steps: int

    @property
    def name(self) -> str:
        """`fgsm-<level>` or `pgd<steps>-<level>`."""
        return f"fgsm-{self.level:g}" if self.steps == 1 else f"pgd{self.steps}-{self.level:g}"

    @property
    def epsilon(self) -> float:
        """The radius of the ball for images in [0, 1]."""
        return self.level / _LEVELS

    @property
    def step_size(self) -> float:
        """The radius for one step, else 2.5 times the radius over the number of steps."""
        return self.epsilon if self.steps == 1 else _REACH * self.epsilon / self.steps

    def apply(self, model: Classifier, images: Tensor, labels: Tensor, generator: torch.Generator) -> Tensor:
        """Return the attacked images."""
        return perturb(
            model,
            images,
            labels,
            epsilon=self.epsilon,
            step_size=self.step_size,
            steps=self.steps,
            random_start=self.steps > 1,
            generator=generator,
        )


@dataclass(frozen=True)
class SemanticAscent:
    """The ascent of ADA: plain gradient steps on the loss less the distance in the semantic space, then clipped."""

    lr: float = 1.0  # of the public codes, which ascend a mean over 32: an image moves by `lr / 32` times its gradient
    steps: int = 25  # the ASR-Norm paper's in training on CIFAR-10
    penalty: float = 1.0  # on the distance

    @property
    def name(self) -> str:
        """`ada<steps>-<lr>`."""
        return f"ada{self.steps}-{self.lr:g}"

    def apply(self, model: Classifier, images: Tensor, labels: Tensor, generator: torch.Generator) -> Tensor:  # noqa: ARG002
        """Return the images at the end of the ascent; nothing is drawn from the generator."""
        return self.ascent(len(images)).ascend(model, images, labels)

    def ascent(self, batch: int) -> Ascent:
        """Return the ascent for batches of a size."""
        # Reduced per sample, so that the batch size of the evaluation does not change the step.
        return Ascent(
            penalty=self.penalty, steps=self.steps, lr=self.lr / _ADA_BATCH, batch=batch, reduction="sample", clip=True
        )


ATTACKS: tuple[Attack, ...] = (
    *(SignedSteps(level, steps) for steps in (1, 10) for level in (0.5, 1, 2, 8)),
    SemanticAscent(lr=1),
    SemanticAscent(lr=20),
)


class Attacker:
    """Applies attacks to batches as `Attack.apply` does, on a GPU by replaying CUDA graphs of their steps.

    One graph of a signed gradient step serves all radii; every ADA ascent has its own. Batches of another size than the
    first and other attacks run without graphs. The model is in eval mode and its weights do not change.
    """

    def __init__(self, model: Classifier, inference: Inference) -> None:
        self._model = model
        self._captures = can_be_captured(inference)
        self._signed: AttackGraph | None = None
        self._ascents: dict[SemanticAscent, AscendBatch] = {}

    def apply(self, attack: Attack, images: Tensor, labels: Tensor, generator: torch.Generator) -> Tensor:
        """Return the attacked images of a batch."""
        if self._captures and isinstance(attack, SignedSteps):
            center = images.detach().to(next(self._model.parameters()).dtype)
            if self._signed is None:
                self._signed = AttackGraph(self._model, center, labels)
            if self._signed.fits(center):
                ball = Ball.around(center, attack.epsilon)
                start = ball.draw(generator) if attack.steps > 1 else center
                return self._signed.perturb(ball, start, labels, step_size=attack.step_size, steps=attack.steps)
        if self._captures and isinstance(attack, SemanticAscent):
            if attack not in self._ascents:
                self._ascents[attack] = attack.ascent(len(images)).prepare(self._model, captured=True)
            return self._ascents[attack](images, labels)
        return attack.apply(self._model, images, labels, generator)


def score_attacks(
    model: nn.Module,
    data: ImageSet | FileSet,
    *,
    attacks: Sequence[Attack] | None = None,
    name: str = "source",
    batch_size: int = 500,
    device: torch.device | str | None = None,
    precision: Precision = "float32",
    resize: tuple[int, int] | None = None,
    seed: int = 0,
    world: World = ALONE,
) -> dict[str, float]:
    """Return the accuracy of a model on a domain under each attack, by the attack's name.

    The attacks are by default `ATTACKS`: FGSM and PGD with 10 steps at .5, 1, 2 and 8 levels, and ADA's ascent at two
    rates if the model has the parts of a `Classifier`. The model is attacked in eval mode and then returns to its mode.
    The number of processes does not change the result; the batch size does, because random starts are drawn batch by
    batch, by `seed`. The other arguments are those of `score`.
    """
    inference = Inference.of(model, device=device, precision=precision, size=resize)
    if len(data) == 0:
        raise InputError(f"domain {name!r} has no images to score")
    attacks = _choose(attacks, model)
    num_correct = torch.zeros(len(attacks), dtype=torch.int64, device=inference.device)
    with evaluating(model):
        _, images, _ = next(iterate_batches(subsample(data, 2), 2))  # `bn_test` needs more than one
        with torch.inference_mode():
            check_labels(data.labels, inference.logits(inference.to_input(images)).shape[-1], name)
        attacker = Attacker(cast(Classifier, model), inference)  # `_choose` checks the parts that attacks need
        for batch, images, labels in iterate_batches(data, batch_size, world):
            images_nchw = inference.to_input(images)
            labels_n = torch.from_numpy(labels.copy()).to(inference.device)
            for row, attack in enumerate(attacks):
                generator = keyed_generator(seed, batch, attack.name, device=inference.device)
                with inference.autocast():
                    attacked = attacker.apply(attack, images_nchw, labels_n, generator)
                with torch.inference_mode():
                    prediction_n = inference.logits(attacked).argmax(1)
                num_correct[row] += (prediction_n == labels_n).sum()
    counts = world.sum(num_correct).tolist()
    return {attack.name: count / len(data) for attack, count in zip(attacks, counts, strict=True)}


def _choose(attacks: Sequence[Attack] | None, model: nn.Module) -> Sequence[Attack]:
    lacking = [part for part in PARTS if not hasattr(model, part)]
    if attacks is None:
        return [attack for attack in ATTACKS if not (lacking and isinstance(attack, SemanticAscent))]
    if lacking and (ascents := [attack.name for attack in attacks if isinstance(attack, SemanticAscent)]):
        raise InputError(
            f"attack {ascents[0]!r} needs parts that {type(model).__name__} lacks: {', '.join(lacking)}; "
            "leave it out, or derive the network from asrnorm.models.Classifier"
        )
    return attacks
