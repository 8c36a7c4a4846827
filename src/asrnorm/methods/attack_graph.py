"""Signed steps within a ball, captured: one step on a batch of fixed size, replayed over steps, batches and radii."""

from math import inf

import torch
import torch.nn.functional as F
from torch import Tensor

from asrnorm.graph import capture
from asrnorm.methods.attack import Ball, worse
from asrnorm.methods.mode import casting_anew, held_fixed
from asrnorm.models import Classifier


class AttackGraph:
    """Attacks batches of one size as `perturb` does, from static memory.

    Args:
        model: its weights must not change as long as this is used; captured in evaluation mode.
        images: of the first batch, on a CUDA device and in the model's dtype; the others have its shape.
        labels: likewise.
    """

    def __init__(self, model: Classifier, images: Tensor, labels: Tensor) -> None:
        self._model = model
        self._x, self._worst, self._lowest, self._highest = (images.detach().clone() for _ in range(4))
        self._labels = labels.clone()
        self._losses = torch.zeros(len(images), device=images.device)
        self._step_size = torch.zeros((), dtype=images.dtype, device=images.device)
        known = [self._worst, self._losses]
        with held_fixed(model), casting_anew():
            self._look = capture(self._compare, images.device, changed=known, what="the attack")
            self._step = capture(self._walk, images.device, changed=[self._x, *known], what="the attack")

    @property
    def is_captured(self) -> bool:
        """Tell whether there are graphs; where there are none, the log has said why."""
        return self._look is not None and self._step is not None

    def fits(self, images: Tensor) -> bool:
        """Tell whether a batch has the size that was captured."""
        return images.shape == self._x.shape

    @torch.no_grad()
    def perturb(self, ball: Ball, start: Tensor, labels: Tensor, *, step_size: float, steps: int) -> Tensor:
        """Return the worst of the images that were passed, as `perturb` does; nothing is waited for.

        Args:
            ball: around the images of a batch.
            start: images in it.
            labels: int64 `(n,)`.
            step_size: of every step.
            steps: how many.
        """
        assert self._look is not None
        assert self._step is not None
        for held, value in ((self._x, ball.center), (self._worst, ball.center), (self._labels, labels)):
            held.copy_(value)
        self._lowest.copy_(ball.lowest)
        self._highest.copy_(ball.highest)
        self._step_size.fill_(step_size)
        self._losses.fill_(-inf)
        self._look.replay()
        self._x.copy_(start)
        for _ in range(steps):
            self._step.replay()
        self._look.replay()
        return self._worst.clone()

    @torch.no_grad()
    def _compare(self) -> None:
        self._keep(F.cross_entropy(self._model(self._x), self._labels, reduction="none"))

    def _walk(self) -> None:
        with torch.enable_grad():
            x = self._x.detach().requires_grad_()
            losses = F.cross_entropy(self._model(x), self._labels, reduction="none")
            (gradient,) = torch.autograd.grad(losses.sum(), x)
        with torch.no_grad():
            self._keep(losses)
            self._x.copy_((self._x + self._step_size * gradient.sign()).clamp(self._lowest, self._highest))

    def _keep(self, losses: Tensor) -> None:
        worst, known = worse(self._worst, self._losses, self._x, losses.to(self._losses.dtype))
        self._worst.copy_(worst)
        self._losses.copy_(known)
