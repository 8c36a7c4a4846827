"""What was converted, as plain data: saved with the weights, applied to another network, compared."""

import json
from collections.abc import Iterable
from typing import Any, NamedTuple

from torch import nn

from asrnorm.conversion.replace import Original, conversions_of
from asrnorm.norms import NORMS

_WRAPPERS = ("DistributedDataParallel", "DataParallel", "FullyShardedDataParallel", "FSDPModule")


class ConversionStep(NamedTuple):
    """Layers that became one norm with the same options; a network's conversion is a list of these, in order."""

    norm: str | None  # registry name; `None` if it has none, or an option is not plain data
    options: dict[str, Any]
    layers: tuple[str, ...]


def describe_conversion(model: nn.Module) -> list[ConversionStep]:
    """Return the conversion of a model; a layer that was converted several times is in several steps."""
    steps: dict[tuple[int, str], ConversionStep] = {}
    for name, module in unwrap(model).named_modules():
        for number, (_, original) in enumerate(reversed(list(conversions_of(module)))):
            norm, options = _to_plain(original)
            key = (number, json.dumps((norm, options), sort_keys=True))
            others = steps[key].layers if key in steps else ()
            steps[key] = ConversionStep(norm, options, (*others, without_wrappers(name)))
    return [steps[key] for key in sorted(steps, key=lambda key: key[0])]


def compare_conversions(here: Iterable[ConversionStep], there: Iterable[ConversionStep]) -> str | None:
    """Return the first layer that two conversions differ in, with what it is in each, or `None`."""
    first, second = _by_layer(here), _by_layer(there)
    for name in {**first, **second}:
        if (mine := first.get(name)) != (theirs := second.get(name)):
            return f"{name or 'the layer'} is {_show(mine)} here and {_show(theirs)} there"
    return None


def wrapper_of(module: nn.Module) -> str | None:
    """Return the class name of a module that wraps a network for several devices, `None` for any other."""
    return next((c.__name__ for c in type(module).__mro__ if c.__name__ in _WRAPPERS), None)


def unwrap(model: nn.Module) -> nn.Module:
    """Return the network inside `torch.compile`, DDP, FSDP, DataParallel and PyTorch's averaged models."""
    while True:
        is_outer = wrapper_of(model) or type(model).__name__ == "AveragedModel"
        inner = model._modules.get("_orig_mod") or (model._modules.get("module") if is_outer else None)
        if inner is None:
            return model
        model = inner


def without_wrappers(name: str) -> str:
    """Return the name of a module or tensor without the parts that compiled submodules add."""
    return name.replace("_orig_mod.", "").removesuffix("._orig_mod")


def _to_plain(original: Original) -> tuple[str | None, dict[str, Any]]:
    # Device and dtype are those of the network that is converted.
    options = {name: value for name, value in (original.options or {}).items() if name not in ("device", "dtype")}
    try:
        return original.norm, json.loads(json.dumps(options))
    except (TypeError, ValueError):
        return None, {}


def _by_layer(steps: Iterable[ConversionStep]) -> dict[str, list[tuple[str | None, dict[str, Any]]]]:
    """Return the norms that each layer became, with the options that differ from the defaults."""
    layers: dict[str, list[tuple[str | None, dict[str, Any]]]] = {}
    for norm, options, names in steps:
        known = NORMS.options(norm) if norm is not None and norm in NORMS else {}
        told = {key: value for key, value in options.items() if key not in known or known[key].default != value}
        for name in names:
            layers.setdefault(name, []).append((norm, told))
    return layers


def _show(chain: list[tuple[str | None, dict[str, Any]]] | None) -> str:
    if not chain:
        return "not converted"
    norm, options = chain[-1]
    shown = ", ".join(f"{key}={value!r}" for key, value in options.items())
    return ("a norm without a registered name" if norm is None else repr(norm)) + (f" with {shown}" if shown else "")
