"""Calls of a model under evaluation: its input, its precision, several batches at once, and replayed CUDA graphs."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Self, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from asrnorm.core.cuda_graph import Graph, capture
from asrnorm.core.device_memory import InParts, find_fitting
from asrnorm.core.errors import DeviceMemoryError, InputError, UnknownNameError, describe_unknown
from asrnorm.core.frozen_eval import looks_at_batch
from asrnorm.core.precision import Precision, autocast, products, weight_dtype
from asrnorm.data.augment import resize, to_float

_MIN_CALLS = 8  # of one shape before it is captured; a capture costs about three calls
_MAX_SHAPES = 4  # a domain has batches of up to three shapes, and every graph has its own memory
_MAX_PIXELS = 512 * 32 * 32  # of the images in one call with several batches
_BUNDLE_DEVICES = ("cuda",)  # bundles are no faster on a CPU


@dataclass(frozen=True)
class Inference:
    """A model with the format of its input; created by `Inference.of`."""

    model: nn.Module  # takes float images `(n, 3, h, w)` in [0, 1], returns logits
    device: torch.device
    dtype: torch.dtype  # of its parameters and its input
    precision: Precision  # `bfloat16` computes under autocast, `tf32` in TF32 products; the others are those of `dtype`
    size: tuple[int, int] | None  # height and width to which images are resized; `None` leaves them

    @classmethod
    def of(
        cls,
        model: nn.Module,
        *,
        device: torch.device | str | None = None,
        precision: Precision = "float32",
        size: tuple[int, int] | None = None,
    ) -> Self:
        """Return the inference for a model; device and dtype come from its parameters."""
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
        """Return uint8 images `(n, h, w, 3)` as the model takes them; they are copied to the device as uint8."""
        if images.ndim != 4 or images.shape[3] != 3:
            hint = "; for a single image add the batch axis with images[None]" if images.ndim == 3 else ""
            raise InputError(f"expected images (n, h, w, 3), got shape {images.shape}{hint}")
        images_nhwc = torch.from_numpy(np.array(images, order="C"))  # a copy, because torch warns of read-only memory
        if self.device.type == "cuda":
            images_nhwc = images_nhwc.pin_memory()
        images_nchw = images_nhwc.to(self.device, non_blocking=True).permute(0, 3, 1, 2)
        if self.size is not None and images_nchw.shape[2:] != self.size:
            images_nchw = resize(images_nchw, self.size)
        return to_float(images_nchw, exact=True).to(self.dtype)

    def logits(self, images: Tensor) -> Tensor:
        """Return the model's logits in its precision, with gradients if the caller enables them."""
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
        """Return the context for calls of the model."""
        with products(self.precision, self.device), autocast(self.precision, self.device):
            yield


@dataclass(slots=True)
class _Shape:
    """Inputs of one shape: the number of calls, and the graph for further ones."""

    calls: int = 0
    images: Tensor | None = None
    graph: Graph[Tensor] | None = None


class Forward:
    """Computes logits without gradients; on a GPU it replays a CUDA graph from the ninth batch of a shape on.

    Without graphs the GPU waits for the host to launch the kernels of a deep network. The weights may change in place
    between calls; the model must be in eval mode at every call.
    """

    def __init__(self, inference: Inference) -> None:
        self._inference = inference
        self._shapes: dict[tuple[object, ...], _Shape] = {}
        self._is_eager = not can_be_captured(inference)
        self._in_parts = InParts()

    def __call__(self, images: Tensor, batches: int = 1) -> Tensor:
        """Return the logits of one batch, or of `batches` batches of one size, each of which `bn_test` normalizes.

        If the device has not enough memory, the batch is halved, unless its size is part of the numbers. If that does
        not help, it raises `DeviceMemoryError`.
        """
        if not any(looks_at_batch(module) for module in self._inference.model.modules()):
            return self._in_parts(self._compute, images)
        try:
            return self._compute(images, batches)
        except torch.OutOfMemoryError:
            self._shapes.clear()
        size = len(images) // batches
        if batches > 1:
            return torch.cat([self(part) for part in images.split(size)])
        fitting = find_fitting(size, lambda fewer: self._compute(images[:fewer]))
        raise DeviceMemoryError(
            f"{images.device} has not enough memory for a batch of {size} images, by which this norm normalizes; "
            + (f"{fitting} fit: set evaluate_batch={fitting}, which changes the numbers" if fitting else "none fits")
        )

    def _compute(self, images: Tensor, batches: int = 1) -> Tensor:
        with separating_batches(self._inference.model, batches):
            if self._is_eager:
                with torch.inference_mode():
                    return self._inference.logits(images)
            with torch.no_grad():
                return self._replay(images, batches)

    def _replay(self, images: Tensor, batches: int) -> Tensor:
        key = images.shape, images.stride(), images.dtype, batches
        shape = self._shapes[key] = self._shapes.pop(key, _Shape())  # the least recently used comes first
        if len(self._shapes) > _MAX_SHAPES:
            del self._shapes[next(iter(self._shapes))]
        shape.calls += 1
        if shape.graph is None and shape.calls > _MIN_CALLS:
            buffer = shape.images = images.clone()
            shape.graph = capture(lambda: self._inference.logits(buffer), images.device, what="the evaluation")
            self._is_eager = shape.graph is None
        if shape.graph is None or shape.images is None:
            return self._inference.logits(images)
        shape.images.copy_(images)
        shape.graph.replay()
        return shape.graph.output.clone()


def can_be_captured(inference: Inference) -> bool:
    """Return whether a CUDA graph can replace calls of a model; a replay runs no Python and so no forward hooks."""
    hooks = (module._forward_hooks or module._forward_pre_hooks for module in inference.model.modules())
    return inference.device.type == "cuda" and not any(hooks)


def count_together(inference: Inference, batch_size: int, image_size: tuple[int, int]) -> int:
    """Return how many batches to pass to a model in eval mode at once.

    It is more than one only if every layer that normalizes by the batch has an attribute `batches`, as `bn_test` has:
    small batches one by one would leave a GPU waiting for the host.
    """
    splits = [hasattr(module, "batches") for module in inference.model.modules() if looks_at_batch(module)]
    if inference.device.type not in _BUNDLE_DEVICES or not splits or not all(splits):
        return 1
    return max(1, _MAX_PIXELS // (batch_size * image_size[0] * image_size[1]))


@contextmanager
def separating_batches(model: nn.Module, batches: int) -> Iterator[None]:
    """Make the layers that normalize by the batch split their input into `batches` batches within the block."""
    layers = [module for module in model.modules() if looks_at_batch(module)] if batches > 1 else []
    for layer in layers:
        setattr(layer, "batches", batches)  # noqa: B010
    try:
        yield
    finally:
        for layer in layers:
            setattr(layer, "batches", 1)  # noqa: B010
