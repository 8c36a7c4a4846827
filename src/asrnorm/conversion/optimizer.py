"""Exchange the parameters of converted layers in an optimizer that was made before the conversion."""

import copy
from collections import defaultdict
from collections.abc import Sequence
from typing import Any
from uuid import uuid4

from torch import Tensor, nn
from torch.optim import LBFGS, Optimizer

from asrnorm.conversion.replace import Membership, Positions, first_original, original_of
from asrnorm.norms import NormLayer

Exchange = tuple[str, nn.Module, nn.Module]
"""Name of a layer, the layer that leaves, the layer that replaces it."""


def replace_parameters(optimizer: Optimizer, exchanges: Sequence[Exchange]) -> list[str]:
    """Put the parameters of new layers where the optimizer had those of the old ones; `restore_parameters` undoes it.

    Gain and bias take the position, the group and the optimizer state (momentum and the like) of the values they
    inherit, for every domain of a layer with one pair each. The other new parameters join the first of the two. Within
    a group they follow the order of the layer if the old ones did, so that the state loads into an optimizer that is
    made for the converted network. Returns notes on layers whose old parameters the optimizer does not have.
    """
    turn: int = vars(optimizer).get("_asrnorm_turns", 0)
    vars(optimizer)["_asrnorm_turns"] = turn + 1
    for _, old, new in exchanges:
        if (original := original_of(new)) is not None:
            original.membership = Membership(_identify(optimizer), turn, _find_positions(optimizer, old))
    return _exchange(optimizer, [(exchange, None) for exchange in exchanges])


def restore_parameters(optimizer: Optimizer, exchanges: Sequence[Exchange]) -> None:
    """Put the parameters of original layers back to the positions they had before their conversion."""
    by_turn: dict[int, list[tuple[Exchange, Positions | None]]] = defaultdict(list)
    for exchange in {id(exchange[1]): exchange for exchange in exchanges}.values():  # a shared layer once
        membership = first_original(exchange[1]).membership
        if membership is None:
            by_turn[0].append((exchange, None))
        else:
            is_same = membership.optimizer == _identify(optimizer)
            by_turn[membership.turn].append((exchange, membership.positions if is_same else None))
    for turn in sorted(by_turn, reverse=True):  # last conversion first, so that each finds the groups as it left them
        _exchange(optimizer, by_turn[turn])


def _identify(optimizer: Optimizer) -> str:
    """Return an identifier that copies share; an `id` may be reused once an optimizer is gone."""
    found: str = vars(optimizer).setdefault("_asrnorm_mark", uuid4().hex)
    return found


def _find_positions(optimizer: Optimizer, layer: nn.Module) -> Positions:
    found = {
        id(parameter): (index, position)
        for index, group in enumerate(optimizer.param_groups)
        for position, parameter in enumerate(group["params"])
    }
    return {key: found[id(p)] for key, p in layer.named_parameters() if id(p) in found}


def _exchange(optimizer: Optimizer, exchanges: Sequence[tuple[Exchange, Positions | None]]) -> list[str]:
    """Exchange parameters and their state; new layers that return to the optimizer come with their old positions."""
    notes = []
    returning: list[tuple[tuple[int, int], str, nn.Parameter]] = []
    for (name, old, new), positions in exchanges:
        was_outside = positions == {}
        arriving = {} if was_outside else dict(new.named_parameters())
        successors = {} if was_outside else _find_successors(old, new)
        is_known = _exchange_in_groups(optimizer, name, old, arriving, successors, positions)
        for parameter in old.parameters():
            state = optimizer.state.pop(parameter, None)
            if state is not None:
                for successor in successors.get(parameter, ()):
                    optimizer.state[successor] = copy.deepcopy(state)
        trainable = {key: p for key, p in new.named_parameters() if p.requires_grad}
        if is_known or was_outside or not trainable:
            continue
        if positions is not None:  # the layer that leaves has no parameters
            returning += [(where, _join(name, key), new.get_parameter(key)) for key, where in positions.items()]
        else:
            first = optimizer.param_groups[0]
            _write(first, _read(first) + [(p, _join(name, key)) for key, p in trainable.items()])
            notes.append(f"{name}: its predecessor was not in the optimizer; added to the first parameter group")
    for (index, position), full_name, parameter in sorted(returning, key=lambda row: row[0]):  # from the front
        group = optimizer.param_groups[min(index, len(optimizer.param_groups) - 1)]
        entries = _read(group)
        _write(group, [*entries[:position], (parameter, full_name), *entries[position:]])
    if isinstance(optimizer, LBFGS):  # its state is one vector of all parameters, whose length has changed
        optimizer.state.clear()
        optimizer._numel_cache = None
    return notes


def _exchange_in_groups(
    optimizer: Optimizer,
    name: str,
    old: nn.Module,
    new: dict[str, nn.Parameter],
    successors: dict[Tensor, tuple[Tensor, ...]],
    positions: Positions | None,
) -> bool:
    """Put new parameters in place of those of `old`; return whether the optimizer had any of these."""
    leaving = {id(parameter): rank for rank, parameter in enumerate(old.parameters())}
    inheriting = {id(p) for found in successors.values() for p in found}
    entry_of = {id(p): (p, _join(name, key)) for key, p in new.items()}
    waiting = [entry for identity, entry in entry_of.items() if identity not in inheriting]
    is_known = False
    for group in optimizer.param_groups:
        entries: list[tuple[Tensor, str]] = []
        ranks = []
        for entry in _read(group):
            if id(entry[0]) not in leaving:
                entries.append(entry)
                continue
            is_known = True
            ranks.append(leaving[id(entry[0])])
            entries += [entry_of[id(p)] for p in successors.get(entry[0], ())] + waiting
            waiting = []
        if positions:
            last = (len(optimizer.param_groups), 0)
            entries = _sort_some(entries, {id(p): positions.get(key, last) for key, p in new.items()})
        elif ranks == sorted(ranks):  # the optimizer had the old ones in the order of the layer
            entries = _sort_some(entries, {identity: (0, rank) for rank, identity in enumerate(entry_of)})
        _write(group, entries)
    return is_known


def _sort_some(entries: list[tuple[Tensor, str]], rank: dict[int, tuple[int, int]]) -> list[tuple[Tensor, str]]:
    """Sort the entries of parameters in `rank`, by `id`, among the positions that they have."""
    ordered = iter(sorted((e for e in entries if id(e[0]) in rank), key=lambda entry: rank[id(entry[0])]))
    return [next(ordered) if id(entry[0]) in rank else entry for entry in entries]


def _read(group: dict[str, Any]) -> list[tuple[Tensor, str]]:
    return list(zip(group["params"], group.get("param_names", [""] * len(group["params"])), strict=True))


def _write(group: dict[str, Any], entries: list[tuple[Tensor, str]]) -> None:
    group["params"][:] = [parameter for parameter, _ in entries]  # in place: L-BFGS keeps the list
    if "param_names" in group:
        group["param_names"][:] = [name for _, name in entries]


def _join(name: str, key: str) -> str:
    return f"{name}.{key}" if name else key


def _find_successors(old: nn.Module, new: nn.Module) -> dict[Tensor, tuple[Tensor, ...]]:
    """Return the new parameters that inherit each old one's value; of several old ones the first hands on."""
    pairs = zip(_affine_parameters(old), _affine_parameters(new), strict=True)
    return {before[0]: after for before, after in pairs if before and after}


def _affine_parameters(module: nn.Module) -> list[tuple[Tensor, ...]]:
    """Return the gains and the biases of a layer: one of each, or one of each for every domain."""
    layers = [inner for inner in module.modules() if isinstance(inner, NormLayer)]
    if not layers:
        pairs = [(getattr(module, "weight", None), getattr(module, "bias", None))]
    elif any(value is not None for value in layers[0].affine_pair()):
        pairs = [layers[0].affine_pair()]
    else:
        pairs = [layer.affine_pair() for layer in layers]
    own = {id(parameter) for parameter in module.parameters()}
    return [tuple(t for t in kind if t is not None and id(t) in own) for kind in zip(*pairs, strict=True)]
