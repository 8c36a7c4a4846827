"""What cannot be converted, each with the way out.

What a conversion did: readable by a person, and by a program.

`convert` and `revert`: the norm layers of a network exchanged in place, and back.
"""

import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer

from asrnorm.conversion.layer_kind import DEFAULT_KINDS, KINDS, Recognized, Unsupported, default_factory, recognize
from asrnorm.conversion.optimizer import Homes, exchange, find_homes, mark, next_turn
from asrnorm.conversion.replace import (
    NormAct,
    Original,
    build_replacement,
    first_original,
    has_affine,
    has_state_hooks,
    options_of,
    original_of,
    restore_original,
)
from asrnorm.conversion.select import Layers, Site, choose, exchange_references, find_sites, pick_preset
from asrnorm.core.errors import ConversionError, InputTypeError, UnknownNameError, describe_unknown
from asrnorm.norms import NORMS, NormLayer

_WRAPPERS = ("DistributedDataParallel", "DataParallel", "FullyShardedDataParallel", "FSDPModule")


def check_arguments(
    model: nn.Module, norm: Any, layers: Any, kinds: Collection[str], optimizer: Any, options: dict[str, Any]
) -> None:
    """Refuse a wrong call before anything is looked at."""
    refuse_wrapped(model)
    if not isinstance(norm, str) and not callable(norm):
        raise InputTypeError(f"norm takes a name, such as 'asr', or a factory of layers, not {norm!r}")
    refuse_other_optimizer(optimizer)
    patterns = [layers] if isinstance(layers, str) else layers
    if not callable(layers) and not (
        isinstance(patterns, Sequence) and all(isinstance(pattern, str) for pattern in patterns)
    ):
        raise InputTypeError(
            f"layers takes a preset, a name pattern or several, or a function of name and module, not {layers!r}"
        )
    if not callable(layers) and not patterns:
        raise ConversionError("layers names no layer to convert: give a preset, or a name pattern or more")
    for kind in kinds:
        if kind not in KINDS:
            raise UnknownNameError(describe_unknown("kind of norm", kind, KINDS))
    if isinstance(norm, str):
        NORMS.check(norm, options)


def refuse_other_optimizer(optimizer: Any) -> None:
    """Refuse what has no groups of parameters to exchange some in."""
    if optimizer is not None and not hasattr(optimizer, "param_groups"):
        raise InputTypeError(
            f"optimizer takes one torch.optim.Optimizer, not {type(optimizer).__name__}; of several, "
            "make those that train norm layers after the conversion"
        )


def refuse_wrapped(model: nn.Module) -> None:
    """Refuse what is no model, and models whose layers something else holds: compiled, distributed, scripted."""
    if not isinstance(model, nn.Module):
        raise InputTypeError(f"expected a torch.nn.Module, not {type(model).__name__}")
    if isinstance(model, torch.jit.ScriptModule):
        raise ConversionError("the model is a TorchScript module, which is fixed: convert the model it was made from")
    for module in model.modules():
        wrapper = next((c.__name__ for c in type(module).__mro__ if c.__name__ in _WRAPPERS), None)
        if wrapper:
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


def unwrap(model: nn.Module) -> nn.Module:
    """Return the model inside what compiles or distributes it."""
    while True:
        is_wrapper = any(c.__name__ in _WRAPPERS for c in type(model).__mro__)
        inner = model._modules.get("_orig_mod") or (model._modules.get("module") if is_wrapper else None)
        if inner is None:
            return model
        model = inner


def check_choice(model: nn.Module, sites: list[Site], chosen: list[Site], kinds: Collection[str]) -> None:
    """Refuse a choice of nothing, and of layers that cannot be replaced."""
    for site in chosen:
        if isinstance(site.what, Unsupported):
            raise ConversionError(f"{site.name} ({type(site.module).__name__}) cannot be converted: {site.what.reason}")
        _refuse_tied(model, site)
    if chosen:
        return
    if any(original_of(module) is not None for module in model.modules()):
        raise ConversionError("the chosen layers are converted already; asrnorm.revert(model) first")
    others = sorted({s.what.kind for s in sites if isinstance(s.what, Recognized)} - set(kinds))
    hint = f"; it has norms of kind {', '.join(others)}: add kinds={others!r}" if others else ""
    reasons = [
        f"{s.name} ({type(s.module).__name__}): {s.what.reason}" for s in sites if isinstance(s.what, Unsupported)
    ]
    if reasons:
        hint += f"; not {reasons[0]}" + (f", and {len(reasons) - 1} more" if reasons[1:] else "")
    raise ConversionError(f"{type(model).__name__} has no norm layer to convert{hint}")


def _refuse_tied(model: nn.Module, site: Site) -> None:
    own = {id(parameter) for parameter in site.module.parameters()}
    inside = set(site.module.modules())
    for name, module in model.named_modules():
        if module not in inside and any(id(p) in own for p in module.parameters(recurse=False)):
            raise ConversionError(f"{site.name} shares a parameter with {name}; untie them, or leave it out by layers=")


@dataclass
class ConversionSummary:
    """The record of one conversion; `print` it.

    Attributes:
        norm: name of the new norm.
        chosen_by: the preset, patterns or function that chose the layers.
        converted: name, old class, new class of each converted layer.
        left: name, class and reason of each norm layer that was left alone.
        notes: what else is worth knowing.
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


def repr_line(module: nn.Module) -> str:
    """Return class and options of a layer without its children.

    Example:
        >>> repr_line(nn.ReLU(inplace=True))
        'ReLU(inplace=True)'
    """
    if isinstance(module, NormAct):
        return f"{repr_line(module.norm)} + {type(module.act).__name__}"
    return f"{type(module).__name__}({module.extra_repr()})"


def why_left(site: Site, kinds: Collection[str]) -> str:
    """Return the reason why a norm layer was not converted."""
    if isinstance(site.what, Unsupported):
        return site.what.reason
    if site.what.kind in kinds:
        return "not chosen"
    reason = "may see a single value per channel" if site.what.kind == "batch1d" else f"of kind {site.what.kind!r}"
    return f"{reason}; name it in layers=, or add {site.what.kind!r} to kinds=, to convert it"


def notes_on(built: list[tuple[Site, nn.Module]], norm: str) -> list[str]:
    """Return what a conversion did not carry over, or carried over in a way worth saying."""
    old_and_new = [(site.what, _norm_of(new)) for site, new in built if isinstance(site.what, Recognized)]
    found = {
        "gated": sum(bool(getattr(new, "gated_rescale", False)) for _, new in old_and_new),
        "running": sum(what.running_mean is not None and not _tracks(new) for what, new in old_and_new),
        "affine": sum(what.weight is not None and not has_affine(new) for what, new in old_and_new),
        "fresh": sum(what.running_mean is None and _tracks(new) for what, new in old_and_new),
        "alone": sum(what.is_synchronized and _tracks(new) for what, new in old_and_new),
        "plain": sum(what.weight is None and what.bias is None and has_affine(new) for what, new in old_and_new),
        "frozen": sum(what.weight is not None and not what.weight.requires_grad for what, _ in old_and_new),
    }
    wording = {
        "gated": "the learned rescaling of {} is gated (gated_rescale=True), to keep the scale of trained activations",
        "running": f"running statistics of {{}} are not used by {norm!r}",
        "affine": f"affine values of {{}} are not used by {norm!r}",
        "fresh": "{} had no running statistics, and the new ones start with 0 and 1: train, or asrnorm.reestimate",
        "alone": "{} took statistics over all processes, and the new ones take those of their own",
        "plain": "{} had no gain and bias, and the new ones are trained",
        "frozen": "affine values of {} were frozen and stay frozen; learned networks are trainable",
    }
    notes = [wording[key].format(count_layers(count)) for key, count in found.items() if count]
    hooked = [site.name for site, _ in built if has_state_hooks(site.module)]
    return notes + [f"{name}: its hooks on the state dict stay with the original" for name in hooked]


def _norm_of(module: nn.Module) -> nn.Module:
    return module.norm if isinstance(module, NormAct) else module


def _tracks(norm: nn.Module) -> bool:
    return any(getattr(module, "running_mean", None) is not None for module in norm.modules())


def count_layers(count: int) -> str:
    """Return a number of layers in words."""
    return "1 layer" if count == 1 else f"{count} layers"


logger = logging.getLogger("asrnorm")

_SUMMARIES = "_asrnorm_conversions"


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

    New layers keep the affine values, device, dtype, training flag and hooks of the old ones, and the activation where
    the old ones had it built in. Where they inherit values from training, `gated_rescale` is on unless given, so that
    the learned rescaling does not change the scale that the next layers expect. What changed and what was left alone:
    `print(asrnorm.conversion_summary(model))`.

    Args:
        model: any network. A single norm layer is allowed: use the returned one.
        norm: a registry name, or a factory that takes `num_features`, `device` and `dtype`.
        layers: a preset (`"auto"`, `"all"`, `"first"`, `"early"`, `"but-last"`, `"stages"`, `"resnet-12"`,
            `"resnet-12b"`), a name pattern or several (`"layer1.*"`), or a function of name and module. `"auto"` takes
            `"early"` in a trained network whose names show stages, else `"all"`.
        kinds: which norms presets and wildcards may choose: `"batch"` (2d, 3d, sync, frozen), `"batch1d"`, `"group"`,
            `"instance"`, `"layer2d"`. An exact name or a function may choose any of them.
        optimizer: gets the new parameters in place of the old ones, in the same groups.
        **options: of the norm.

    Returns:
        The model.

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
    check_arguments(model, norm, layers, kinds, optimizer, options)
    if recognize(model) is not None:
        return _convert_alone(model, norm, optimizer, options)
    sites = find_sites(model)
    chosen, chosen_by = choose(sites, layers, kinds, norm)
    check_choice(model, sites, chosen, kinds)
    picked = pick_preset(sites, norm, kinds) if layers == "auto" else "all"
    given, options = options, _with_safe_default(norm, chosen, options)
    label = norm if isinstance(norm, str) else getattr(norm, "__name__", repr(norm))
    summary = ConversionSummary(label, chosen_by)
    before = _count(model)
    like = default_factory(model)
    # All new layers are built before the first is put in, so that an error leaves the model as it was.
    built = [(site, build_replacement(site.module, _recognized(site), norm, options, like)) for site in chosen]
    for site, new in built:
        _put(site, new)
        summary.converted.append((" = ".join(site.names), type(site.module).__name__, repr_line(new)))
    exchange_references(model, {site.module: new for site, new in built})
    summary.left = [(s.name, type(s.module).__name__, why_left(s, kinds)) for s in sites if s not in chosen]
    summary.notes += [*notes_on(built, label), *_note_on_loading(picked, given, options)]
    if optimizer is not None:
        turn = next_turn(optimizer)
        for site, new in built:
            if (original := original_of(new)) is not None:
                original.optimizer, original.turn = mark(optimizer), turn
                original.homes = find_homes(optimizer, site.module)
        summary.notes += exchange(optimizer, [(site.name, site.module, new) for site, new in built])
    summary.parameters = before, _count(model)
    model.__dict__.setdefault(_SUMMARIES, []).append(summary)
    logger.info("%s", summary)
    return model


def revert(model: nn.Module, *, optimizer: Optimizer | None = None) -> nn.Module:
    """Put the original norm layers back, the same objects with the state they had at the conversion.

    They follow the model to the device, the mode and the dtype that it has been moved to since.

    Args:
        model: a converted model, or a copy of one.
        optimizer: gets the old parameters back in place of the new ones.

    Returns:
        The model.

    Raises:
        ConversionError: nothing was converted, or the model is compiled or wrapped.

    Example:
        >>> model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8))
        >>> norm = model[1]
        >>> revert(convert(model, "asr"))[1] is norm
        True
    """
    refuse_wrapped(model)
    refuse_other_optimizer(optimizer)
    like = next((parameter for parameter in model.parameters() if parameter.is_floating_point()), None)
    own = first_original(model)
    if own is not None:
        alone = restore_original(model, like)
        if optimizer is not None:
            exchange(optimizer, [("", model, alone)], [_homes(own, optimizer)])
        return alone
    places = [
        (f"{prefix}.{child_name}" if prefix else child_name, parent, child_name, child)
        for prefix, parent in model.named_modules()
        for child_name, child in parent._modules.items()
        if child is not None and original_of(child) is not None
    ]
    # All of them before the first is put in, so that an error leaves the model as it was.
    pairs = [(name, child, restore_original(child, like)) for name, _, _, child in places]
    for (_, parent, child_name, _), (_, _, old) in zip(places, pairs, strict=True):
        parent._modules[child_name] = old
    if not pairs:
        raise ConversionError(
            f"{type(model).__name__} holds no converted layer to revert; original layers travel with the model object "
            "and its copies, not with a state dict: build the original model anew and load its weights"
        )
    exchange_references(model, {new: old for _, new, old in pairs})
    if optimizer is not None:
        unique = list({id(new): (name, new, old) for name, new, old in pairs}.values())
        turns = [original.turn if (original := first_original(new)) is not None else 0 for _, new, _ in unique]
        for turn in sorted(set(turns), reverse=True):  # backwards, so that each finds the groups as it left them
            back = [pair for pair, its_turn in zip(unique, turns, strict=True) if its_turn == turn]
            exchange(optimizer, back, [_homes(first_original(new), optimizer) for _, new, _ in back])
    for module in model.modules():  # a part may have been converted on its own
        module.__dict__.pop(_SUMMARIES, None)
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


def _convert_alone(layer: nn.Module, norm: Any, optimizer: Optimizer | None, options: dict[str, Any]) -> nn.Module:
    if isinstance(what := recognize(layer), Unsupported):
        raise ConversionError(f"{type(layer).__name__} cannot be converted: {what.reason}")
    holder = nn.Sequential(layer)
    convert(holder, norm, layers="all", kinds=KINDS, optimizer=optimizer, **options)
    holder[0].__dict__[_SUMMARIES] = holder.__dict__[_SUMMARIES]
    return holder[0]


def _with_safe_default(norm: Any, chosen: list[Site], options: dict[str, Any]) -> dict[str, Any]:
    takes_gate = "gated_rescale" in options_of(norm)
    if not takes_gate or "gated_rescale" in options or options.get("rescale") is False:
        return options
    # Paper: directly replacing BN in a trained network fails, since the next layers expect its scale.
    return {**options, "gated_rescale": any(_recognized(site).is_trained() for site in chosen)}


def _note_on_loading(picked: str, given: dict[str, Any], options: dict[str, Any]) -> list[str]:
    """How a fresh network takes a state dict of this one, where its training decided what was made of it."""
    decided = [] if "gated_rescale" in given or not options.get("gated_rescale") else ["gated_rescale=True"]
    if picked != "all":  # which a network that is not trained gets too
        decided.insert(0, f"layers={picked!r}")
    if not decided:
        return []
    return [
        f"to load a state dict of this into a network that is not trained yet, convert that with {', '.join(decided)}"
    ]


def _recognized(site: Site) -> Recognized:
    assert isinstance(site.what, Recognized)
    return site.what


def _put(site: Site, new: nn.Module) -> None:
    for parent, child_name in site.places:
        parent._modules[child_name] = new


def _homes(original: Original | None, optimizer: Optimizer) -> Homes | None:
    return original.homes if original is not None and original.optimizer == mark(optimizer) else None


def _count(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters() if not is_lazy(p))
