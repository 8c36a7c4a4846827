"""How images reach a model that is evaluated: device, size, range and precision, the same for every measurement.

Many small batches in one call, for networks whose norms look at the batch.

Called batch by batch, BN-Test at a batch of 16 leaves a GPU waiting for the host.

A model called on batch after batch, of few shapes: on a GPU, as a CUDA graph for each that is seen often enough.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Self, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from asrnorm.core.cuda_graph import Graph, capture
from asrnorm.core.errors import InputError, UnknownNameError, describe_unknown
from asrnorm.core.precision import Precision, autocast, products, weight_dtype
from asrnorm.data.augment import resize, to_float
from asrnorm.methods.frozen_eval import looks_at_batch


@dataclass(frozen=True)
class Inference:
    """A model with the form of its input; made by `Inference.of`.

    Attributes:
        model: takes float images `(n, 3, h, w)` in [0, 1], returns logits.
        device: where it lies.
        dtype: of its parameters, and so of its input.
        precision: `bfloat16` computes under autocast, `tf32` in products of fewer digits; the others are what `dtype`
            says.
        size: height and width to which images are resized; `None` leaves them.

    Example:
        >>> inference = Inference.of(nn.Sequential(nn.Flatten(), nn.Linear(12, 5)))
        >>> inference.logits(inference.to_input(np.zeros((4, 2, 2, 3), np.uint8))).shape
        torch.Size([4, 5])
    """

    model: nn.Module
    device: torch.device
    dtype: torch.dtype
    precision: Precision
    size: tuple[int, int] | None

    @classmethod
    def of(
        cls,
        model: nn.Module,
        *,
        device: torch.device | str | None = None,
        precision: Precision = "float32",
        size: tuple[int, int] | None = None,
    ) -> Self:
        """Look at the model and settle what is not given.

        Args:
            model: lies on `device` already.
            device: that of the model's parameters where `None`.
            precision: all but `bfloat16` must be the model's own; `tf32` is for a model in float32.
            size: see the class.

        Raises:
            UnknownNameError: no such precision.
            InputError: a precision that the model does not have.
        """
        if precision not in get_args(Precision):
            raise UnknownNameError(describe_unknown("precision", precision, get_args(Precision)))
        parameter = next((p for p in model.parameters() if p.is_floating_point()), None)
        wanted = weight_dtype(precision)
        dtype = wanted if parameter is None else parameter.dtype
        if precision != "bfloat16" and dtype != wanted:
            name = str(dtype).removeprefix("torch.")
            raise InputError(f"cannot evaluate a {name} model in {precision}; convert it: model.to({wanted})")
        if device is None:
            device = "cpu" if parameter is None else parameter.device
        return cls(model, torch.device(device), dtype, precision, size)

    def to_input(self, images: NDArray[np.uint8]) -> Tensor:
        """Return uint8 images `(n, h, w, 3)` as the model takes them; they travel to the device as uint8."""
        if images.ndim != 4 or images.shape[3] != 3:
            hint = "; for a single image add the batch axis with images[None]" if images.ndim == 3 else ""
            raise InputError(f"expected images (n, h, w, 3), got shape {images.shape}{hint}")
        images_nhwc = torch.from_numpy(np.array(images, order="C"))  # a copy: torch takes no read-only memory
        if self.device.type == "cuda":
            images_nhwc = images_nhwc.pin_memory()
        images_nchw = images_nhwc.to(self.device, non_blocking=True).permute(0, 3, 1, 2)
        if self.size is not None and images_nchw.shape[2:] != self.size:
            images_nchw = resize(images_nchw, self.size)
        return to_float(images_nchw, exact=True).to(self.dtype)

    def logits(self, images: Tensor) -> Tensor:
        """Return the model's logits in its precision; gradients are the caller's business.

        Raises:
            InputError: the model returns anything else.
        """
        with self.autocast():
            logits = self.model(images)
        if not isinstance(logits, Tensor) or logits.ndim != 2:
            what = f"shape {tuple(logits.shape)}" if isinstance(logits, Tensor) else type(logits).__name__
            raise InputError(
                f"{type(self.model).__name__} returns {what}, not logits (n, num_classes); wrap it in one that does"
            )
        return logits

    @contextmanager
    def autocast(self) -> Iterator[None]:
        """Return the context in which the model is to be called."""
        with products(self.precision, self.device), autocast(self.precision, self.device):
            yield


_PIXELS = 512 * 32 * 32  # of the images in one call
_DEVICES = ("cuda",)  # a CPU gains nothing by it


def count_together(inference: Inference, batch_size: int, image_size: tuple[int, int]) -> int:
    """Return how many batches a model, in evaluation mode, is to be given at once.

    More than one only where every layer that looks at the batch can keep several apart, as `bn_test` does: one with an
    attribute `batches`.

    Args:
        inference: the model.
        batch_size: images in a batch.
        image_size: their height and width.
    """
    mixing = [module for module in inference.model.modules() if looks_at_batch(module)]
    if inference.device.type not in _DEVICES or not mixing:
        return 1
    if not all(hasattr(module, "batches") for module in mixing):
        return 1
    height, width = image_size
    return max(1, _PIXELS // (batch_size * height * width))


@contextmanager
def keeping_apart(model: nn.Module, batches: int) -> Iterator[None]:
    """Let every layer that can take its input for so many batches, within the block.

    Example:
        >>> from asrnorm.norms import BatchNormTest
        >>> layer = BatchNormTest(3).eval()
        >>> with keeping_apart(layer, 2):
        ...     layer.batches
        2
        >>> layer.batches
        1
    """
    layers = [module for module in model.modules() if looks_at_batch(module)] if batches > 1 else []
    for layer in layers:
        setattr(layer, "batches", batches)  # noqa: B010
    try:
        yield
    finally:
        for layer in layers:
            setattr(layer, "batches", 1)  # noqa: B010


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
