"""Where the norm layers of a network sit: every place that refers to each of them.

Layers that a network holds in plain lists and dictionaries too, where PyTorch does not know of them.

Which norm layers to convert: presets, name patterns or a function of the user's.
"""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import takewhile
from math import ceil
from typing import Any

from torch import nn

from asrnorm.conversion.layer_kind import Recognized, Unsupported, recognize
from asrnorm.core.errors import ConversionError, describe_unknown
from asrnorm.norms import NormLayer


@dataclass(frozen=True)
class Site:
    """One norm layer: its places (more than one where the network shares it) and what it is."""

    module: nn.Module
    places: tuple[tuple[nn.Module, str], ...]
    names: tuple[str, ...]
    what: Recognized | Unsupported

    @property
    def name(self) -> str:
        """The first of its names."""
        return self.names[0]


def find_sites(model: nn.Module) -> list[Site]:
    """Return the norm layers of a model in the order of registration.

    Example:
        >>> [site.name for site in find_sites(nn.Sequential(nn.Conv2d(3, 8, 1), nn.BatchNorm2d(8)))]
        ['1']
    """
    places: dict[int, list[tuple[nn.Module, str]]] = {}
    names: dict[int, list[str]] = {}
    modules: dict[int, nn.Module] = {}
    for prefix, parent in model.named_modules():
        for child_name, child in parent._modules.items():
            if child is None:
                continue
            modules[id(child)] = child
            places.setdefault(id(child), []).append((parent, child_name))
            names.setdefault(id(child), []).append(f"{prefix}.{child_name}" if prefix else child_name)
    order = {id(module): index for index, module in enumerate(model.modules())}
    sites = []
    for key in sorted(modules, key=order.__getitem__):
        what = recognize(modules[key])
        if what is not None:
            sites.append(Site(modules[key], tuple(places[key]), tuple(names[key]), what))
    return sites


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


Layers = str | Sequence[str] | Callable[[str, nn.Module], bool]

STILL_BATCH = ("bn", "bn_test", "dsbn")
"""Norms that standardize by the batch as before: nothing is lost by exchanging every layer."""

PRESETS = ("auto", "all", "but-last", "early", "first", "resnet-12", "resnet-12b", "stages")

_BLOCK_NORM = re.compile(r"(?:^|\.)layer(\d+)\.(\d+)\.bn([123])$")
_SHORTCUT_NORM = re.compile(r"(?:^|\.)layer(\d+)\.(\d+)\.downsample\.\d+$")
# A stage is the outermost numbered part of a name that has parts below it: layer1, stages.0, features.denseblock1.
_STAGE = re.compile(r"^(?:[A-Za-z_]+\.)*?(?!conv|stem|head|bn|norm|transition)([A-Za-z_]*\d\w*)(?=\.)", re.IGNORECASE)


def choose(sites: list[Site], layers: Layers, kinds: Collection[str], norm: object) -> tuple[list[Site], str]:
    """Return the chosen sites and what they were chosen by, in words.

    Presets and patterns with wildcards choose among `kinds`; an exact name or a function may choose any norm.
    """
    candidates = [site for site in sites if _convertible(site, kinds)]
    if callable(layers):
        return [site for site in sites if _agreed(site, [layers(n, site.module) for n in site.names])], "a function"
    if isinstance(layers, str) and layers in PRESETS:
        preset = pick_preset(sites, norm, kinds) if layers == "auto" else layers
        label = f"preset {preset!r}" + (", picked for this network" if layers == "auto" else "")
        counted = candidates if preset == "first" else _of_the_network(sites, kinds)
        names = _preset_names(preset, [site.name for site in counted])
        return [site for site in candidates if site.name in names], label
    patterns = [layers] if isinstance(layers, str) else list(layers)
    chosen = [site for site in sites if any(_matches(site, pattern, candidates) for pattern in patterns)]
    _refuse_idle_patterns(patterns, sites)
    return chosen, f"patterns {', '.join(patterns)}"


def _convertible(site: Site, kinds: Collection[str]) -> bool:
    return isinstance(site.what, Recognized) and site.what.kind in kinds


def _matches(site: Site, pattern: str, candidates: list[Site]) -> bool:
    if pattern in site.names:
        return _agreed(site, [True] * len(site.names))
    return site in candidates and _agreed(site, [fnmatchcase(name, pattern) for name in site.names])


def _agreed(site: Site, votes: list[bool]) -> bool:
    if len(set(votes)) > 1:
        raise ConversionError(
            f"the model uses one layer under the names {', '.join(site.names)}; choose all of them or none"
        )
    return bool(votes and votes[0])


def _refuse_idle_patterns(patterns: list[str], sites: list[Site]) -> None:
    names = [name for site in sites for name in site.names]
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in names):
            if pattern in PRESETS:
                raise ConversionError(f"{pattern!r} is a preset, which stands alone: layers={pattern!r}")
            if not set(pattern) & set("*?[."):
                raise ConversionError(describe_unknown("preset or norm layer", pattern, [*PRESETS, *names[:8]]))
            raise ConversionError(f"pattern {pattern!r} matches no norm layer; they are called {_some(names)}")


def _some(names: list[str]) -> str:
    return ", ".join(names[:4]) + (f" ... ({len(names)} in all)" if len(names) > 4 else "")


def pick_preset(sites: list[Site], norm: object, kinds: Collection[str]) -> str:
    """Return the preset that `auto` stands for in a network."""
    # The choice of source images on PACS (study pacs-reading): the late layers of a trained network stay as they are.
    is_trained = any(isinstance(site.what, Recognized) and site.what.is_trained() for site in sites)
    names = [site.name for site in _of_the_network(sites, kinds)]
    if norm in STILL_BATCH or not is_trained or len(_stages(names)) < 2:
        return "all"
    return "early"


def _of_the_network(sites: list[Site], kinds: Collection[str]) -> list[Site]:
    """The norms that show a network's stages: those that may be converted or were, not those of a head of vectors."""
    return [site for site in sites if _convertible(site, kinds) or isinstance(site.module, NormLayer)]


def _is_basic_resnet(names: list[str]) -> bool:
    blocks = {match.group(3) for match in map(_BLOCK_NORM.search, names) if match}
    return blocks == {"1", "2"}


def _preset_names(preset: str, names: list[str]) -> set[str]:
    if preset == "all":
        return set(names)
    if preset == "first":
        return set(names[:1])
    if preset in ("resnet-12", "resnet-12b"):
        return _basic_block_names(preset, names, which="1" if preset == "resnet-12" else "2")
    stages = _stages(names)
    if len(stages) < 2:
        raise ConversionError(
            f"preset {preset!r} needs numbered stages, and {_some(names)} show none; use name patterns"
        )
    stem = names[: names.index(next(iter(stages.values()))[0])]
    if preset == "stages":
        return {*stem, *(members[0] for members in stages.values())}
    # What follows the last stage, such as a final norm, belongs to it.
    share = len(stages) - 1 if preset == "but-last" else ceil(len(stages) / 2)
    early = list(stages.values())[:share]
    return {*stem, *(name for members in early for name in members)}


def _stages(names: list[str]) -> dict[str, list[str]]:
    """Norms by their stage, in their order; what all names begin with is what a network is wrapped in."""
    shared = takewhile(lambda parts: len(set(parts)) == 1, zip(*(name.split(".")[:-1] for name in names), strict=False))
    start = sum(len(parts[0]) + 1 for parts in shared)
    stages: dict[str, list[str]] = {}
    for name in names:
        match = _STAGE.match(name[start:])
        if match:
            stages.setdefault(match.group(0), []).append(name)
    return stages


def _basic_block_names(preset: str, names: list[str], which: str) -> set[str]:
    if not _is_basic_resnet(names):
        raise ConversionError(
            f"preset {preset!r} is for ResNets of basic blocks (two norms a block), and {_some(names)} are not that; "
            "use 'early', 'stages' or 'all'"
        )
    in_blocks = {name: _BLOCK_NORM.search(name) for name in names}
    first = next(index for index, name in enumerate(names) if in_blocks[name] or _SHORTCUT_NORM.search(name))
    chosen = {name for name, match in in_blocks.items() if match and match.group(3) == which}
    return chosen | {name for name in names if _SHORTCUT_NORM.search(name)} | set(names[:first])
