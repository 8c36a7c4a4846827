"""A model called on batch after batch, of few shapes: on a GPU, as a CUDA graph for each that is seen often enough."""

from dataclasses import dataclass

import torch
from torch import Tensor

from asrnorm.evaluation.bundle import keeping_apart
from asrnorm.evaluation.inference import Inference
from asrnorm.graph import Graph, capture

_ENOUGH = 8  # calls of one shape after which a graph, which takes three more to make, pays for itself
_SHAPES = 4  # that are remembered: a domain's batches have up to three, and every graph has memory of its own


@dataclass(slots=True)
class _Shape:
    """Input of one shape: how often it came, and the graph that stands for further calls."""

    calls: int = 0
    images: Tensor | None = None
    graph: Graph[Tensor] | None = None


class Forward:
    """Gives the logits of a model, faster from the ninth batch of a shape on.

    Called one by one, the kernels of a deep network wait for the host. The model may be trained further in between, in
    place; it must be in evaluation mode whenever it is called.

    Args:
        inference: the model with the form of its input.
    """

    def __init__(self, inference: Inference) -> None:
        self._inference = inference
        self._shapes: dict[tuple[object, ...], _Shape] = {}
        self._is_refused = not can_be_captured(inference)

    def __call__(self, images: Tensor, batches: int = 1) -> Tensor:
        """Return the logits of images as `Inference.to_input` gives them, without gradients.

        Args:
            images: one batch, or several of one size.
            batches: how many; a `bn_test` keeps them apart.
        """
        with keeping_apart(self._inference.model, batches):
            return self._logits(images, batches)

    def _logits(self, images: Tensor, batches: int) -> Tensor:
        if self._is_refused:
            with torch.inference_mode():
                return self._inference.logits(images)
        with torch.no_grad():
            shape = self._remember(images.shape, images.stride(), images.dtype, batches)
            shape.calls += 1
            if shape.graph is None and shape.calls > _ENOUGH:
                self._capture(shape, images)
            if shape.graph is None or shape.images is None:
                return self._inference.logits(images)
            shape.images.copy_(images)
            shape.graph.replay()
            return shape.graph.output.clone()

    def _remember(self, *form: object) -> _Shape:
        shape = self._shapes[form] = self._shapes.pop(form, _Shape())  # to the end: the first goes first
        if len(self._shapes) > _SHAPES:
            del self._shapes[next(iter(self._shapes))]
        return shape

    def _capture(self, shape: _Shape, images: Tensor) -> None:
        held = shape.images = images.clone()
        shape.graph = capture(lambda: self._inference.logits(held), images.device, what="the evaluation")
        self._is_refused = shape.graph is None


def can_be_captured(inference: Inference) -> bool:
    """Tell whether a graph may stand for calls of a model: it runs no Python again, so none of a user's hooks."""
    hooks = (module._forward_hooks or module._forward_pre_hooks for module in inference.model.modules())
    return inference.device.type == "cuda" and not any(hooks)
