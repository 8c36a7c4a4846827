"""Methods in a training loop of the user's own: plain batches, counted steps and one-line errors."""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from asrnorm.core.errors import InputError, InputTypeError
from asrnorm.methods.base import Batch, Images, Method, require_built
from asrnorm.models.base import PARTS, Classifier

logger = logging.getLogger("asrnorm")

_STEPS = "own_steps"


class OwnLoop:
    """Stands between a user's loop and the hooks of one method, which see a checked `Batch` and nothing else.

    It replaces `loss`, `grow`, `state_dict` and `load_state_dict` on that object and calls those of its class. `loss`
    then also takes a plain pair `(images, labels)` and counts its steps; the count is part of the method's state; an
    error names the parts that a network lacks. `create_method` adds this to every method it returns. The trainer, which
    makes its own batches and checks its networks, calls the hooks directly.
    """

    def __init__(self, method: Method) -> None:
        self._method = method
        self._steps = 0
        self._has_grown = False
        self._is_range_checked = not method.unit_range
        for hook in (self.loss, self.grow, self.state_dict, self.load_state_dict):
            setattr(method, hook.__name__, hook)

    def loss(self, model: Classifier, batch: Any) -> Tensor:
        """Return the method's loss of a `Batch`, or of a pair of images in [0, 1] and labels: the next step."""
        require_built(self._method)
        with self._naming_parts(model):
            return type(self._method).loss(self._method, model, self._as_batch(batch))

    def grow(self, model: Classifier, pool: Images, step: int) -> dict[str, float]:
        """Run the method's grow phase."""
        self._has_grown = True
        with self._naming_parts(model):
            return type(self._method).grow(self._method, model, pool, step)

    def state_dict(self) -> dict[str, Any]:
        """Return the method's state and the number of counted steps, if any."""
        state = type(self._method).state_dict(self._method)
        return {_STEPS: self._steps, **state} if self._steps else state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        own = {name: value for name, value in state.items() if name != _STEPS}
        type(self._method).load_state_dict(self._method, own)
        self._steps = state.get(_STEPS, 0)

    def _as_batch(self, batch: Any) -> Batch:
        if isinstance(batch, Batch):
            self._check_range(batch.images)
            return batch
        first = batch[0] if isinstance(batch, list | tuple) and batch else None
        if isinstance(first, Tensor) and not first.is_floating_point():
            raise InputTypeError(f"images must be floating-point, not {first.dtype}; pass (images / 255, labels)")
        if not isinstance(batch, list | tuple) or len(batch) != 2 or not all(isinstance(x, Tensor) for x in batch):
            length = f" of {len(batch)}" if isinstance(batch, list | tuple | Mapping) else ""
            raise InputTypeError(
                f"a batch is a pair of tensors, images and labels, or a Batch, not {type(batch).__name__}{length}"
            )
        images, labels = batch
        if images.is_cuda and torch.cuda.is_current_stream_capturing() and self._method.draw(0, len(labels)):
            raise InputError(
                "a captured step counts no steps; pass asrnorm.Batch(images, labels, drawn=...) with the tensors of "
                "method.draw(step, len(labels)), on the GPU"
            )
        self._check_range(images)
        self._warn_if_never_grown()
        self._steps += 1
        return Batch(images, labels, self._steps - 1)

    def _check_range(self, images: Tensor) -> None:
        if self._is_range_checked or not images.numel():
            return
        if not bool(images.min() >= 0 and images.max() <= 1):
            raise InputError(
                f"{type(self._method).__name__} works on images in [0, 1], these are from {images.min():.3g} to "
                f"{images.max():.3g}; let the model normalize them: asrnorm.models.Normalize is a layer for it"
            )
        self._is_range_checked = True  # the first images are enough

    def _warn_if_never_grown(self) -> None:
        if self._has_grown or not self._method.is_growing(self._steps):
            return
        self._has_grown = True  # one warning is enough
        logger.warning(
            "%s grows before step %d, but grow was not called, so it trains as ERM; call it before each update: if "
            "method.is_growing(step): method.grow(model, pool, step)",
            type(self._method).__name__,
            self._steps,
        )

    @contextmanager
    def _naming_parts(self, model: nn.Module) -> Iterator[None]:
        """Turn the AttributeError for a missing part of the network into one line."""
        try:
            yield
        except AttributeError as error:
            lacking = [part for part in PARTS if not hasattr(model, part)]
            if error.name not in lacking:
                raise
            raise InputError(
                f"{type(self._method).__name__} looks inside the network, and {type(model).__name__} has no "
                f"{', '.join(lacking)}; give it features(x), embed(maps) and classify(embedding)"
            ) from error
