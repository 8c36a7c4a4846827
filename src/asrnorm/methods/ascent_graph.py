"""The ascent, captured: one iteration on a batch of fixed size, replayed over iterations and batches."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from asrnorm.graph import capture
from asrnorm.methods.mode import casting_anew, held_fixed
from asrnorm.models import Classifier

if TYPE_CHECKING:
    from asrnorm.methods.ascent import Ascent

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
