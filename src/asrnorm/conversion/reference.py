"""Layers that a network holds in plain lists and dictionaries too, where PyTorch does not know of them."""

from collections.abc import Mapping
from typing import Any

from torch import nn

_OWN = frozenset(vars(nn.Module()))  # PyTorch's registries and hooks


def exchange_references(model: nn.Module, successors: Mapping[nn.Module, nn.Module]) -> None:
    """Put new layers in place of old ones wherever an attribute of the network holds one in a list, tuple or dict.

    A network may register its norms one by one and call them through a list of its own: exchanged in the registry
    alone, the new layers would never run.

    Args:
        model: its registry is left alone.
        successors: the new layer for each old one.

    Example:
        >>> model, old, new = nn.Module(), nn.BatchNorm2d(3), nn.Identity()
        >>> model.held = {"norms": [old]}
        >>> exchange_references(model, {old: new})
        >>> model.held
        {'norms': [Identity()]}
    """
    seen: set[int] = set()
    for module in list(model.modules()):
        for name, value in list(vars(module).items()):
            if name not in _OWN and (found := _exchange(value, successors, seen)) is not value:
                vars(module)[name] = found


def _exchange(value: Any, successors: Mapping[nn.Module, nn.Module], seen: set[int]) -> Any:
    if isinstance(value, nn.Module):
        return successors.get(value, value)
    if id(value) in seen:
        return value
    if isinstance(value, list | dict):
        seen.add(id(value))
        for place, part in list(value.items() if isinstance(value, dict) else enumerate(value)):
            if (found := _exchange(part, successors, seen)) is not part:
                value[place] = found
    elif isinstance(value, tuple):
        parts = [_exchange(part, successors, seen) for part in value]
        if any(new is not old for new, old in zip(parts, value, strict=True)):
            return type(value)._make(parts) if hasattr(value, "_make") else tuple(parts)
    return value
