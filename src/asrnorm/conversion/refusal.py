"""What cannot be converted, each with the way out."""

from collections.abc import Collection, Sequence
from typing import Any

import torch
from torch import nn

from asrnorm.conversion.kind import KINDS, Recognized, Unsupported
from asrnorm.conversion.replace import original_of
from asrnorm.conversion.site import Site
from asrnorm.errors import ConversionError, InputTypeError, UnknownNameError, describe_unknown
from asrnorm.norms import NORMS

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
