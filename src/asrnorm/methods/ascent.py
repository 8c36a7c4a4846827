"""Which images a new domain is grown from: the rules of the three public codes, and the plainest one.

The ascent, captured: one iteration on a batch of fixed size, replayed over iterations and batches.

Gradient ascent on images: the maximization phase that ADA, ME-ADA and M-ADA share.

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
from asrnorm.methods.frozen_eval import casting_anew, held_fixed, mixes_samples
from asrnorm.models import Classifier

Growth = Literal["volpi", "me_ada", "m_ada", "source"]


def choose_rows(
    growth: Growth, *, num_source: int, size: int, round_number: int, count: int, generator: torch.Generator
) -> Tensor:
    """Return the rows of a pool that a round starts from, int64.

    - `volpi`: `count` rows of the current pool, the first ones before anything was grown and drawn without replacement
      later. The original shuffles its array after each round and takes the first rows of it, which comes to the same.
    - `me_ada`: the whole current pool, which doubles.
    - `m_ada`: in round r one r-th of the source's number, of which one r-th are source images and the others grown
      ones, each drawn without replacement.
    - `source`: the source images.

    Args:
        growth: the rule.
        num_source: how many images are the source's; they come first.
        size: of the current pool.
        round_number: counted from one.
        count: of `volpi`.
        generator: on the CPU, so that the rows do not depend on the device of the run.

    Example:
        >>> rows = choose_rows("m_ada", num_source=8, size=16, round_number=2, count=0, generator=torch.Generator())
        >>> len(rows), int((rows < 8).sum())
        (4, 2)
    """
    if growth == "me_ada":
        return torch.arange(size)
    if growth == "source" or (growth == "m_ada" and size == num_source):
        return torch.arange(num_source)
    if growth == "volpi":
        if size == num_source:
            return torch.arange(min(count, size))
        return torch.randperm(size, generator=generator)[:count]
    number = num_source // round_number
    from_source = number // round_number
    source = torch.randperm(num_source, generator=generator)[:from_source]
    grown = torch.randperm(size - num_source, generator=generator)[: number - from_source]
    return torch.cat([source, num_source + grown])


Climb = Callable[[Tensor, Tensor], Tensor]


class AscentGraph:
    """Climbs batches of one size from static memory.

    Args:
        ascent: the settings.
        model: the network of the moment; captured in evaluation mode.
        images: of the first batch, on a CUDA device and in the model's dtype; the others have its shape.
        labels: likewise.
    """

    def __init__(self, ascent: "Ascent", model: Classifier, images: Tensor, labels: Tensor) -> None:
        self._ascent, self._model = ascent, model
        self._x = images.detach().clone().requires_grad_()
        self._labels = labels.clone()
        self._optimizer = ascent.create_optimizer(self._x)
        with held_fixed(model), casting_anew():
            with torch.no_grad():
                self._anchor = model.embed(model.features(self._x)).clone()
            with torch.enable_grad():
                self._start = capture(self._embed, images.device, what="the start of the ascent")
                self._step = capture(self._climb, images.device, changed=[self._x], what="the ascent")

    @property
    def is_captured(self) -> bool:
        """Tell whether there are graphs; where there are none, the log has said why."""
        return self._start is not None and self._step is not None

    def fits(self, images: Tensor) -> bool:
        """Tell whether a batch has the size that was captured."""
        return images.shape == self._x.shape

    @torch.no_grad()
    def climb(self, images: Tensor, labels: Tensor) -> Tensor:
        """Return the images of a batch at the end of the ascent; nothing is waited for."""
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

    def _climb(self) -> None:
        self._ascent.step(self._model, self._x, self._labels, self._anchor, self._optimizer)


Optimizer = Literal["sgd", "adam"]
Distance = Literal["mean", "half"]
Reduction = Literal["batch", "sample"]

_PIXELS = 512 * 32 * 32  # of the images that are climbed at a time on a GPU

Bonus = Callable[[Tensor, Tensor], Tensor]
"""What a method adds to the objective: images, and those they started from, to one value a sample, `(n,)`."""


@dataclass(frozen=True, kw_only=True)
class Ascent:
    r"""Settings of the ascent and the objective it climbs, one value a sample.

    $\ell(\theta; x, y) - \eta\, c_\theta(x, x_0) + w\, H(p_\theta(\cdot|x))$, with $c_\theta$ between the semantic
    vectors of the image and of the one it started from.

    Args:
        penalty: $\eta$, others' $\gamma$.
        entropy_weight: $w$, of the entropy of the prediction; zero leaves it out.
        steps: of the ascent.
        lr: its step size.
        batch: images at a time, which `reduction` divides by. A GPU takes more at once where that changes nothing.
        optimizer: plain gradient ascent, or Adam.
        distance: `mean` squares averaged over the dimensions, as the public codes have it; `half` the squared norm, as
            the papers do.
        reduction: `batch` averages the objective over `batch` images, so that one of them moves by `lr / batch` times
            its own gradient, as in the public codes; `sample` moves each by `lr` times that.
        clip: bring the result back to [0, 1]; once, at the end.
        quantize: return uint8, rounded to the nearest level; clips as well.

    Raises:
        UnknownNameError: a word that is none of the choices.
        InputError: a count or a size that is not positive.

    Example:
        >>> Ascent(steps=0)
        Traceback (most recent call last):
        asrnorm.core.errors.InputError: steps of the ascent must be at least 1, not 0
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
        choices = {"optimizer": Optimizer, "distance": Distance, "reduction": Reduction}
        for name, known in choices.items():
            if getattr(self, name) not in get_args(known):
                raise UnknownNameError(describe_unknown(name, str(getattr(self, name)), get_args(known)))
        for name in ("steps", "batch"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} of the ascent must be at least 1, not {getattr(self, name)}")
        if self.lr <= 0:
            raise InputError(f"step size of the ascent must be positive, not {self.lr}")

    @property
    def _divisor(self) -> int:
        # The nominal batch also for the remainder of a set: an image's way must depend neither on how many it shares
        # its batch with, nor on the number of processes.
        return self.batch if self.reduction == "batch" else 1

    def objective(self, model: Classifier, images: Tensor, labels: Tensor, anchor: Tensor) -> Tensor:
        """Return what the ascent climbs, `(n,)`.

        Args:
            model: in the mode it is to be climbed in.
            images: float `(n, 3, h, w)`.
            labels: int64 `(n,)`.
            anchor: semantic vectors `(n, d)` of the images that the ascent started from.
        """
        embedding = model.embed(model.features(images))
        logits = model.classify(embedding)
        value = F.cross_entropy(logits, labels, reduction="none") - self.penalty * self._cost(embedding, anchor)
        return value + self.entropy_weight * entropy(logits) if self.entropy_weight else value

    def _cost(self, embedding: Tensor, anchor: Tensor) -> Tensor:
        square = (embedding - anchor).square()
        return square.mean(1) if self.distance == "mean" else square.sum(1) / 2

    def climb(self, model: Classifier, images: Tensor, labels: Tensor, bonus: Bonus | None = None) -> Tensor:
        """Return the images at the end of the ascent: in the model's dtype, or uint8 where `quantize` is set.

        The model is climbed in evaluation mode; its parameters, buffers, gradients and mode stay as they are.

        Args:
            model: the network of the moment.
            images: float `(n, 3, h, w)` in [0, 1]; any number, they are taken `piece` at a time.
            labels: int64 `(n,)`.
            bonus: added to the objective.
        """
        return self._finish(self._climb_all(model, images, labels, bonus))

    def _climb_all(self, model: Classifier, images: Tensor, labels: Tensor, bonus: Bonus | None) -> Tensor:
        images = images.detach().to(next(model.parameters()).dtype)
        with held_fixed(model), torch.enable_grad(), casting_anew():
            size = self.piece(model, images)
            parts = zip(images.split(size), labels.split(size), strict=True)
            climbed = [self._climb_batch(model, part, own, bonus) for part, own in parts if len(own)]
        return torch.cat(climbed) if climbed else images

    def piece(self, model: Classifier, images: Tensor) -> int:
        """Return how many images are climbed at a time: `batch`, or what fills a GPU where images do not meet.

        Args:
            model: one whose norms look at the batch in evaluation too is given `batch` images.
            images: any of them, `(n, 3, h, w)`, on their device.
        """
        if images.device.type == "cpu" or mixes_samples(model):
            return self.batch
        return max(self.batch, _PIXELS // (images.shape[2] * images.shape[3]))

    def climber(
        self, model: Classifier, bonus: Bonus | None = None, *, captured: bool = False, lost: Tensor | None = None
    ) -> Climb:
        """Return `climb` for many batches, of images and labels; captured, those as large as the first are replayed.

        Args:
            model: as it is; its weights must not change as long as the climber is used.
            bonus: as in `climb`; an objective with one is not captured.
            captured: the images lie on a CUDA device.
            lost: a flag on the device of the images, set once an ascent ends at what is not finite: in bytes that
                cannot be seen any more.
        """
        graphs: list[AscentGraph] = []

        def reach(images: Tensor, labels: Tensor) -> Tensor:
            if captured and bonus is None and 0 < len(images) <= self.piece(model, images):
                images = images.detach().to(next(model.parameters()).dtype)
                if not graphs:
                    graphs.append(AscentGraph(self, model, images, labels))
                if graphs[0].is_captured and graphs[0].fits(images):
                    return graphs[0].climb(images, labels)
            return self._climb_all(model, images, labels, bonus)

        def climb(images: Tensor, labels: Tensor) -> Tensor:
            reached = reach(images, labels)
            if lost is not None:
                lost.logical_or_(~reached.isfinite().all())
            return self._finish(reached)

        return climb

    def _climb_batch(self, model: Classifier, images: Tensor, labels: Tensor, bonus: Bonus | None) -> Tensor:
        with torch.no_grad():
            anchor = model.embed(model.features(images))
        x = images.clone().requires_grad_()
        optimizer = self.create_optimizer(x)
        for _ in range(self.steps):
            self.step(model, x, labels, anchor, optimizer, None if bonus is None else bonus(x, images))
        return x.detach()

    def create_optimizer(self, x: Tensor) -> torch.optim.Optimizer:
        """Return what moves the images."""
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
        """Move images once, in place.

        Args:
            model: in evaluation mode.
            x: the images, of which `optimizer` knows.
            labels: int64 `(n,)`.
            anchor: semantic vectors of the images that the ascent started from.
            optimizer: from `create_optimizer`.
            reward: a function of the images, `(n,)`, added to the objective.
        """
        value = self.objective(model, x, labels, anchor)
        if reward is not None:
            value = value + reward
        # With respect to the images alone: a backward() would leave gradients in the parameters.
        (x.grad,) = torch.autograd.grad(value.sum() / self._divisor, x)
        optimizer.step()

    def _finish(self, images: Tensor) -> Tensor:
        if self.quantize:
            return images.clamp(0, 1).mul(255).round().to(torch.uint8)
        return images.clamp(0, 1) if self.clip else images


def entropy(logits: Tensor) -> Tensor:
    """Return the entropy of each prediction, `(n,)`, in nats.

    Example:
        >>> round(entropy(torch.zeros(1, 10)).item(), 4)
        2.3026
    """
    log_probability = F.log_softmax(logits, dim=1)
    return -(log_probability.exp() * log_probability).sum(1)
