"""Let an optimizer that was made before a conversion train the new layers and forget the old ones."""

import copy
from collections.abc import Sequence
from typing import Any
from uuid import uuid4

from torch import Tensor, nn
from torch.optim import LBFGS, Optimizer

from asrnorm.norms import NormLayer

Homes = dict[str, tuple[int, int]]
"""Group, and place in it, of each parameter of a layer by its name; those that the optimizer does not know are left
out."""


def mark(optimizer: Optimizer) -> str:
    """Return what this optimizer, and no other, is known by; its `id` may be another's once it is gone."""
    found: str = vars(optimizer).setdefault("_asrnorm_mark", uuid4().hex)
    return found


def next_turn(optimizer: Optimizer) -> int:
    """Return how many conversions this optimizer was given to before, and count one more."""
    turn: int = vars(optimizer).get("_asrnorm_turns", 0)
    vars(optimizer)["_asrnorm_turns"] = turn + 1
    return turn


def find_homes(optimizer: Optimizer, layer: nn.Module) -> Homes:
    """Return in which groups the parameters of a layer are, and where in them."""
    places = {
        id(parameter): (index, place)
        for index, group in enumerate(optimizer.param_groups)
        for place, parameter in enumerate(group["params"])
    }
    return {key: places[id(p)] for key, p in layer.named_parameters() if id(p) in places}


def exchange(
    optimizer: Optimizer,
    pairs: Sequence[tuple[str, nn.Module, nn.Module]],
    homes: Sequence[Homes | None] | None = None,
) -> list[str]:
    """Put the parameters of each new layer where those of the old one stood.

    Gain and bias take the place, the group and the optimizer state (momentum and the like) of the values they
    inherit, for every domain where a layer has one pair for each; the other new parameters are put beside the first of
    the two. In a group they are in the order of the layer, as those of the old one were; what comes back, in its own.

    Args:
        optimizer: changed in place.
        pairs: name, old layer, new layer.
        homes: where the parameters of each new layer were before, if it was there before.

    Returns:
        Notes on layers whose predecessor the optimizer did not know.
    """
    notes = []
    returning: list[tuple[tuple[int, int], str, nn.Parameter]] = []
    for (name, old, new), home in zip(pairs, homes or [None] * len(pairs), strict=True):
        was_out = home is not None and not home  # of the optimizer, before the conversion
        successors = {} if was_out else _successors(old, new)
        heirs = {id(heir) for found in successors.values() for heir in found}
        rest = {key: p for key, p in new.named_parameters() if id(p) not in heirs}
        known = _replace_in_groups(optimizer, name, old, new, successors, {} if was_out else rest, home or {})
        for parameter in old.parameters():
            state = optimizer.state.pop(parameter, None)
            if state is not None:
                for heir in successors.get(parameter, ()):
                    optimizer.state[heir] = copy.deepcopy(state)
        trainable = {key: p for key, p in new.named_parameters() if p.requires_grad}
        if known or was_out or not trainable:
            continue
        if home is not None:
            returning += [(place, _full_name(name, key), new.get_parameter(key)) for key, place in home.items()]
        else:
            _append(optimizer.param_groups[0], name, trainable)
            notes.append(f"{name}: its predecessor was not in the optimizer; added to the first parameter group")
    # Those whose successor had no parameters; from the front, so that each finds the place it had.
    for (index, place), full_name, parameter in sorted(returning, key=lambda one: one[0]):
        group = optimizer.param_groups[min(index, len(optimizer.param_groups) - 1)]
        group["params"].insert(place, parameter)
        if "param_names" in group:
            group["param_names"].insert(place, full_name)
    if isinstance(optimizer, LBFGS):  # its state is of all parameters in one vector, whose length has changed
        optimizer.state.clear()
        optimizer._numel_cache = None
    return notes


def _replace_in_groups(
    optimizer: Optimizer,
    name: str,
    old: nn.Module,
    new: nn.Module,
    successors: dict[Tensor, tuple[Tensor, ...]],
    rest: dict[str, nn.Parameter],
    home: Homes,
) -> bool:
    gone = {id(parameter): rank for rank, parameter in enumerate(old.parameters())}
    key_of = {id(parameter): key for key, parameter in new.named_parameters()}
    before = {id(p): home.get(key, (len(home), 0)) for key, p in new.named_parameters()}
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
            own = {key_of[id(heir)]: heir for heir in successors.get(parameter, ())}
            _append(group, name, {**own, **waiting})
            waiting = {}
        stood = [gone[id(parameter)] for parameter in parameters if id(parameter) in gone]
        if home:
            _put_in_order(group, sorted(before, key=lambda identity: before[identity]))
        elif stood == sorted(stood):  # as in the layer: not in an optimizer that was given them otherwise
            _put_in_order(group, list(key_of))
    return known


def _put_in_order(group: dict[str, Any], layer: list[int]) -> None:
    """Let a layer's parameters, by `id`, follow each other as in `layer`, in the places that they have together.

    An optimizer that is made anew for the converted network has them so, and its state is loaded by place.
    """
    order = {identity: rank for rank, identity in enumerate(layer)}
    places = [place for place, parameter in enumerate(group["params"]) if id(parameter) in order]
    ranked = sorted(places, key=lambda place: order[id(group["params"][place])])
    for values in (group[key] for key in ("params", "param_names") if key in group):
        for place, value in zip(places, [values[place] for place in ranked], strict=True):
            values[place] = value


def _append(group: dict[str, Any], name: str, parameters: dict[str, Any]) -> None:
    group["params"].extend(parameters.values())
    if "param_names" in group:
        group["param_names"].extend(_full_name(name, key) for key in parameters)


def _full_name(name: str, key: str) -> str:
    return f"{name}.{key}" if name else key


def _successors(old: nn.Module, new: nn.Module) -> dict[Tensor, tuple[Tensor, ...]]:
    """Which new parameters inherit the value of which old one; of several old ones, the first hands on."""
    pairs = zip(_affine(old), _affine(new), strict=True)
    return {before[0]: after for before, after in pairs if before and after}


def _affine(module: nn.Module) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """Return the gains and the biases of a layer: one of each, or one of each for every domain."""
    parameters = {id(parameter) for parameter in module.parameters()}
    gains, biases = zip(*_affine_pairs(module), strict=True)
    first, second = (tuple(t for t in kind if t is not None and id(t) in parameters) for kind in (gains, biases))
    return first, second


def _affine_pairs(module: nn.Module) -> list[tuple[Tensor | None, Tensor | None]]:
    layers = [inner for inner in module.modules() if isinstance(inner, NormLayer)]
    if not layers:
        return [(getattr(module, "weight", None), getattr(module, "bias", None))]
    own = layers[0].affine_pair()
    return [own] if any(value is not None for value in own) else [layer.affine_pair() for layer in layers]
