"""Find the norm layers of a network and choose those to convert: by preset, name patterns or a function."""

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import takewhile
from math import ceil

from torch import nn

from asrnorm.conversion.layer_kind import KINDS, NormSpec, Unsupported, recognize
from asrnorm.conversion.replace import first_original, original_of
from asrnorm.core.errors import ConversionError, describe_unknown, shorten_list
from asrnorm.norms import NormLayer

Layers = str | Sequence[str] | Callable[[str, nn.Module], bool]
"""A preset, a name pattern or several, or a function of name and module."""

PRESETS = ("auto", "all", "but-last", "early", "first", "resnet-12", "resnet-12b", "stages")

BATCH_NORMS = ("bn", "bn_test", "dsbn")
"""Norms that standardize by the batch like the layers they replace: converting every layer loses nothing."""

_BLOCK_NORM = re.compile(r"(?:^|\.)layer(\d+)\.(\d+)\.bn([123])$")
_SHORTCUT_NORM = re.compile(r"(?:^|\.)layer(\d+)\.(\d+)\.downsample\.\d+$")
# A stage is the outermost numbered part of a name that has parts below it: layer1, stages.0, features.denseblock1.
_STAGE = re.compile(r"^(?:[A-Za-z_]+\.)*?(?!conv|stem|head|bn|norm|transition)([A-Za-z_]*\d\w*)(?=\.)", re.IGNORECASE)


@dataclass(frozen=True)
class Site:
    """One norm layer of a network."""

    module: nn.Module
    names: tuple[str, ...]  # several if the network shares the layer
    spec: NormSpec | Unsupported

    @property
    def name(self) -> str:
        """The first of its names."""
        return self.names[0]

    def is_kind(self, kinds: Collection[str]) -> bool:
        """Return whether the layer can be converted and is of one of `kinds`."""
        return isinstance(self.spec, NormSpec) and self.spec.kind in kinds


def find_sites(model: nn.Module, *, original: bool = False) -> list[Site]:
    """Return the norm layers of a model in the order of registration, or those that it had before any conversion."""
    names: dict[nn.Module, list[str]] = {}
    for name, module in iterate_children(model):
        names.setdefault(module, []).append(name)
    layers = [module for module in model.modules() if module in names]
    if original:
        inside = {part for layer in layers if original_of(layer) for part in layer.modules() if part is not layer}
        found = ((m, first_original(m).module if original_of(m) else m) for m in layers if m not in inside)
        return [Site(old, tuple(names[m]), spec) for m, old in found if (spec := recognize(old)) is not None]
    return [Site(m, tuple(names[m]), spec) for m in layers if (spec := recognize(m)) is not None]


def iterate_children(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Yield the children of all modules with their full names; a shared child comes once for each parent."""
    for prefix, parent in model.named_modules():
        for key, child in parent._modules.items():
            if child is not None:
                yield f"{prefix}.{key}" if prefix else key, child


def choose(sites: list[Site], layers: Layers, kinds: Collection[str]) -> list[Site]:
    """Return the sites that `layers` chooses; `auto` must be resolved by `pick_preset` before.

    Presets and patterns with wildcards choose among `kinds`; an exact name or a function may choose any norm.
    """
    candidates = [site for site in sites if site.is_kind(kinds)]
    if callable(layers):
        return [site for site in sites if _agree(site, [layers(n, site.module) for n in site.names])]
    if isinstance(layers, str) and layers in PRESETS:
        counted = candidates if layers == "first" else _body(sites, kinds)
        names = _preset_names(layers, [site.name for site in counted])
        return [site for site in candidates if site.name in names]
    patterns = [layers] if isinstance(layers, str) else list(layers)
    chosen = [site for site in sites if any(_matches(site, pattern, candidates) for pattern in patterns)]
    _check_patterns(patterns, [name for site in sites for name in site.names])
    return chosen


def pick_preset(sites: list[Site], norm: object, kinds: Collection[str]) -> tuple[str, str]:
    """Return the preset that `auto` stands for in a network, and why."""
    # Study pacs-reading: scores on source images favor leaving the late layers of a trained network as they are.
    is_trained = any(isinstance(site.spec, NormSpec) and site.spec.is_trained() for site in sites)
    stages = _stages([site.name for site in _body(sites, kinds)])
    if norm in BATCH_NORMS:
        return "all", f"{norm!r} standardizes by the batch, like the layers it replaces"
    if not is_trained:
        return "all", "the network is not trained yet"
    if len(stages) < 2:
        return "all", "the network is trained, but its names show no stages"
    return "early", f"the network is trained, and its names show {len(stages)} stages"


def _body(sites: list[Site], kinds: Collection[str]) -> list[Site]:
    """Return the norms that show a network's stages: convertible or converted ones, without those of a dense head."""
    return [site for site in sites if site.is_kind(kinds) or isinstance(site.module, NormLayer)]


def _matches(site: Site, pattern: str, candidates: list[Site]) -> bool:
    if pattern in site.names:
        return True
    return site in candidates and _agree(site, [fnmatchcase(name, pattern) for name in site.names])


def _agree(site: Site, votes: list[bool]) -> bool:
    if len(set(votes)) > 1:
        raise ConversionError(
            f"the model uses one layer under the names {', '.join(site.names)}; choose all of them or none"
        )
    return bool(votes and votes[0])


def _check_patterns(patterns: list[str], names: list[str]) -> None:
    for pattern in patterns:
        if pattern in names or any(fnmatchcase(name, pattern) for name in names):
            continue
        if pattern in PRESETS:
            raise ConversionError(f"{pattern!r} is a preset, which stands alone: layers={pattern!r}")
        if not set(pattern) & set("*?[."):
            raise ConversionError(describe_unknown("preset or norm layer", pattern, [*PRESETS, *names[:8]]))
        raise ConversionError(f"pattern {pattern!r} matches no norm layer; they are called {shorten_list(names)}")


def _preset_names(preset: str, names: list[str]) -> set[str]:
    if preset == "all":
        return set(names)
    if preset == "first":
        return set(names[:1])
    if preset in ("resnet-12", "resnet-12b"):
        return _basic_block_names(preset, names, number="1" if preset == "resnet-12" else "2")
    stages = list(_stages(names).values())
    if len(stages) < 2:
        raise ConversionError(
            f"preset {preset!r} needs numbered stages, and {shorten_list(names)} show none; use name patterns"
        )
    stem = names[: names.index(stages[0][0])]
    if preset == "stages":
        return {*stem, *(members[0] for members in stages)}
    # Layers after the last stage, such as a final norm, belong to it.
    count = len(stages) - 1 if preset == "but-last" else ceil(len(stages) / 2)
    return {*stem, *(name for members in stages[:count] for name in members)}


def _stages(names: list[str]) -> dict[str, list[str]]:
    """Return the norms of each stage by its name, in order; a prefix that all names share counts for nothing."""
    shared = takewhile(lambda parts: len(set(parts)) == 1, zip(*(name.split(".")[:-1] for name in names), strict=False))
    start = sum(len(parts[0]) + 1 for parts in shared)
    stages: dict[str, list[str]] = {}
    for name in names:
        match = _STAGE.match(name[start:])
        if match:
            stages.setdefault(name[:start] + match.group(0), []).append(name)
    return stages


def stage_names(model: nn.Module) -> list[str]:
    """Return the names of a network's stages in order, as its norms show them; none if it has no numbered stages."""
    return list(_stages([site.name for site in _body(find_sites(model), KINDS)]))


def _basic_block_names(preset: str, names: list[str], number: str) -> set[str]:
    """Return the stem, the norm `number` of each basic block, and the norms of shortcuts."""
    in_block = {name: match.group(3) for name in names if (match := _BLOCK_NORM.search(name))}
    if set(in_block.values()) != {"1", "2"}:
        raise ConversionError(
            f"preset {preset!r} is for ResNets of basic blocks (two norms a block), and {shorten_list(names)} are not "
            "that; use 'early', 'stages' or 'all'"
        )
    shortcuts = {name for name in names if _SHORTCUT_NORM.search(name)}
    stem = takewhile(lambda name: name not in in_block and name not in shortcuts, names)
    return {*stem, *shortcuts, *(name for name, found in in_block.items() if found == number)}
