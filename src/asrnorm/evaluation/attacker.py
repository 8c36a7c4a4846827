"""One model under many attacks, batch after batch: on a GPU their steps are replayed from CUDA graphs."""

import torch
from torch import Tensor

from asrnorm.evaluation.attack import Attack, SemanticAscent, SignedSteps
from asrnorm.evaluation.forward import can_be_captured
from asrnorm.evaluation.inference import Inference
from asrnorm.methods.ascent_graph import Climb
from asrnorm.methods.attack import Ball
from asrnorm.methods.attack_graph import AttackGraph
from asrnorm.models import Classifier


class Attacker:
    """Applies attacks to batches, with the numbers of `Attack.apply`.

    A step of signed gradients is captured once for all radii; ADA's ascent once for each attack. Batches of another
    size than the first, and attacks of other kinds, are done without.

    Args:
        model: in evaluation mode, its weights as they stay.
        inference: the same model with the form of its input; attacks are applied in its autocast.
    """

    def __init__(self, model: Classifier, inference: Inference) -> None:
        self._model = model
        self._captures = can_be_captured(inference)
        self._signed: AttackGraph | None = None
        self._climbs: dict[SemanticAscent, Climb] = {}

    def apply(self, attack: Attack, images: Tensor, labels: Tensor, generator: torch.Generator) -> Tensor:
        """Return the attacked images of a batch."""
        if self._captures and isinstance(attack, SignedSteps):
            found = self._step(attack, images.detach().to(next(self._model.parameters()).dtype), labels, generator)
            if found is not None:
                return found
        if self._captures and isinstance(attack, SemanticAscent):
            if attack not in self._climbs:
                self._climbs[attack] = attack.ascent(len(images)).climber(self._model, captured=True)
            return self._climbs[attack](images, labels)
        return attack.apply(self._model, images, labels, generator)

    def _step(self, attack: SignedSteps, images: Tensor, labels: Tensor, generator: torch.Generator) -> Tensor | None:
        if self._signed is None:
            self._signed = AttackGraph(self._model, images, labels)
        if not (self._signed.is_captured and self._signed.fits(images)):
            return None
        ball = Ball.around(images, attack.epsilon)
        start = ball.draw(generator) if attack.steps > 1 else images
        return self._signed.perturb(ball, start, labels, step_size=attack.step_size, steps=attack.steps)
