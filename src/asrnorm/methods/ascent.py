"""Gradient ascent on images: the maximization phase of ADA, ME-ADA and M-ADA.

Volpi et al., 2018; appendix B of the ASR-Norm paper.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from asrnorm.core.cuda_graph import capture
from asrnorm.core.errors import InputError, UnknownNameError, describe_unknown
from asrnorm.core.frozen_eval import frozen_eval, mixes_samples, no_autocast_cache
from asrnorm.data.augment.base import to_bytes
from asrnorm.models import Classifier

Optimizer = Literal["sgd", "adam"]
Distance = Literal["mean", "half"]
Reduction = Literal["batch", "sample"]

Bonus = Callable[[Tensor, Tensor], Tensor]
"""What a method adds to the objective: images, and those the ascent started from, to one value per sample, `(n,)`."""

AscendBatch = Callable[[Tensor, Tensor], Tensor]
"""Takes images and labels, returns the images at the end of the ascent."""

_PIXELS = 512 * 32 * 32  # in the images of one batch on a GPU


@dataclass(frozen=True, kw_only=True)
class Ascent:
    r"""Objective and settings of the ascent; every image has its own objective.

    $\ell(\theta; x, y) - \eta\, c_\theta(x, x_0) + w\, H(p_\theta(\cdot|x))$, with $c_\theta$ the distance between the
    semantic vectors of the image and of the one it started from.

    Args:
        penalty: $\eta$, others' $\gamma$.
        entropy_weight: $w$, the weight of the prediction's entropy; zero leaves the term out.
        steps: number of steps.
        lr: step size.
        batch: images per batch, by which `reduction` divides. A GPU takes larger batches where that changes nothing.
        optimizer: plain gradient ascent, or Adam.
        distance: `mean` averages the squares over the dimensions, as the public codes do; `half` is half the squared
            norm, as in the papers.
        reduction: `batch` averages the objective over `batch` images, so that each moves by `lr / batch` times its own
            gradient, as in the public codes; `sample` moves each by `lr` times that.
        clip: clamp the result to [0, 1], once, at the end.
        quantize: return uint8, rounded to the nearest level; clamps as well.
    """

    penalty: float = 1.0
    entropy_weight: float = 0.0
    steps: int = 15
    lr: float = 1.0
    batch: int = 32
    optimizer: Optimizer = "sgd"
    distance: Distance = "mean"
    reduction: Reduction = "batch"
    clip: bool = False
    quantize: bool = False

    def __post_init__(self) -> None:
        check_choice("optimizer", self.optimizer, Optimizer)
        check_choice("distance", self.distance, Distance)
        check_choice("reduction", self.reduction, Reduction)
        for name in ("steps", "batch"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} of the ascent must be at least 1, not {getattr(self, name)}")
        if self.lr <= 0:
            raise InputError(f"step size of the ascent must be positive, not {self.lr}")

    def ascend(self, model: Classifier, images: Tensor, labels: Tensor, bonus: Bonus | None = None) -> Tensor:
        """Return any number of images in [0, 1] at the end of the ascent: in the model's dtype, or uint8 if `quantize`.

        The model is used in evaluation mode; its parameters, buffers, gradients and mode stay as they are.
        """
        return self._finish(self._ascend(model, images, labels, bonus))

    def prepare(
        self, model: Classifier, bonus: Bonus | None = None, *, captured: bool = False, diverged: Tensor | None = None
    ) -> AscendBatch:
        """Return `ascend` as a function of images and labels, for many batches of one model with fixed weights.

        If `captured`, and there is no bonus, the ascent of batches as large as the first is replayed from a CUDA graph.
        `diverged`, a flag on the device, is set if the result of an ascent is not finite, which bytes would hide.
        """
        graphs: list[AscentGraph] = []

        def ascend(images: Tensor, labels: Tensor) -> Tensor:
            if captured and bonus is None and 0 < len(images) <= self.chunk_size(model, images):
                images = images.detach().to(next(model.parameters()).dtype)
                if not graphs:
                    graphs.append(AscentGraph(self, model, images, labels))
                if graphs[0].fits(images):
                    return graphs[0].ascend(images, labels)
            return self._ascend(model, images, labels, bonus)

        def ascend_and_finish(images: Tensor, labels: Tensor) -> Tensor:
            result = ascend(images, labels)
            if diverged is not None:
                diverged.logical_or_(~result.isfinite().all())
            return self._finish(result)

        return ascend_and_finish

    def chunk_size(self, model: Classifier, images: Tensor) -> int:
        """Return the number of images in a batch: `batch`, or enough to fill a GPU if images do not affect each other.

        They do if a norm uses batch statistics in evaluation mode.
        """
        if images.device.type == "cpu" or mixes_samples(model):
            return self.batch
        return max(self.batch, _PIXELS // (images.shape[2] * images.shape[3]))

    def objective(self, model: Classifier, images: Tensor, labels: Tensor, anchor: Tensor) -> Tensor:
        """Return the objective of each image, `(n,)`; `anchor`, `(n, d)`, is the embedding at the start."""
        embedding = model.embed(model.features(images))
        logits = model.classify(embedding)
        square = (embedding - anchor).square()
        distance = square.mean(1) if self.distance == "mean" else square.sum(1) / 2
        value = F.cross_entropy(logits, labels, reduction="none") - self.penalty * distance
        return value + self.entropy_weight * entropy(logits) if self.entropy_weight else value

    def create_optimizer(self, x: Tensor) -> torch.optim.Optimizer:
        """Return the optimizer that moves the images."""
        if self.optimizer == "adam":
            return torch.optim.Adam([x], lr=self.lr, maximize=True, capturable=x.device.type == "cuda")
        return torch.optim.SGD([x], lr=self.lr, maximize=True)

    def step(
        self,
        model: Classifier,
        x: Tensor,
        labels: Tensor,
        anchor: Tensor,
        optimizer: torch.optim.Optimizer,
        reward: Tensor | None = None,
    ) -> None:
        """Move `x`, the parameter of `optimizer`, by one step; `reward`, `(n,)`, is added to the objective."""
        value = self.objective(model, x, labels, anchor)
        if reward is not None:
            value = value + reward
        # The nominal batch size also for the last, smaller batch: the path of an image must depend neither on how many
        # images share its batch, nor on the number of processes.
        divisor = self.batch if self.reduction == "batch" else 1
        # Gradients of the images alone: backward() would leave gradients in the parameters.
        (x.grad,) = torch.autograd.grad(value.sum() / divisor, x)
        optimizer.step()

    def _ascend(self, model: Classifier, images: Tensor, labels: Tensor, bonus: Bonus | None) -> Tensor:
        images = images.detach().to(next(model.parameters()).dtype)
        with frozen_eval(model), torch.enable_grad(), no_autocast_cache():
            size = self.chunk_size(model, images)
            chunks = zip(images.split(size), labels.split(size), strict=True)
            results = [self._ascend_batch(model, chunk, own, bonus) for chunk, own in chunks if len(own)]
        return torch.cat(results) if results else images

    def _ascend_batch(self, model: Classifier, images: Tensor, labels: Tensor, bonus: Bonus | None) -> Tensor:
        with torch.no_grad():
            anchor = model.embed(model.features(images))
        x = images.clone().requires_grad_()
        optimizer = self.create_optimizer(x)
        for _ in range(self.steps):
            self.step(model, x, labels, anchor, optimizer, None if bonus is None else bonus(x, images))
        return x.detach()

    def _finish(self, images: Tensor) -> Tensor:
        if self.quantize:
            return to_bytes(images)
        return images.clamp(0, 1) if self.clip else images


class AscentGraph:
    """The ascent of batches shaped as the first as two CUDA graphs: the anchor, and one step, which is replayed."""

    def __init__(self, ascent: Ascent, model: Classifier, images: Tensor, labels: Tensor) -> None:
        self._ascent, self._model = ascent, model
        self._x = images.detach().clone().requires_grad_()
        self._labels = labels.clone()
        self._optimizer = ascent.create_optimizer(self._x)
        with frozen_eval(model), no_autocast_cache():
            with torch.no_grad():
                self._anchor = model.embed(model.features(self._x)).clone()
            with torch.enable_grad():
                self._start = capture(self._embed, images.device, what="the start of the ascent")
                self._step = capture(self._take_step, images.device, changed=[self._x], what="the ascent")

    def fits(self, images: Tensor) -> bool:
        """Tell whether a batch has the captured size; none has if the capture failed, and then the log says why."""
        return self._start is not None and self._step is not None and images.shape == self._x.shape

    @torch.no_grad()
    def ascend(self, images: Tensor, labels: Tensor) -> Tensor:
        """Return the images of a batch at the end of the ascent, without waiting for the device."""
        assert self._start is not None
        assert self._step is not None
        self._x.copy_(images)
        self._labels.copy_(labels)
        for value in self._optimizer.state[self._x].values():
            if isinstance(value, Tensor):
                value.zero_()
        self._start.replay()
        for _ in range(self._ascent.steps):
            self._step.replay()
        return self._x.detach().clone()

    @torch.no_grad()
    def _embed(self) -> None:
        self._anchor.copy_(self._model.embed(self._model.features(self._x)))

    def _take_step(self) -> None:
        self._ascent.step(self._model, self._x, self._labels, self._anchor, self._optimizer)


def entropy(logits: Tensor) -> Tensor:
    """Return the entropy of each prediction, `(n,)`, in nats."""
    log_probability = F.log_softmax(logits, dim=1)
    return -(log_probability.exp() * log_probability).sum(1)


def check_choice(name: str, value: str, choices: object) -> None:
    """Raise if a word is none of the choices of a `Literal`."""
    if value not in get_args(choices):
        raise UnknownNameError(describe_unknown(name, str(value), get_args(choices)))
