"""Consistency: predictions of several views of an image should agree, on top of any other method.

Hendrycks, Mu, Cubuk, Zoph, Gilmer and Lakshminarayanan, *AugMix: A Simple Data Processing Method to Improve Robustness
and Uncertainty*, ICLR 2020, section 3: the Jensen-Shannon divergence among views.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from asrnorm.core.errors import InputError
from asrnorm.core.randomness import keyed_generator
from asrnorm.data.augment import create_augmentation
from asrnorm.data.augment.named import Spec
from asrnorm.methods.base import METHODS, Batch, Images, Method, is_capturable
from asrnorm.models import Classifier


def _of_over(name: str) -> Any:
    """Return a property that reads and sets the attribute of the wrapped method."""
    return property(
        lambda self: getattr(self.over, name),
        lambda self, value: setattr(self.over, name, value),
        lambda self: delattr(self.over, name),
    )


@METHODS.register("consistency")
class Consistency(Method):
    r"""Consistency: the loss of another method on several views of each image, and how far their predictions differ.

    $\frac1{V'} \sum_{v \le V'} \ell(x_v) + w \, \mathrm{JS}(p_1, \dots, p_V)$ with $p_v$ the prediction of view $v$ and
    $V'$ the views that `supervise` names. The defaults are AugMix's.

    Args:
        over: the other method, a name, or a mapping with a `name` and options.
        views: an augmentation or chain for each view, on top of the config's `augment`.
        weight: $w$.
        supervise: views whose labels are learned, `all` or the `first`.
        label_smoothing: of the cross-entropy; for `over: erm` only, as the next.
        mixup: mix each image, and its label, with another one by a part of Beta(mixup, mixup); all views alike.
        shared: all views have the same draws of the config's `augment`, as in AugMix; otherwise each its own.

    Raises:
        UnknownNameError: no such method, augmentation or option.
        InputError: fewer than two views, a number out of range, or label smoothing over a method with its own loss.

    Example:
        >>> method = Consistency(over={"name": "rsda", "interval": 500}, views=["none", "photometric"], weight=2.0)
        >>> method.is_growing(500)
        True
    """

    unit_range = True

    def __init__(
        self,
        *,
        over: str | Mapping[str, Any] = "erm",
        views: Sequence[Spec] = ("none", "augmix", "augmix"),
        weight: float = 12.0,
        supervise: Literal["all", "first"] = "first",
        label_smoothing: float = 0.0,
        mixup: float = 0.0,
        shared: bool = True,
    ) -> None:
        self.over = _create(over)
        if isinstance(views, str) or not isinstance(views, Sequence) or len(views) < 2:
            raise InputError(f"consistency compares two or more views: views=[none, augmix], not {views!r:.80}")
        if min(weight, mixup) < 0 or not 0 <= label_smoothing < 1:
            raise InputError("consistency: weight and mixup must be at least 0, label_smoothing at least 0 and below 1")
        if supervise not in ("all", "first"):
            raise InputError(f"consistency: supervise must be 'all' or 'first', not {supervise!r}")
        self._has_own_loss = type(self.over).loss is not Method.loss
        if (label_smoothing or mixup) and self._has_own_loss:
            raise InputError("consistency: label_smoothing and mixup are for over: erm, others have their own loss")
        self.views, self.shared, self.weight = tuple(views), shared, weight
        self.supervise, self.label_smoothing, self.mixup = supervise, label_smoothing, mixup
        self._augmentations = [create_augmentation(view) for view in self.views]
        self.capturable = is_capturable(self.over)
        self.checkpoint_after_grow = self.over.checkpoint_after_grow
        self.differentiates_twice = self.over.differentiates_twice

    seed, world, capture, on_progress, total_steps, fetch, trained = map(
        _of_over, ("seed", "world", "capture", "on_progress", "total_steps", "fetch", "trained")
    )
    is_growing, build, is_built, modules = map(_of_over, ("is_growing", "build", "is_built", "modules"))

    def loss(self, model: Classifier, batch: Batch) -> Tensor:
        """Return the mean loss of the supervised views and the weighted divergence of all.

        Without views, as in a loop of one's own, they are made here from the images of the batch.
        """
        views = batch.views or self._make_views(batch)
        targets: list[tuple[Tensor | float, Tensor]] = [(1.0, batch.labels)]
        if self.mixup:
            drawn = self.drawn(batch)
            part, other = drawn["mixup_part"].to(views[0].dtype), batch.own(drawn["mixup_order"]).argsort()
            views = tuple(torch.lerp(view[other], view, part) for view in views)
            targets = [(part, batch.labels), (1 - part, batch.labels[other])]
        logits = model(torch.cat(views)).chunk(len(views))
        count = len(views) if self.supervise == "all" else 1
        if self._has_own_loss:  # computes its own predictions
            losses = [self.over.loss(model, batch._replace(images=view, views=())) for view in views[:count]]
        else:
            losses = [
                share * F.cross_entropy(own, labels, label_smoothing=self.label_smoothing)
                for own in logits[:count]
                for share, labels in targets
            ]
        return torch.stack(losses).sum() / count + self.weight * jensen_shannon(logits)

    def draw(self, step: int, size: int) -> dict[str, Tensor]:
        """Return what the other method and mixup draw; those of the views are part of the batch."""
        drawn = self.over.draw(step, size)
        if self.mixup:
            generator = self.generator(step, "mixup")
            pair = torch._standard_gamma(torch.full((2,), self.mixup, dtype=torch.float64), generator=generator)
            drawn |= {"mixup_part": pair[0] / pair.sum(), "mixup_order": torch.rand(size, generator=generator)}
        return drawn

    def grow(self, model: Classifier, pool: Images, step: int) -> dict[str, float]:
        """Let the other method grow."""
        return self.over.grow(model, pool, step)

    def state_dict(self) -> dict[str, Any]:
        """Return the other method's state."""
        return self.over.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the other method's state."""
        self.over.load_state_dict(state)

    def _make_views(self, batch: Batch) -> tuple[Tensor, ...]:
        size = (batch.images.shape[2], batch.images.shape[3])
        views = []
        for number, augmentation in enumerate(self._augmentations):
            if augmentation.mixes and batch.global_size != len(batch.labels):
                raise InputError(f"view {self.views[number]!r} mixes images, and this is a part of a batch: give views")
            drawn = augmentation.draw(batch.global_size, size, keyed_generator(self.seed, batch.step, "view", number))
            own = {name: batch.own(value).to(batch.images.device) for name, value in drawn.items()}
            views.append(augmentation.apply(batch.images, own))
        return tuple(views)


def _create(over: str | Mapping[str, Any]) -> Method:
    options = dict(over) if isinstance(over, Mapping) else {"name": over}
    name = options.pop("name", None)
    if not isinstance(name, str):
        raise InputError("consistency: over is a method's name, or a mapping with a name and options")
    if name == "consistency":
        raise InputError("consistency over consistency: give one of them all views")
    METHODS.check(name, options)
    return METHODS[name](**options)


def jensen_shannon(logits: Sequence[Tensor]) -> Tensor:
    r"""Return the Jensen-Shannon divergence among predictions, the mean over samples.

    $\frac1V \sum_v \mathrm{KL}(p_v \,\Vert\, m)$ with $p_v$ the softmax of a view's logits `(n, classes)` and
    $m = \frac1V \sum_v p_v$; between 0 and $\log V$.

    Example:
        >>> round(float(jensen_shannon([torch.tensor([[99.0, 0]]), torch.tensor([[0, 99.0]])])), 4)  # log 2
        0.6931
    """
    # In float32 at least, and from logarithms: released code clamps the mean at 1e-7 instead.
    log_p = torch.stack([F.log_softmax(view.to(torch.promote_types(view.dtype, torch.float32)), 1) for view in logits])
    log_mean = log_p.logsumexp(0) - math.log(len(log_p))
    return (log_p.exp() * (log_p - log_mean)).sum(-1).mean()
