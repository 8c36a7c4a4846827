"""The map between the last two stages of a backbone: taken while it runs, or put in from outside."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from asrnorm.errors import InputError
from asrnorm.models import Classifier

# What backbones call their last stage but one: ResNets, wide ResNets.
STAGES = ("layer3", "group2")


def find_stage(model: nn.Module) -> nn.Module:
    """Return the last stage but one of a backbone, wherever in the model the backbone is.

    Raises:
        InputError: the model has no stage of a known name.

    Example:
        >>> from asrnorm.models import create_model
        >>> model = create_model("wrn_16_4")
        >>> find_stage(model) is model.group2
        True
    """
    for name, module in model.named_modules():
        if name.rpartition(".")[2] in STAGES:
            return module
    raise InputError(
        f"version 'v2' of rsc reads the map of a last stage but one, named {' or '.join(STAGES)}, which "
        f"{type(model).__name__} has not: choose version 'v1' or 'v3'"
    )


def features_and_stage(model: Classifier, images: Tensor) -> tuple[Tensor, Tensor]:
    """Return the last map of the images, and the one after the last stage but one on the way."""
    seen: list[Tensor] = []
    with _hooked(find_stage(model), lambda _module, _inputs, output: seen.append(output)):
        maps = model.features(images)
    return maps, seen[-1]


def features_from_stage(model: Classifier, images: Tensor, stage_map: Tensor) -> Tensor:
    """Return the last map that follows from a given one after the last stage but one.

    The layers before see a single image, since what they compute is thrown away.
    """
    with _hooked(find_stage(model), lambda _module, _inputs, _output: stage_map):
        return model.features(images[:1])


@contextmanager
def _hooked(module: nn.Module, hook: Any) -> Iterator[None]:
    handle = module.register_forward_hook(hook)
    try:
        yield
    finally:
        handle.remove()
