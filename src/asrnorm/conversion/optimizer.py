"""Let an optimizer that was made before a conversion train the new layers and forget the old ones."""

from collections.abc import Sequence
from typing import Any

from torch import nn
from torch.optim import Optimizer

from asrnorm.norms import NormLayer


def exchange(optimizer: Optimizer, pairs: Sequence[tuple[str, nn.Module, nn.Module]], affine: bool = True) -> list[str]:
    """Put the parameters of each new layer where those of the old one stood, in the same group.

    Momentum and the like of gain and bias go over to the parameters that inherit their values.

    Args:
        optimizer: changed in place.
        pairs: name, old layer, new layer.
        affine: carry the optimizer state of the gain and bias over.

    Returns:
        Notes on what could not be placed beside an old parameter.
    """
    notes = []
    for name, old, new in pairs:
        old_parameters = list(old.parameters())
        fresh = dict(new.named_parameters())
        group, position = _find(optimizer, old_parameters)
        _remove(optimizer, old_parameters)
        if affine:
            _carry_state(optimizer, old, new)
        for parameter in old_parameters:
            optimizer.state.pop(parameter, None)
        trainable = {key: parameter for key, parameter in fresh.items() if parameter.requires_grad or group is not None}
        if not trainable:
            continue
        if group is None:
            group, position = optimizer.param_groups[0], len(optimizer.param_groups[0]["params"])
            notes.append(f"{name}: its predecessor was not in the optimizer; added to the first parameter group")
        group["params"][position:position] = list(trainable.values())
        if "param_names" in group:
            group["param_names"][position:position] = [f"{name}.{key}" for key in trainable]
    return notes


def _find(optimizer: Optimizer, parameters: list[nn.Parameter]) -> tuple[dict[str, Any] | None, int]:
    wanted = {id(parameter) for parameter in parameters}
    for group in optimizer.param_groups:
        for position, parameter in enumerate(group["params"]):
            if id(parameter) in wanted:
                return group, position
    return None, 0


def _remove(optimizer: Optimizer, parameters: list[nn.Parameter]) -> None:
    gone = {id(parameter) for parameter in parameters}
    for group in optimizer.param_groups:
        kept = [index for index, parameter in enumerate(group["params"]) if id(parameter) not in gone]
        if "param_names" in group:
            group["param_names"] = [group["param_names"][index] for index in kept]
        group["params"] = [group["params"][index] for index in kept]


def _carry_state(optimizer: Optimizer, old: nn.Module, new: nn.Module) -> None:
    layer = next((module for module in new.modules() if isinstance(module, NormLayer)), None)
    if layer is None:
        return
    for before, after in zip(
        (getattr(old, "weight", None), getattr(old, "bias", None)), layer.affine_pair(), strict=True
    ):
        if before is not None and after is not None and before in optimizer.state:
            optimizer.state[after] = optimizer.state.pop(before)
