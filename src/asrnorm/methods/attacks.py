"""Attacks within a small L-infinity ball: projected gradient ascent (PGD) and its single step (FGSM).

Madry et al., 2018; Goodfellow et al., 2015.
"""

from math import inf
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from asrnorm.core.cuda_graph import capture
from asrnorm.core.errors import InputError
from asrnorm.core.frozen_eval import frozen_eval, no_autocast_cache
from asrnorm.models import Classifier


class Ball(NamedTuple):
    """The images in [0, 1] in which no value is further than `radius` from those in `center`, `(n, 3, h, w)`."""

    center: Tensor
    lowest: Tensor
    highest: Tensor
    radius: float

    @classmethod
    def around(cls, images: Tensor, radius: float) -> "Ball":
        """Return the ball of a radius around images."""
        return cls(images, (images - radius).clamp(0, 1), (images + radius).clamp(0, 1), radius)

    def draw(self, generator: torch.Generator | None = None) -> Tensor:
        """Return images drawn uniformly, with a generator on their device."""
        like = self.center
        return self.at(torch.rand(like.shape, generator=generator, dtype=like.dtype, device=like.device))

    def at(self, noise: Tensor) -> Tensor:
        """Return the images that numbers from [0, 1) stand for."""
        return (self.center + self.radius * (2 * noise.to(self.center) - 1)).clamp(self.lowest, self.highest)


def perturb(
    model: Classifier,
    images: Tensor,
    labels: Tensor,
    *,
    epsilon: float,
    step_size: float,
    steps: int,
    random_start: bool = True,
    generator: torch.Generator | None = None,
    noise: Tensor | None = None,
    keep_worst: bool = True,
) -> Tensor:
    r"""Return images within `epsilon` of the given ones, and within [0, 1], on which the model does worse.

    $x \leftarrow \Pi\big(x + \alpha\,\mathrm{sign}\,\nabla_x \ell(\theta; x, y)\big)$, where $\Pi$ projects onto both.

    The model is attacked in evaluation mode; its parameters, buffers, gradients and mode stay as they are.

    Args:
        model: the network.
        images: float `(n, 3, h, w)` in [0, 1].
        labels: int64 `(n,)`.
        epsilon: radius of the ball; 1/255 is one level of a pixel.
        step_size: $\alpha$.
        steps: number of steps.
        random_start: start at a point drawn uniformly from the ball.
        generator: to draw it with, on the device of the images; torch's global one where `None`.
        noise: numbers from [0, 1) in the shape of the images, used instead of a draw, so that the start of an image
            need not depend on its batch.
        keep_worst: return the image with the highest loss of all on the way, the given one included, so that the loss
            never falls; otherwise the last.
    """
    if epsilon < 0 or step_size < 0 or steps < 0:
        raise InputError(f"epsilon {epsilon}, step_size {step_size} and steps {steps} must not be negative")
    ball = Ball.around(images.detach().to(next(model.parameters()).dtype), epsilon)
    x = images = ball.center
    if random_start:
        x = ball.draw(generator) if noise is None else ball.at(noise)
    with frozen_eval(model):
        with torch.no_grad():
            worst, worst_losses = images, _losses(model, images, labels) if keep_worst else None
        for _ in range(steps):
            losses, gradient = _losses_and_gradient(model, x, labels)
            if worst_losses is not None:
                worst, worst_losses = worse(worst, worst_losses, x, losses)
            x = (x + step_size * gradient.sign()).clamp(ball.lowest, ball.highest)
        if worst_losses is None:
            return x
        with torch.no_grad():
            return worse(worst, worst_losses, x, _losses(model, x, labels))[0]


def worse(images: Tensor, losses: Tensor, others: Tensor, their_losses: Tensor) -> tuple[Tensor, Tensor]:
    """Return from each pair of images the one with the higher loss (the first if they are equal), and its loss."""
    higher = their_losses > losses
    return torch.where(higher[:, None, None, None], others, images), torch.where(higher, their_losses, losses)


def _losses(model: Classifier, images: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(model(images), labels, reduction="none")


def _losses_and_gradient(model: Classifier, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    with torch.enable_grad():
        x = images.detach().requires_grad_()
        losses = _losses(model, x, labels)
        # Gradients of the images alone: backward() would leave gradients in the parameters.
        (gradient,) = torch.autograd.grad(losses.sum(), x)
    return losses.detach(), gradient


class AttackGraph:
    """`perturb` for batches shaped as the first as CUDA graphs: one step is replayed over steps, batches and radii.

    The weights of the model must not change while this is in use.
    """

    def __init__(self, model: Classifier, images: Tensor, labels: Tensor) -> None:
        self._model = model
        self._x, self._worst, self._lowest, self._highest = (images.detach().clone() for _ in range(4))
        self._labels = labels.clone()
        self._losses = torch.zeros(len(images), device=images.device)
        self._step_size = torch.zeros((), dtype=images.dtype, device=images.device)
        best = [self._worst, self._losses]
        with frozen_eval(model), no_autocast_cache():
            self._compare = capture(self._compare_losses, images.device, changed=best, what="the attack")
            self._step = capture(self._take_step, images.device, changed=[self._x, *best], what="the attack")

    def fits(self, images: Tensor) -> bool:
        """Tell whether a batch has the captured size; none has if the capture failed, and then the log says why."""
        return self._compare is not None and self._step is not None and images.shape == self._x.shape

    @torch.no_grad()
    def perturb(self, ball: Ball, start: Tensor, labels: Tensor, *, step_size: float, steps: int) -> Tensor:
        """Return the worst image on the way of each, as `perturb` does, without waiting for the device."""
        assert self._compare is not None
        assert self._step is not None
        self._x.copy_(ball.center)
        self._worst.copy_(ball.center)
        self._lowest.copy_(ball.lowest)
        self._highest.copy_(ball.highest)
        self._labels.copy_(labels)
        self._step_size.fill_(step_size)
        self._losses.fill_(-inf)
        self._compare.replay()
        self._x.copy_(start)
        for _ in range(steps):
            self._step.replay()
        self._compare.replay()
        return self._worst.clone()

    @torch.no_grad()
    def _compare_losses(self) -> None:
        self._keep(_losses(self._model, self._x, self._labels))

    def _take_step(self) -> None:
        losses, gradient = _losses_and_gradient(self._model, self._x, self._labels)
        with torch.no_grad():
            self._keep(losses)
            self._x.copy_((self._x + self._step_size * gradient.sign()).clamp(self._lowest, self._highest))

    def _keep(self, losses: Tensor) -> None:
        worst, highest = worse(self._worst, self._losses, self._x, losses.to(self._losses.dtype))
        self._worst.copy_(worst)
        self._losses.copy_(highest)
