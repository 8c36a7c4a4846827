"""A model called on batch after batch of one shape: on a GPU, as a CUDA graph once there are enough of them."""

import torch
from torch import Tensor

from asrnorm.evaluation.bundle import keeping_apart
from asrnorm.evaluation.inference import Inference
from asrnorm.graph import Graph, capture

_ENOUGH = 8  # calls of one shape after which a graph, which takes three more to make, pays for itself


class Forward:
    """Gives the logits of a model, faster from the ninth batch of a shape on.

    Called one by one, the kernels of a deep network wait for the host. The model may be trained further in between, in
    place; it must be in evaluation mode whenever it is called.

    Args:
        inference: the model with the form of its input.
    """

    def __init__(self, inference: Inference) -> None:
        self._inference = inference
        self._calls = 0
        self._batches = 1
        self._images: Tensor | None = None
        self._graph: Graph[Tensor] | None = None
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
            if self._images is None or batches != self._batches or not _alike(self._images, images):
                self._images, self._graph, self._calls, self._batches = images, None, 0, batches
            self._calls += 1
            if self._graph is None and self._calls > _ENOUGH:
                self._capture(images)
            if self._graph is None:
                return self._inference.logits(images)
            self._images.copy_(images)
            self._graph.replay()
            return self._graph.output.clone()

    def _capture(self, images: Tensor) -> None:
        held = self._images = images.clone()
        self._graph = capture(lambda: self._inference.logits(held), images.device, what="the evaluation")
        self._is_refused = self._graph is None


def can_be_captured(inference: Inference) -> bool:
    """Tell whether a graph may stand for calls of a model: it runs no Python again, so none of a user's hooks."""
    hooks = (module._forward_hooks or module._forward_pre_hooks for module in inference.model.modules())
    return inference.device.type == "cuda" and not any(hooks)


def _alike(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and one.stride() == other.stride() and one.dtype == other.dtype
