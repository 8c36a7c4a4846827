"""Let an optimizer that was made before a conversion train the new layers and forget the old ones."""

from collections.abc import Sequence
from typing import Any
from uuid import uuid4

from torch import Tensor, nn
from torch.optim import LBFGS, Optimizer

from asrnorm.norms import NormLayer

Homes = dict[str, int]
"""The group of each parameter of a layer by its name; those that the optimizer does not know are left out."""


def mark(optimizer: Optimizer) -> str:
    """Return what this optimizer, and no other, is known by; its `id` may be another's once it is gone."""
    found: str = vars(optimizer).setdefault("_asrnorm_mark", uuid4().hex)
    return found


def find_homes(optimizer: Optimizer, layer: nn.Module) -> Homes:
    """Return in which groups the parameters of a layer are."""
    groups = {id(p): index for index, group in enumerate(optimizer.param_groups) for p in group["params"]}
    return {key: groups[id(p)] for key, p in layer.named_parameters() if id(p) in groups}


def exchange(
    optimizer: Optimizer,
    pairs: Sequence[tuple[str, nn.Module, nn.Module]],
    homes: Sequence[Homes | None] | None = None,
) -> list[str]:
    """Put the parameters of each new layer where those of the old one stood.

    Gain and bias take the place, the group and the optimizer state (momentum and the like) of the values they
    inherit; the other new parameters follow the first of the two.

    Args:
        optimizer: changed in place.
        pairs: name, old layer, new layer.
        homes: where the parameters of each new layer were before, if it was there before.

    Returns:
        Notes on layers whose predecessor the optimizer did not know.
    """
    notes = []
    for (name, old, new), home in zip(pairs, homes or [None] * len(pairs), strict=True):
        was_out = home is not None and not home  # of the optimizer, before the conversion
        successors = {} if was_out else _successors(old, new)
        rest = {key: p for key, p in new.named_parameters() if all(p is not s for s in successors.values())}
        known = _replace_in_groups(optimizer, name, old, new, successors, {} if was_out else rest)
        for parameter in old.parameters():
            state = optimizer.state.pop(parameter, None)
            if state is not None and parameter in successors:
                optimizer.state[successors[parameter]] = state
        trainable = {key: p for key, p in new.named_parameters() if p.requires_grad}
        if known or was_out or not trainable:
            continue
        if home is not None:
            for key, index in home.items():
                group = optimizer.param_groups[min(index, len(optimizer.param_groups) - 1)]
                _append(group, name, {key: new.get_parameter(key)})
        else:
            _append(optimizer.param_groups[0], name, trainable)
            notes.append(f"{name}: its predecessor was not in the optimizer; added to the first parameter group")
    if isinstance(optimizer, LBFGS):  # its state is of all parameters in one vector, whose length has changed
        optimizer.state.clear()
        optimizer._numel_cache = None
    return notes


def _replace_in_groups(
    optimizer: Optimizer,
    name: str,
    old: nn.Module,
    new: nn.Module,
    successors: dict[Tensor, Tensor],
    rest: dict[str, nn.Parameter],
) -> bool:
    gone = {id(parameter) for parameter in old.parameters()}
    key_of = {id(parameter): key for key, parameter in new.named_parameters()}
    waiting = dict(rest)
    known = False
    for group in optimizer.param_groups:
        names = list(group["param_names"]) if "param_names" in group else None
        parameters = list(group["params"])
        group["params"].clear()  # the list itself stays: L-BFGS keeps hold of it
        if names is not None:
            group["param_names"].clear()
        for index, parameter in enumerate(parameters):
            if id(parameter) not in gone:
                group["params"].append(parameter)
                if names is not None:
                    group["param_names"].append(names[index])
                continue
            known = True
            successor = successors.get(parameter)
            own = {} if successor is None else {key_of[id(successor)]: successor}
            _append(group, name, {**own, **waiting})
            waiting = {}
    return known


def _append(group: dict[str, Any], name: str, parameters: dict[str, Any]) -> None:
    group["params"].extend(parameters.values())
    if "param_names" in group:
        group["param_names"].extend(f"{name}.{key}" if name else key for key in parameters)


def _successors(old: nn.Module, new: nn.Module) -> dict[Tensor, Tensor]:
    """Which new parameter inherits the value of which old one."""
    pairs = zip(_affine(old), _affine(new), strict=True)
    return {before: after for before, after in pairs if before is not None and after is not None}


def _affine(module: nn.Module) -> tuple[Tensor | None, Tensor | None]:
    layer = next((inner for inner in module.modules() if isinstance(inner, NormLayer)), None)
    pair = (
        layer.affine_pair() if layer is not None else (getattr(module, "weight", None), getattr(module, "bias", None))
    )
    parameters = {id(parameter) for parameter in module.parameters()}
    first, second = (tensor if tensor is not None and id(tensor) in parameters else None for tensor in pair)
    return first, second
