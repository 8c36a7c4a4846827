"""A hook on a converted network: `load_state_dict` says in one line that a state dict is of another conversion."""

import inspect
from collections.abc import Iterator, Mapping
from typing import Any

from torch import nn
from torch.nn.parameter import is_lazy

from asrnorm.conversion.layer_kind import DEFAULT_KINDS
from asrnorm.conversion.replace import original_of
from asrnorm.conversion.select import PRESETS, Site, choose, find_sites
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
    """Raise if a state dict differs from a model in norm layers only; other differences PyTorch describes itself."""
    sites = find_sites(model, original=True)
    own = {site.name: _shapes(model.get_submodule(site.name).state_dict()) for site in sites}
    given = {site.name: _shapes(state, f"{prefix}{site.name}.") for site in sites}
    if own == given or not _is_strict():
        return
    inside = tuple(f"{name}." for site in sites for name in site.names)
    here, there = (
        {key: shape for key, shape in shapes.items() if not key.startswith(inside)}
        for shapes in (_shapes(model.state_dict()), _shapes(state, prefix))
    )
    if here == there:
        raise StateMismatchError(_explain(model, sites, own, given))


def _is_strict() -> bool:
    """Return the `strict` of the call of `load_state_dict` that runs the hook: PyTorch gives hooks `True` always."""
    frame = inspect.currentframe()
    while frame is not None and frame.f_code is not nn.Module.load_state_dict.__code__:
        frame = frame.f_back
    return frame is not None and bool(frame.f_locals["strict"])


def _explain(model: nn.Module, sites: list[Site], own: dict[str, Shapes], given: dict[str, Shapes]) -> str:
    converted = [site for site in sites if given[site.name] != _shapes(site.module.state_dict())]
    if not converted:
        return (
            f"the state dict is of this {type(model).__name__} before its conversion: load it into the plain network "
            "(asrnorm.revert(net) gives it back), then convert that"
        )
    present = {site.name: model.get_submodule(site.name) for site in sites}
    differing = [site for site in sites if own[site.name] != given[site.name]]
    # A layer that is converted on one side only says more than one with other options.
    first = min(differing, key=lambda site: (site in converted) == (original_of(present[site.name]) is not None))
    here = type(present[first.name]).__name__ if original_of(present[first.name]) else "not"
    changed = "converted" if here == "not" else "another, or has other options,"
    there = changed if first in converted else "not converted"
    call = _find_call(model, sites, converted, given)
    advice = f"convert the plain network by {call}" if call else "asrnorm.save and asrnorm.load keep the two together"
    difference = f"{first.name} is {there} there, here it is {here} ({len(differing)} of {len(sites)} norms differ)"
    return f"the state dict is of another conversion: {difference}; {advice}"


def _find_call(model: nn.Module, sites: list[Site], converted: list[Site], given: dict[str, Shapes]) -> str | None:
    """Return the call of `convert` that gives the layers of a state dict, `None` if several norms have such layers."""
    fitting = [list(_fitting_norms(model, site, given[site.name])) for site in converted]
    calls = [one for one in fitting[0] if all(one in others for others in fitting)]
    own = {original.norm for layer in model.modules() if (original := original_of(layer)) is not None}
    names = [site.name for site in converted]
    layers: Any = next((preset for preset in PRESETS[1:] if _preset_names(sites, preset) == names), names)
    is_known = calls and (calls[0][0] in own or len({name for name, _ in calls}) == 1)
    if not is_known or (layers is names and len(names) > _MAX_NAMED):
        return None
    norm, options = calls[0]
    return f'asrnorm.convert(net, "{norm}", layers={layers!r}{options})'


def _fitting_norms(model: nn.Module, site: Site, shapes: Shapes) -> Iterator[tuple[str, str]]:
    """Yield each norm, and options as a call has them, whose layer has these shapes; those of the model first."""
    own = [found for layer in model.modules() if (found := original_of(layer)) is not None and found.norm in NORMS]
    tried = [(str(found.norm), dict(found.options or {})) for found in own] + [(name, {}) for name in NORMS.names()]
    bare = {key.removeprefix("norm."): shape for key, shape in shapes.items()}  # of a norm with an activation
    for name, options in tried:
        has_gate = "gated_rescale" in NORMS.options(name) and options.get("rescale") is not False
        for gate in ({"gated_rescale": False}, {"gated_rescale": True}) if has_gate else ({},):
            settings: dict[str, Any] = {**options, **gate}
            try:
                layer = NORMS[name](getattr(site.spec, "num_features", None), device="meta", **settings)
            except (AsrnormError, RuntimeError, TypeError):  # too few channels for its groups, a layer of one's own
                continue
            if _shapes(layer.state_dict()) in (shapes, bare):
                yield name, "".join(f", {key}={value!r}" for key, value in settings.items())


def _preset_names(sites: list[Site], preset: str) -> list[str]:
    try:
        return [site.name for site in choose(sites, preset, DEFAULT_KINDS)]
    except ConversionError:
        return []


def _shapes(state: Mapping[str, Any], prefix: str = "") -> Shapes:
    return {
        key.removeprefix(prefix): () if is_lazy(value) else tuple(getattr(value, "shape", ()))
        for key, value in state.items()
        if key.startswith(prefix) and key.rpartition(".")[2] not in _OPTIONAL
    }
