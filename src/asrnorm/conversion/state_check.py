"""A hook on a converted network: `load_state_dict` says in one line that a state dict is of another conversion."""

import inspect
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from torch import nn
from torch.nn.parameter import is_lazy

from asrnorm.conversion.layer_kind import DEFAULT_KINDS, recognize
from asrnorm.conversion.replace import first_original, original_of
from asrnorm.conversion.select import PRESETS, Site, choose, iterate_children
from asrnorm.core.errors import AsrnormError, ConversionError, StateMismatchError
from asrnorm.norms import NORMS
from asrnorm.norms.asr import LIMITS

_MAX_NAMED = 12
_OPTIONAL = ("num_batches_tracked", *LIMITS)  # may be absent from a state dict of the same layer

Shapes = dict[str, tuple[int, ...]]


def register_check(model: nn.Module) -> None:
    """Let `model.load_state_dict` explain state dicts of other conversions."""
    remove_check(model)
    model.register_load_state_dict_pre_hook(_check_state)


def remove_check(module: nn.Module) -> None:
    """Remove the hook, also from a copy of a model."""
    hooks = module._load_state_dict_pre_hooks
    for key in [key for key, hook in hooks.items() if getattr(hook, "hook", None) is _check_state]:
        del hooks[key]


def _check_state(model: nn.Module, state: Mapping[str, Any], prefix: str, *_rest: Any) -> None:
    """Raise if a state dict differs from a model in norm layers only."""
    sites = _find_norms(model)
    names = [name for site in sites for name in site.names]
    own = {key.removeprefix(prefix): value for key, value in state.items() if key.startswith(prefix)}
    given, others = _split(_shapes(own), names)
    differing = [site for site in sites if given[site.name] != _shapes(site.module.state_dict())]
    if not differing or not _is_strict() or others != _split(_shapes(model.state_dict()), names)[1]:
        return  # the same, or of another architecture: PyTorch's own message lists the keys
    raise StateMismatchError(_explain(model, sites, differing, given))


def _is_strict() -> bool:
    """Return the `strict` of the call of `load_state_dict` that runs the hook: PyTorch gives hooks `True` always."""
    frame = inspect.currentframe()
    while frame is not None and frame.f_code is not nn.Module.load_state_dict.__code__:
        frame = frame.f_back
    return frame is not None and bool(frame.f_locals["strict"])


def _find_norms(model: nn.Module) -> list[Site]:
    """Return the norm layers of a model, converted or not, described as they were before any conversion."""
    names: dict[nn.Module, list[str]] = {}
    for name, module in iterate_children(model):
        names.setdefault(module, []).append(name)
    inside = {part for layer in names if original_of(layer) for part in layer.modules() if part is not layer}
    layers = [layer for layer in model.modules() if layer in names and layer not in inside]
    found = ((layer, recognize(_original(layer))) for layer in layers)
    return [Site(layer, tuple(names[layer]), spec) for layer, spec in found if spec is not None]


def _explain(model: nn.Module, sites: list[Site], differing: list[Site], given: dict[str, Shapes]) -> str:
    converted = [site for site in sites if given[site.name] != _shapes(_original(site.module).state_dict())]
    if not converted:
        return (
            f"the state dict is of this {type(model).__name__} before its conversion: load it into the plain network "
            "(asrnorm.revert(net) gives it back), then convert that"
        )
    on_one_side = [site for site in differing if (site in converted) != (original_of(site.module) is not None)]
    first = (on_one_side or differing)[0]
    there = "another norm or has other options" if first in converted else "not converted"
    here = "it is not converted" if original_of(first.module) is None else f"it is {type(first.module).__name__}"
    rest = f" ({len(differing)} layers differ)" if len(differing) > 1 else ""
    call = _find_call(sites, converted, given)
    advice = f"convert the plain network by {call}" if call else "asrnorm.save and asrnorm.load keep the two together"
    return f"the state dict is of another conversion: {first.name} is {there} there, here {here}{rest}; {advice}"


def _find_call(sites: list[Site], converted: list[Site], given: dict[str, Shapes]) -> str | None:
    """Return the call of `convert` that gives the layers of a state dict, `None` if it is not found."""
    fitting = [list(_fitting_norms(sites, site.spec, given[site.name])) for site in converted]
    calls = [one for one in fitting[0] if all(one in others for others in fitting)]
    names = [site.name for site in converted]
    layers: Any = next((preset for preset in PRESETS[1:] if _preset_names(sites, preset) == names), names)
    if not calls or (layers is names and len(names) > _MAX_NAMED):
        return None
    norm, *options = calls[0]
    own = {original.norm for site in sites if (original := original_of(site.module)) is not None}
    others = sorted({name for name, *_ in calls} - own)
    is_sure = norm in own or len(others) == 1
    call = ", ".join([f'"{norm}"' if is_sure else "NORM", f"layers={layers!r}", *options])
    return f"asrnorm.convert(net, {call})" + ("" if is_sure else f" with NORM one of {', '.join(others)}")


def _fitting_norms(sites: list[Site], spec: object, shapes: Shapes) -> Iterator[list[str]]:
    """Yield each norm, and options as a call has them, whose layer has these shapes; those of the model first."""
    own = [found for site in sites if (found := original_of(site.module)) is not None and found.norm in NORMS]
    tried = [(str(found.norm), dict(found.options or {})) for found in own] + [(name, {}) for name in NORMS.names()]
    without_activation = {key.removeprefix("norm."): shape for key, shape in shapes.items()}
    for name, options in tried:
        has_gate = "gated_rescale" in NORMS.options(name) and options.get("rescale") is not False
        for gate in ({"gated_rescale": False}, {"gated_rescale": True}) if has_gate else ({},):
            settings: dict[str, Any] = {**options, **gate}
            try:
                layer = NORMS[name](getattr(spec, "num_features", None), device="meta", **settings)
            except (AsrnormError, RuntimeError, TypeError):  # too few channels for its groups, a layer of one's own
                continue
            if _shapes(layer.state_dict()) in (shapes, without_activation):
                yield [name, *(f"{key}={value!r}" for key, value in settings.items())]


def _preset_names(sites: list[Site], preset: str) -> list[str]:
    try:
        return [site.name for site in choose(sites, preset, DEFAULT_KINDS)]
    except ConversionError:
        return []


def _original(layer: nn.Module) -> nn.Module:
    return first_original(layer).module if original_of(layer) is not None else layer


def _split(shapes: Shapes, names: Collection[str]) -> tuple[dict[str, Shapes], Shapes]:
    """Return the shapes in each of the named layers, and those outside of them."""
    layers: dict[str, Shapes] = {name: {} for name in names}
    outside: Shapes = {}
    for key, shape in shapes.items():
        ends = [index for index, letter in enumerate(key) if letter == "." and key[:index] in layers]
        if ends:
            layers[key[: ends[0]]][key[ends[0] + 1 :]] = shape
        else:
            outside[key] = shape
    return layers, outside


def _shapes(state: Mapping[str, Any]) -> Shapes:
    return {
        key: () if is_lazy(value) else tuple(getattr(value, "shape", ()))
        for key, value in state.items()
        if key.rpartition(".")[2] not in _OPTIONAL
    }
