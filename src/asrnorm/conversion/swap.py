"""`convert` and `revert`: replace the norm layers of a network in place, and undo it."""

import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer

from asrnorm.conversion.layer_kind import DEFAULT_KINDS, KINDS, NormSpec, Unsupported, factory_kwargs, recognize
from asrnorm.conversion.optimizer import replace_parameters, restore_parameters
from asrnorm.conversion.replace import (
    NormAct,
    build_replacement,
    has_affine,
    has_state_hooks,
    options_of,
    original_of,
    replace_layers,
    restore_original,
)
from asrnorm.conversion.select import PRESETS, Layers, Site, choose, find_sites, iterate_children, pick_preset
from asrnorm.conversion.specification import unwrap, wrapper_of
from asrnorm.conversion.state_check import register_check, remove_check
from asrnorm.core.errors import ConversionError, InputTypeError, UnknownNameError, count_of, describe_unknown
from asrnorm.norms import NORMS, NormLayer

logger = logging.getLogger("asrnorm")

_SUMMARIES = "_asrnorm_conversions"


@dataclass
class ConversionSummary:
    """The record of one conversion; `print` it.

    Attributes:
        norm: name of the new norm.
        chosen_by: the preset, patterns or function that chose the layers.
        converted: name, old class and new layer of each converted layer.
        left: name, class and reason of each norm layer that was left alone.
        notes: values that are not carried over, and other remarks.
        parameters: number of the model's parameters before and after.
    """

    norm: str
    chosen_by: str
    converted: list[tuple[str, str, str]] = field(default_factory=list)
    left: list[tuple[str, str, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    parameters: tuple[int, int] = (0, 0)

    def __str__(self) -> str:
        before, after = self.parameters
        total = len(self.converted) + len(self.left)
        lines = [
            f"{len(self.converted)} of {total} norm layers converted to {self.norm!r} by {self.chosen_by}; "
            f"parameters {before:,} -> {after:,} ({(after - before) / max(before, 1):+.1%})"
        ]
        width = max((len(name) for name, *_ in (*self.converted, *self.left)), default=0)
        lines += [f"  {name:<{width}}  {old} -> {new}" for name, old, new in self.converted]
        for reason, rows in groupby(sorted(self.left, key=lambda row: row[2]), key=lambda row: row[2]):
            lines.append(f"left alone ({reason}):")
            lines += [f"  {name:<{width}}  {kind}" for name, kind, _ in rows]
        lines += [f"note: {note}" for note in self.notes]
        return "\n".join(lines)


def convert(
    model: nn.Module,
    norm: str | Callable[..., nn.Module],
    *,
    layers: Layers = "auto",
    kinds: Collection[str] = DEFAULT_KINDS,
    optimizer: Optimizer | None = None,
    **options: Any,
) -> nn.Module:
    """Replace norm layers of a model in place and return it; `revert` undoes it.

    New layers keep the affine values, device, dtype, training flag and hooks of the old ones, and a built-in
    activation. If they inherit trained values, `gated_rescale` is on by default, so that the learned rescaling does not
    change the scale that the next layers expect. `print(asrnorm.conversion_summary(model))` shows what changed and what
    was left alone.

    Args:
        model: any network. A single norm layer is allowed: use the returned one.
        norm: a registry name, or a factory that takes `num_features`, `device` and `dtype`.
        layers: a preset (`"auto"`, `"all"`, `"first"`, `"early"`, `"but-last"`, `"stages"`, `"resnet-12"`,
            `"resnet-12b"`), a name pattern or several (`"layer1.*"`), or a function of name and module. `"auto"` takes
            `"early"` in a trained network whose names show stages, else `"all"`.
        kinds: which norms presets and wildcards may choose: `"batch"` (2d, 3d, sync, frozen), `"batch1d"`, `"group"`,
            `"instance"`, `"layer2d"`. An exact name or a function may choose any of them.
        optimizer: gets the new parameters in place of the old ones, in the same groups.
        **options: options of the norm.

    Raises:
        ConversionError: the model is compiled or wrapped, nothing was chosen, or the choice cannot be converted.
        UnknownNameError: the norm or an option is unknown.

    Example:
        >>> model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU())
        >>> convert(model, "asr")[1]
        ASRNorm2d(
          8
          (stan_encoder): Linear(in_features=8, out_features=4, bias=True)
          ...
    """
    kinds = (kinds,) if isinstance(kinds, str) else tuple(kinds)
    _check_arguments(model, norm, layers, kinds, optimizer, options)
    if recognize(model) is not None:
        return _convert_single(model, norm, optimizer, options)
    sites = find_sites(model)
    preset, why = pick_preset(sites, norm, kinds) if layers == "auto" else (None, "")
    chosen = choose(sites, preset or layers, kinds)
    specs = _check_choice(model, sites, chosen, kinds)
    given, options = options, _with_safe_default(norm, specs, options)
    label = norm if isinstance(norm, str) else getattr(norm, "__name__", repr(norm))
    before, like = _count(model), factory_kwargs(model)
    # All new layers are built before the first one is put in, so that an error leaves the model unchanged.
    new = [build_replacement(site.module, spec, norm, options, like) for site, spec in zip(chosen, specs, strict=True)]
    exchanges = [(site.name, site.module, layer) for site, layer in zip(chosen, new, strict=True)]
    replace_layers(model, {old: layer for _, old, layer in exchanges})
    notes = [f"layers='auto' is {preset!r} here: {why}"] if preset else []
    notes += [*_notes(chosen, specs, new, label), *_loading_note(preset, given, options)]
    if optimizer is not None:
        notes += replace_parameters(optimizer, exchanges)
    summary = ConversionSummary(
        norm=label,
        chosen_by=_describe_choice(preset, layers),
        converted=[
            (" = ".join(site.names), type(site.module).__name__, _repr_line(layer))
            for site, layer in zip(chosen, new, strict=True)
        ],
        left=[(s.name, type(s.module).__name__, _why_left(s, kinds)) for s in sites if s not in chosen],
        notes=notes,
        parameters=(before, _count(model)),
    )
    model.__dict__.setdefault(_SUMMARIES, []).append(summary)
    register_check(model)
    logger.info("%s", summary)
    return model


def revert(model: nn.Module, *, optimizer: Optimizer | None = None) -> nn.Module:
    """Put the original norm layers back, with the state they had at the conversion, and return the model.

    They are the same objects and move to the device, mode and dtype that the model has now.

    Args:
        model: a converted model, or a copy of one.
        optimizer: gets the old parameters back in place of the new ones.

    Raises:
        ConversionError: nothing was converted, or the model is compiled or wrapped.

    Example:
        >>> model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8))
        >>> norm = model[1]
        >>> revert(convert(model, "asr"))[1] is norm
        True
    """
    check_unwrapped(model)
    _check_optimizer(optimizer)
    like = next((parameter for parameter in model.parameters() if parameter.is_floating_point()), None)
    if original_of(model) is not None:
        layer = restore_original(model, like)
        if optimizer is not None:
            restore_parameters(optimizer, [("", model, layer)])
        return layer
    converted = [(name, layer) for name, layer in iterate_children(model) if original_of(layer) is not None]
    if not converted:
        raise ConversionError(
            f"{type(model).__name__} has no converted layer to revert; original layers are kept with the model object "
            "and its copies, not in a state dict: build the original model again and load its weights"
        )
    # All of them before the first one is put in, so that an error leaves the model unchanged.
    exchanges = [(name, layer, restore_original(layer, like)) for name, layer in converted]
    replace_layers(model, {new: old for _, new, old in exchanges})
    if optimizer is not None:
        restore_parameters(optimizer, exchanges)
    for module in model.modules():  # a part may have been converted on its own
        module.__dict__.pop(_SUMMARIES, None)
        remove_check(module)
    return model


def conversion_summary(model: nn.Module) -> ConversionSummary:
    """Return what the last conversion of a model changed and left alone.

    Example:
        >>> print(conversion_summary(convert(nn.Sequential(nn.BatchNorm2d(8)), "in", layers="all")))
        1 of 1 norm layers converted to 'in' by preset 'all'; parameters 16 -> 16 (+0.0%)
          0  BatchNorm2d -> InstanceNorm(8)
        note: running statistics of 1 layer are not used by 'in'
    """
    summaries = unwrap(model).__dict__.get(_SUMMARIES)
    if not summaries:
        built = next((type(part).__name__ for part in model.modules() if isinstance(part, NormLayer)), None)
        why = f": its {built} layers were built in, and there is nothing to revert" if built else ""
        raise ConversionError(f"{type(model).__name__} has not been converted{why}")
    return summaries[-1]


def check_unwrapped(model: nn.Module) -> None:
    """Raise if `model` is no module, or is compiled, distributed or scripted, so that its layers cannot be replaced."""
    if not isinstance(model, nn.Module):
        raise InputTypeError(f"expected a torch.nn.Module, not {type(model).__name__}")
    if isinstance(model, torch.jit.ScriptModule):
        raise ConversionError("the model is a TorchScript module, which is fixed: convert the model it was made from")
    for module in model.modules():
        if wrapper := wrapper_of(module):
            raise ConversionError(
                f"the model is wrapped in {wrapper}: convert or revert the plain model, then wrap it again"
            )
        if "_orig_mod" in module._modules:
            raise ConversionError(
                "the model is compiled: convert or revert the plain one (model._orig_mod), then torch.compile it again"
            )
        if module._compiled_call_impl is not None:
            raise ConversionError(
                "the model was compiled in place: convert or revert it before model.compile(), or take a copy.deepcopy "
                "of it, which is not compiled"
            )


def _check_arguments(
    model: nn.Module, norm: Any, layers: Any, kinds: Collection[str], optimizer: Any, options: dict[str, Any]
) -> None:
    check_unwrapped(model)
    if not isinstance(norm, str) and not callable(norm):
        raise InputTypeError(f"norm takes a name, such as 'asr', or a factory of layers, not {norm!r}")
    _check_optimizer(optimizer)
    if not callable(layers):
        patterns = [layers] if isinstance(layers, str) else layers
        if not isinstance(patterns, Sequence) or not all(isinstance(pattern, str) for pattern in patterns):
            raise InputTypeError(
                f"layers takes a preset, a name pattern or several, or a function of name and module, not {layers!r}"
            )
        if not patterns:
            raise ConversionError("layers names no layer to convert: give a preset, or one or more name patterns")
    for kind in kinds:
        if kind not in KINDS:
            raise UnknownNameError(describe_unknown("kind of norm", kind, KINDS))
    if isinstance(norm, str):
        NORMS.check(norm, options)


def _check_optimizer(optimizer: Any) -> None:
    if optimizer is not None and not hasattr(optimizer, "param_groups"):
        raise InputTypeError(
            f"optimizer takes one torch.optim.Optimizer, not {type(optimizer).__name__}; if you have several, "
            "make those that train norm layers after the conversion"
        )


def _check_choice(model: nn.Module, sites: list[Site], chosen: list[Site], kinds: Collection[str]) -> list[NormSpec]:
    """Return the descriptions of the chosen layers; raise if there is none, or one that cannot be replaced."""
    specs = []
    for site in chosen:
        if isinstance(site.spec, Unsupported):
            raise ConversionError(f"{site.name} ({type(site.module).__name__}) cannot be converted: {site.spec.reason}")
        own = {id(parameter) for parameter in site.module.parameters()}
        inside = set(site.module.modules())
        for name, module in model.named_modules():
            if module not in inside and any(id(p) in own for p in module.parameters(recurse=False)):
                raise ConversionError(
                    f"{site.name} shares a parameter with {name}; untie them, or leave it out by layers="
                )
        specs.append(site.spec)
    if specs:
        return specs
    if any(original_of(module) is not None for module in model.modules()):
        raise ConversionError("the chosen layers are converted already; asrnorm.revert(model) first")
    others = sorted({s.spec.kind for s in sites if isinstance(s.spec, NormSpec)} - set(kinds))
    hint = f"; it has norms of kind {', '.join(others)}: add kinds={others!r}" if others else ""
    reasons = [
        f"{s.name} ({type(s.module).__name__}): {s.spec.reason}" for s in sites if isinstance(s.spec, Unsupported)
    ]
    if reasons:
        hint += f"; not {reasons[0]}" + (f", and {len(reasons) - 1} more" if reasons[1:] else "")
    raise ConversionError(f"{type(model).__name__} has no norm layer to convert{hint}")


def _convert_single(layer: nn.Module, norm: Any, optimizer: Optimizer | None, options: dict[str, Any]) -> nn.Module:
    if isinstance(spec := recognize(layer), Unsupported):
        raise ConversionError(f"{type(layer).__name__} cannot be converted: {spec.reason}")
    holder = convert(nn.Sequential(layer), norm, layers="all", kinds=KINDS, optimizer=optimizer, **options)
    new = holder.get_submodule("0")
    new.__dict__[_SUMMARIES] = holder.__dict__[_SUMMARIES]
    return new


def _with_safe_default(norm: Any, specs: list[NormSpec], options: dict[str, Any]) -> dict[str, Any]:
    takes_gate = "gated_rescale" in options_of(norm)
    if not takes_gate or "gated_rescale" in options or options.get("rescale") is False:
        return options
    # Paper: directly replacing BN in a trained network fails, since the next layers expect its scale.
    return {**options, "gated_rescale": any(spec.is_trained() for spec in specs)}


def _describe_choice(preset: str | None, layers: Layers) -> str:
    if preset is not None:
        return f"preset {preset!r}, picked for this network"
    if callable(layers):
        return "a function"
    if layers in PRESETS:
        return f"preset {layers!r}"
    return f"patterns {layers if isinstance(layers, str) else ', '.join(layers)}"


def _why_left(site: Site, kinds: Collection[str]) -> str:
    if isinstance(site.spec, Unsupported):
        return site.spec.reason
    kind = site.spec.kind
    if kind in kinds:
        return "not chosen"
    reason = "may see a single value per channel" if kind == "batch1d" else f"of kind {kind!r}"
    return f"{reason}; name it in layers=, or add {kind!r} to kinds=, to convert it"


def _notes(chosen: list[Site], specs: list[NormSpec], new: list[nn.Module], norm: str) -> list[str]:
    """Return notes on values that a conversion does not carry over, or carries over in a way worth saying."""
    norms = [layer.norm if isinstance(layer, NormAct) else layer for layer in new]
    conditions: dict[str, Callable[[NormSpec, Any], bool]] = {
        "the learned rescaling of {} is gated (gated_rescale=True), to keep the scale of trained activations": (
            lambda _, new: bool(getattr(new, "gated_rescale", False))
        ),
        f"running statistics of {{}} are not used by {norm!r}": (
            lambda old, new: old.running_mean is not None and not _tracks(new)
        ),
        f"affine values of {{}} are not used by {norm!r}": (
            lambda old, new: old.weight is not None and not has_affine(new)
        ),
        "{} had no running statistics, and the new ones start with 0 and 1: train, or asrnorm.reestimate": (
            lambda old, new: old.running_mean is None and _tracks(new)
        ),
        "{} took statistics over all processes, and the new ones take those of their own": (
            lambda old, new: old.is_synchronized and _tracks(new)
        ),
        "{} had no gain and bias, and the new ones are trained": (
            lambda old, new: old.weight is None and old.bias is None and has_affine(new)
        ),
        "affine values of {} were frozen and stay frozen; learned networks are trainable": (
            lambda old, _: old.weight is not None and not old.weight.requires_grad
        ),
    }
    counts = {note: sum(map(applies, specs, norms)) for note, applies in conditions.items()}
    hooked = [site.name for site in chosen if has_state_hooks(site.module)]
    return [
        *(note.format(count_of(count, "layer")) for note, count in counts.items() if count),
        *(f"{name}: its hooks on the state dict stay with the original" for name in hooked),
    ]


def _tracks(norm: nn.Module) -> bool:
    return any(getattr(module, "running_mean", None) is not None for module in norm.modules())


def _loading_note(preset: str | None, given: dict[str, Any], options: dict[str, Any]) -> list[str]:
    """Return how to convert a fresh network for this one's state dict, if choices depended on trained values."""
    decided = [] if preset in (None, "all") else [f"layers={preset!r}"]  # a fresh network gets "all" by itself
    if options.get("gated_rescale") and "gated_rescale" not in given:
        decided.append("gated_rescale=True")
    if not decided:
        return []
    return [
        "asrnorm.save keeps this choice with the weights; to load a plain state dict of this into a network that is "
        f"not trained yet, convert that with {', '.join(decided)}"
    ]


def _repr_line(module: nn.Module) -> str:
    if isinstance(module, NormAct):
        return f"{_repr_line(module.norm)} + {type(module.act).__name__}"
    return f"{type(module).__name__}({module.extra_repr()})"


def _count(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters() if not is_lazy(p))
