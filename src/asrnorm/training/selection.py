"""Which weights of a run are reported: the last, or the best by a measure taken during training."""

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from asrnorm.core.config import Fold, RunConfig, Selection
from asrnorm.core.distributed import World
from asrnorm.core.errors import InputError
from asrnorm.data import FileSet, ImageSet, Suite
from asrnorm.data.image_set import split_stratified
from asrnorm.data.suites.base import Data

HELD_OUT_IMAGES, HELD_OUT_SHARE = 5_000, 0.1
_SHIFTED_IMAGES = 5_000  # at most, for `shifted-val`
_HOLD_OUT_SEED = 0  # not the run's: all seeds of a table select by the same images, as with a published split

Measure = Callable[[nn.Module], float]


class Selector:
    """Keeps the best weights so far by `measure`, where higher is better; of equally good ones the first or last."""

    def __init__(self, measure: Measure, ties: Literal["first", "last"] = "first") -> None:
        self._measure = measure
        self._ties = ties
        self.step = 0
        self.score = -1.0
        self.weights: dict[str, Tensor] = {}

    def consider(self, model: nn.Module, step: int) -> float:
        """Measure the model after `step` updates, and keep its weights if it is the best so far."""
        score = self._measure(model)
        if score > self.score or (score == self.score and self._ties == "last"):
            self.step, self.score = step, score
            self.weights = {name: value.detach().clone() for name, value in model.state_dict().items()}
        return score

    def state_dict(self) -> dict[str, Any]:
        """Return step, score and weights of the best."""
        return {"step": self.step, "score": self.score, "weights": self.weights}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        self.step, self.score, self.weights = state["step"], state["score"], state["weights"]


def needs_hold_out(config: RunConfig, suite: Suite) -> bool:
    """Tell whether images to select by must be held out from the training images: the suite has no others."""
    return config.selection in ("source-val", "shifted-val") and config.evaluate_every > 0 and suite.validation is None


def hold_out(data: Data) -> tuple[Data, Data]:
    """Split training images into those kept and 5,000 held out, or a tenth if that is fewer, balanced over classes."""
    if len(data) < 2:
        raise InputError("one training image leaves none to choose by; use selection=last")
    share = min(HELD_OUT_IMAGES / len(data), HELD_OUT_SHARE)
    keys = [str(row) for row in range(len(data))]
    held, kept = split_stratified(keys, data.labels.tolist(), [share], seed=_HOLD_OUT_SEED)
    if not len(held):
        raise InputError("the classes have too few training images to hold one out to choose by; use selection=last")
    return data.take(kept), data.take(held)


def score_settings(config: RunConfig, suite: Suite, device: torch.device, world: World) -> dict[str, Any]:
    """Return the arguments that every scoring of a run shares."""
    from asrnorm.evaluation.score import evaluation_size

    return {
        "batch_size": config.evaluate_batch,
        "device": device,
        "precision": config.precision,
        "world": world,
        "resize": evaluation_size(suite, config.augment),
    }


def create_measure(
    rule: Selection, suite: Suite, images: Data | None, config: RunConfig, device: torch.device, world: World
) -> Measure:
    """Return the measure of a rule on held-out images of the source.

    `source-val` is accuracy on these images; `shifted-val` the mean accuracy on them under synthetic shifts that
    neither training nor any target uses, with a fold under those of the other half of the bank; `oracle` the mean
    accuracy on the targets, which uses the test data.
    """
    from asrnorm.evaluation.score import score, score_suite, subsample

    settings = score_settings(config, suite, device, world)
    if rule == "oracle":
        if not suite.target_names:
            raise InputError(f"suite {suite.name!r} has no target for selection=oracle")
        limit = config.evaluate_limit
        return lambda model: float(score_suite(model, suite, limit=limit, **settings).average_accuracy)
    if images is None:
        raise InputError(f"suite {suite.name!r} has no validation images for selection={rule}")
    images = subsample(images, config.evaluate_limit)
    domains = _shift(images, suite.name, config.fold, device) if rule == "shifted-val" else {"validation": images}
    return lambda model: (
        sum(score(model, data, name=name, **settings).accuracy for name, data in domains.items()) / len(domains)
    )


def create_loss_measure(suite: Suite, config: RunConfig, device: torch.device, world: World) -> Measure:
    """Return the measure of the mean cross-entropy on the source's validation images; raise if there are none."""
    from asrnorm.evaluation.score import score, subsample

    if suite.validation is None:
        raise InputError(f"average=swad needs validation images, and suite {suite.name!r} has none: use ema or swa")
    images = subsample(suite.validation, config.evaluate_limit)
    settings = score_settings(config, suite, device, world)
    return lambda model: float(score(model, images, name="validation", **settings).nll)


def validate(model: nn.Module, suite: Suite, config: RunConfig, device: torch.device, world: World) -> dict[str, float]:
    """Return the accuracy on validation images of the source, plain and shifted; empty if there are none.

    Shifted only for suites in `SELECTION_SHIFTS`, as all of this package are: which shifts the targets of a user's own
    suite have is unknown.
    """
    from asrnorm.evaluation.shift import SELECTION_SHIFTS

    if suite.validation is None:
        return {}
    rules: tuple[Selection, ...] = ("source-val", "shifted-val")
    if suite.name not in SELECTION_SHIFTS:
        rules = ("source-val",)
    return {rule: create_measure(rule, suite, suite.validation, config, device, world)(model) for rule in rules}


def _shift(data: Data, suite_name: str, fold: Fold, device: torch.device) -> dict[str, Data]:
    from asrnorm.evaluation.score import iterate_batches, subsample
    from asrnorm.evaluation.shift import shift_images

    few = subsample(data, _SHIFTED_IMAGES)  # the same number from files and from memory: the machine must not matter
    if isinstance(few, FileSet):
        _, images, _ = next(iterate_batches(few, len(few)))
        few = ImageSet(images, few.labels)
    shifted = shift_images(np.asarray(few.images), suite_name, _HOLD_OUT_SEED, fold=fold, device=device)
    return {name: ImageSet(changed, few.labels) for name, changed in shifted.items()}
