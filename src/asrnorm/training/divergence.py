"""When a loss is no longer finite: which layer went first."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import get_total_norm

from asrnorm.methods import Batch
from asrnorm.norms import ASRNorm2d


def find_not_finite(model: nn.Module) -> str | None:
    """Return in words which parameter or buffer of a model is the first that is not finite, `None` where all are.

    Example:
        >>> model = nn.Linear(2, 2)
        >>> find_not_finite(model) is None
        True
        >>> _ = model.weight.data.fill_(float("nan"))
        >>> find_not_finite(model)
        "the weights 'weight' are"
    """
    named: list[tuple[str, Tensor]] = []
    named += [(f"the weights {name!r} are", parameter) for name, parameter in model.named_parameters()]
    named += [(f"the running statistics {name!r} are", buffer) for name, buffer in model.named_buffers()]
    named = [(words, tensor.detach()) for words, tensor in named if tensor.is_floating_point()]
    # Of all of them in a few launches, with one answer: a sum of magnitudes is finite only where each of them is.
    if not named or bool(torch.isfinite(get_total_norm([tensor for _, tensor in named], 1.0))):
        return None
    return next((words for words, tensor in named if not _is_finite(tensor)), None)  # a sum alone may overflow


def describe_origin(model: nn.Module, batch: Batch, compute: Callable[[], object]) -> str:
    """Return in words what is the first thing that is not finite: images, weights, or the output of a layer.

    Args:
        model: as it was before the loss was computed.
        batch: what it was computed from.
        compute: computes it once more; the layers are watched meanwhile.

    Example:
        >>> model = nn.Sequential(nn.Linear(1, 1), nn.ReLU())
        >>> x = torch.full((1, 1), 1e38)
        >>> _ = model[0].weight.data.fill_(1e38)
        >>> describe_origin(model, Batch(x, torch.zeros(1)), lambda: model(x))
        "the output of layer '0' (Linear) went first"
    """
    if not _is_finite(batch.images):
        return "the images of the batch are not finite"
    if before := find_not_finite(model):
        return f"{before} not finite already, from the step before"
    found: list[str] = []
    points: list[str] = []
    handles = [module.register_forward_hook(_watch(name, found)) for name, module in model.named_modules() if name]
    for name, module in model.named_modules():
        if isinstance(module, ASRNorm2d) and module.statistics == "instance":
            handles.append(module.register_forward_hook(_watch_size(name, points)))
    try:
        compute()
    finally:
        for handle in handles:
            handle.remove()
    origin = f"the output of layer {found[0]} went first" if found else "every layer is finite, the loss alone is not"
    if points:
        origin += f"; norm layers with maps of 1x1: {len(points)}, the first {points[0]!r}; use larger images"
    return origin


def _watch(name: str, found: list[str]) -> Callable[..., None]:
    def note(module: nn.Module, inputs: Any, output: Any) -> None:  # noqa: ARG001
        if not found and isinstance(output, Tensor) and not _is_finite(output):
            found.append(f"{name!r} ({type(module).__name__})")

    return note


def _watch_size(name: str, points: list[str]) -> Callable[..., None]:
    def note(module: nn.Module, inputs: tuple[Tensor, ...], output: Any) -> None:  # noqa: ARG001
        if inputs[0].shape[2:].numel() == 1 and name not in points:
            points.append(name)

    return note


def _is_finite(tensor: Tensor) -> bool:
    return not tensor.is_floating_point() or bool(torch.isfinite(tensor).all())
