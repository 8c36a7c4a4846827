"""Build the layer that replaces another, keep the original with it, and restore it."""

import copy
import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from asrnorm.conversion.layer_kind import VALUES, NormSpec
from asrnorm.core.errors import ConversionError
from asrnorm.norms import NORMS, NoNorm, NormLayer

Positions = dict[str, tuple[int, int]]
"""Index of the parameter group, and index in it, of each parameter of a layer by name."""

_ORIGINAL = "_asrnorm_original"
# Shared with the replaced layer, so that the remove() of a handle still works.
_HOOKS = (
    *("_forward_hooks", "_forward_hooks_with_kwargs", "_forward_hooks_always_called"),
    *("_forward_pre_hooks", "_forward_pre_hooks_with_kwargs", "_backward_hooks", "_backward_pre_hooks"),
)
_STATE_HOOKS = (
    *("_state_dict_hooks", "_state_dict_pre_hooks", "_load_state_dict_pre_hooks", "_load_state_dict_post_hooks"),
)
_WITHOUT_MODULES = frozenset(vars(nn.Module())) - {"_modules"}  # PyTorch's registries of tensors and hooks


class NormAct(nn.Module):
    """A norm with the dropout and activation that the replaced layer had built in (timm's `BatchNormAct2d`)."""

    def __init__(self, norm: nn.Module, drop: nn.Module | None, act: nn.Module | None) -> None:
        super().__init__()
        self.norm = norm
        self.drop = drop if drop is not None else nn.Identity()
        self.act = act if act is not None else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """Return the activated, normalized `x`."""
        return self.act(self.drop(self.norm(x)))


@dataclass(frozen=True)
class Membership:
    """Where an optimizer had the parameters of a layer before its conversion."""

    optimizer: str  # identifier: one that is made later has groups of its own
    turn: int  # number of earlier conversions with this optimizer
    positions: Positions


@dataclass
class Original:
    """A replaced layer. Not a module, so that parameters(), state_dict() and DDP do not see inside."""

    module: nn.Module
    dtype: torch.dtype  # of its replacement when that was built; of the model if the replacement has no values
    membership: Membership | None = None
    norm: str | None = None  # registry name of the replacement; `None` if a factory that has none built it
    options: Mapping[str, Any] | None = None  # those given to it


def build_replacement(
    old: nn.Module, spec: NormSpec, norm: str | Callable[..., nn.Module], options: dict[str, Any], like: dict[str, Any]
) -> nn.Module:
    """Return a new layer with the old one's values, device, dtype, training flag and hooks.

    `spec` describes the old layer, `like` has the device and dtype to use if that has no tensors.
    """
    accepted = options_of(norm)
    settings = {"eps": spec.eps, "num_groups": spec.num_groups}
    inherited = {name: value for name, value in settings.items() if value is not None and name in accepted}
    make = NORMS[norm] if isinstance(norm, str) else norm
    tensor = spec.weight if spec.weight is not None else spec.running_mean
    factory = like if tensor is None else {"device": tensor.device, "dtype": tensor.dtype}
    new = make(spec.num_features, **{**inherited, **factory, **options})
    _copy_values(new, spec)
    if isinstance(new, NormLayer):
        new.input_rank = spec.input_rank
    if isinstance(new, NoNorm):
        new.copies = True
    if spec.running_mean is not None and hasattr(old, "momentum") and "momentum" not in options:
        for module in new.modules():
            if getattr(module, "running_mean", None) is not None and hasattr(module, "momentum"):
                module.momentum = spec.momentum  # type: ignore[assignment]
    if spec.drop is not None or spec.act is not None:
        # Training the copy of an activation with parameters does not change the original's state.
        parts = [copy.deepcopy(p) if p is not None and list(p.parameters()) else p for p in (spec.drop, spec.act)]
        new = NormAct(new, *parts)
    new.train(old.training)
    for name in _HOOKS:
        new.__dict__[name] = old.__dict__[name]
    new._is_full_backward_hook = old._is_full_backward_hook
    if isinstance(norm, partial) and not norm.args:  # of a registered class: saved like that class
        make, options = norm.func, {**norm.keywords, **options}
    registered = next((name for name in NORMS.names() if NORMS[name] is make), None)
    dtype = _floating_dtype(new) or like["dtype"]
    setattr(new, _ORIGINAL, Original(old, dtype, norm=registered, options=options))
    return new


def options_of(norm: str | Callable[..., nn.Module]) -> set[str]:
    """Return the names of the options of a norm or factory; none if Python cannot inspect it."""
    if isinstance(norm, str):
        return set(NORMS.options(norm))
    try:
        return set(inspect.signature(norm).parameters)
    except (TypeError, ValueError):
        return set()


def _copy_values(norm: nn.Module, spec: NormSpec) -> None:
    """Copy affine parameters and running statistics to the new layer where it has matching attributes."""
    values = {name: getattr(spec, name) for name in VALUES}
    if isinstance(norm, NormLayer):
        norm.inherit(*values.values())
        return
    with torch.no_grad():
        for name, value in values.items():
            own = getattr(norm, name, None)
            if isinstance(own, Tensor) and value is not None and own.numel() == value.numel():
                own.copy_(value.reshape(own.shape))
                if isinstance(own, nn.Parameter):
                    own.requires_grad_(value.requires_grad)


def has_affine(norm: nn.Module) -> bool:
    """Return whether a layer can take the gain and bias of another."""
    if isinstance(norm, NormLayer):
        inner = [module for module in norm.modules() if isinstance(module, NormLayer)]
        return any(value is not None for module in inner for value in module.affine_pair())
    return any(isinstance(getattr(norm, name, None), nn.Parameter) for name in ("weight", "bias"))


def has_state_hooks(module: nn.Module) -> bool:
    """Return whether a layer has hooks on its state dict; they depend on its keys and are not carried over."""
    return any(module.__dict__.get(name) for name in _STATE_HOOKS)


def original_of(module: nn.Module) -> Original | None:
    """Return the layer that a layer replaced, `None` if it replaced none."""
    found = module.__dict__.get(_ORIGINAL)
    return found if isinstance(found, Original) else None


def first_original(replacement: nn.Module) -> Original:
    """Return the layer that a converted layer replaced in the first of several conversions."""
    *_, (_, original) = conversions_of(replacement)
    return original


def restore_original(replacement: nn.Module, like: Tensor | None) -> nn.Module:
    """Return the first original on the device, in the mode and in the dtype that the model has now.

    `like` is a tensor of the model, for device and dtype if the replacement has no tensors.
    """
    links = list(conversions_of(replacement))
    old = links[-1][1].module
    now = next((t for t in _tensors(replacement) if t.is_floating_point()), like)
    if now is not None:
        if not now.is_meta and any(t.is_meta for t in _tensors(old)):
            raise ConversionError(
                "the original layers were converted on the meta device and never had values: "
                "build the model again, without converting it, and load its weights"
            )
        # The original keeps its own dtype unless the user has cast the model since the conversion.
        was_cast = any((_floating_dtype(layer) or now.dtype) != original.dtype for layer, original in links)
        old.to(device=now.device, dtype=now.dtype if was_cast else None)
    old._is_full_backward_hook = replacement._is_full_backward_hook
    return old.train(replacement.training)


def conversions_of(replacement: nn.Module) -> Iterator[tuple[nn.Module, Original]]:
    """Yield each layer with the one it replaced, the last conversion first."""
    layer = replacement
    while (original := original_of(layer)) is not None:
        yield layer, original
        layer = original.module


def _tensors(module: nn.Module) -> list[Tensor]:
    return [*module.parameters(), *module.buffers()]


def _floating_dtype(module: nn.Module) -> torch.dtype | None:
    return next((t.dtype for t in _tensors(module) if t.is_floating_point()), None)


def replace_layers(model: nn.Module, successors: Mapping[nn.Module, nn.Module]) -> None:
    """Replace layers of a network wherever its modules have them: as children, and in lists, tuples and dicts.

    A network may register its norms one by one and call them through a list: replaced in the registry alone, the new
    layers would never run.
    """
    seen: set[int] = set()
    for module in list(model.modules()):
        for name, value in list(vars(module).items()):
            if name not in _WITHOUT_MODULES and (new := _replaced(value, successors, seen)) is not value:
                vars(module)[name] = new


def _replaced(value: Any, successors: Mapping[nn.Module, nn.Module], seen: set[int]) -> Any:
    if isinstance(value, nn.Module):
        return successors.get(value, value)
    if id(value) in seen:
        return value
    if isinstance(value, list | dict):
        seen.add(id(value))
        for key, part in list(value.items() if isinstance(value, dict) else enumerate(value)):
            if (new := _replaced(part, successors, seen)) is not part:
                value[key] = new
    elif isinstance(value, tuple):
        parts = [_replaced(part, successors, seen) for part in value]
        if any(new is not old for new, old in zip(parts, value, strict=True)):
            return type(value)._make(parts) if hasattr(value, "_make") else tuple(parts)
    return value
