"""`convert` and `revert`: the norm layers of a network exchanged in place, and back."""

import logging
from collections.abc import Callable, Collection
from typing import Any

from torch import nn
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer

from asrnorm.conversion.kind import DEFAULT_KINDS, KINDS, Recognized, Unsupported, default_factory, recognize
from asrnorm.conversion.optimizer import Homes, exchange, find_homes, mark, next_turn
from asrnorm.conversion.reference import exchange_references
from asrnorm.conversion.refusal import check_arguments, check_choice, refuse_other_optimizer, refuse_wrapped, unwrap
from asrnorm.conversion.replace import (
    Original,
    build_replacement,
    first_original,
    options_of,
    original_of,
    restore_original,
)
from asrnorm.conversion.select import Layers, choose, pick_preset
from asrnorm.conversion.site import Site, find_sites
from asrnorm.conversion.summary import ConversionSummary, notes_on, repr_line, why_left
from asrnorm.errors import ConversionError
from asrnorm.norms import NormLayer

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
