"""Build the layer that takes another's place, and keep the old one out of sight so that it can come back."""

import copy
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from asrnorm.conversion.layer_kind import Recognized
from asrnorm.core.errors import ConversionError
from asrnorm.norms import NORMS, NoNorm, NormLayer

_ORIGINAL = "_asrnorm_original"
# Shared with the layer that is replaced, so that a handle's remove() still works.
_HOOKS = (
    "_forward_hooks",
    "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called",
    "_forward_pre_hooks",
    "_forward_pre_hooks_with_kwargs",
    "_backward_hooks",
    "_backward_pre_hooks",
)
_STATE_HOOKS = (
    "_state_dict_hooks",
    "_state_dict_pre_hooks",
    "_load_state_dict_pre_hooks",
    "_load_state_dict_post_hooks",
)


class NormAct(nn.Module):
    """A norm with the dropout and activation that its predecessor had in itself (timm's `BatchNormAct2d`).

    Example:
        >>> NormAct(nn.BatchNorm2d(8), None, nn.ReLU())(torch.randn(2, 8, 4, 4)).min().item()
        0.0
    """

    def __init__(self, norm: nn.Module, drop: nn.Module | None, act: nn.Module | None) -> None:
        super().__init__()
        self.norm = norm
        self.drop = drop if drop is not None else nn.Identity()
        self.act = act if act is not None else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """Return the activated, normalized `x`."""
        return self.act(self.drop(self.norm(x)))


@dataclass
class Original:
    """The layer that was replaced. Not a module, so that parameters(), state_dict() and DDP do not see inside.

    Attributes:
        module: the layer.
        dtype: of its replacement when that was made; where the replacement has no values, of the model.
        optimizer: the mark of the one that the conversion was told of; another, made later, has groups of its own.
        homes: that optimizer's group of each of its parameters, and its place there, by name.
        turn: number of the conversion among those that this optimizer was given to.
    """

    module: nn.Module
    dtype: torch.dtype
    optimizer: str | None = None
    homes: dict[str, tuple[int, int]] = field(default_factory=dict)
    turn: int = 0


def build_replacement(
    old: nn.Module,
    what: Recognized,
    factory: str | Callable[..., nn.Module],
    options: dict[str, Any],
    like: dict[str, Any],
) -> nn.Module:
    """Return a new layer with the old one's values, device, dtype, training flag and hooks."""
    settings = {"eps": what.eps, "num_groups": what.num_groups}
    takes = options_of(factory)
    kept = {name: value for name, value in settings.items() if value is not None and name in takes}
    arguments = {**kept, **what.factory(like), **options}
    make = NORMS[factory] if isinstance(factory, str) else factory
    norm = make(what.num_features, **arguments)
    inherit_values(norm, what)
    if isinstance(norm, NormLayer):
        norm.input_rank = what.input_rank
    if isinstance(norm, NoNorm):
        norm.copies = True
    if what.running_mean is not None and hasattr(old, "momentum") and "momentum" not in options:
        for module in norm.modules():
            if getattr(module, "running_mean", None) is not None and hasattr(module, "momentum"):
                module.momentum = what.momentum  # type: ignore[assignment]
    new = norm
    if what.drop is not None or what.act is not None:
        new = NormAct(norm, _own(what.drop), _own(what.act))
    new.train(old.training)
    for name in _HOOKS:
        new.__dict__[name] = old.__dict__[name]
    new._is_full_backward_hook = old._is_full_backward_hook
    setattr(new, _ORIGINAL, Original(old, _floating_dtype(new) or like["dtype"]))
    return new


def options_of(factory: str | Callable[..., nn.Module]) -> set[str]:
    """Return the names of the options that a norm takes, registered or not; none where Python cannot tell.

    Example:
        >>> sorted(options_of(nn.GroupNorm))
        ['affine', 'bias', 'device', 'dtype', 'eps', 'num_channels', 'num_groups']
    """
    if isinstance(factory, str):
        return set(NORMS.options(factory))
    try:
        return set(inspect.signature(factory).parameters)
    except (TypeError, ValueError):
        return set()


def inherit_values(norm: nn.Module, what: Recognized) -> None:
    """Give a new layer what the old one learned, as far as it has places for it."""
    values = (what.weight, what.bias, what.running_mean, what.running_var, what.num_batches_tracked)
    if isinstance(norm, NormLayer):
        norm.inherit(*values)
        return
    names = ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
    with torch.no_grad():
        for name, value in zip(names, values, strict=True):
            own = getattr(norm, name, None)
            if isinstance(own, Tensor) and value is not None and own.numel() == value.numel():
                own.copy_(value.reshape(own.shape))
                if isinstance(own, nn.Parameter):
                    own.requires_grad_(value.requires_grad)


def has_affine(norm: nn.Module) -> bool:
    """Tell whether a layer has places for the gain and bias of another."""
    if isinstance(norm, NormLayer):
        inner = [module for module in norm.modules() if isinstance(module, NormLayer)]
        return any(value is not None for module in inner for value in module.affine_pair())
    return any(isinstance(getattr(norm, name, None), nn.Parameter) for name in ("weight", "bias"))


def original_of(module: nn.Module) -> Original | None:
    """Return what a layer replaced, `None` where it replaced nothing."""
    found = module.__dict__.get(_ORIGINAL)
    return found if isinstance(found, Original) else None


def first_original(replacement: nn.Module) -> Original | None:
    """Return what stood in a layer's place before any conversion, `None` where it replaced nothing."""
    *_, last = [None, *(original for _, original in _links(replacement))]
    return last


def restore_original(replacement: nn.Module, like: Tensor | None) -> nn.Module:
    """Return the oldest layer on the device, in the mode, and in the dtype the model has been moved to since.

    Args:
        replacement: what stands in its place.
        like: of the model; where the replacement has no values, they tell where the model is.

    Raises:
        ConversionError: the old layer never had values.
    """
    links = list(_links(replacement))
    old = links[-1][1].module
    now = next((t for t in (*replacement.parameters(), *replacement.buffers()) if t.is_floating_point()), like)
    if now is not None:
        # Values are those of the conversion; a cast happens only where the user cast the whole model.
        was_cast = any((_floating_dtype(layer) or now.dtype) != original.dtype for layer, original in links)
        if not now.is_meta and any(t.is_meta for t in (*old.parameters(), *old.buffers())):
            raise ConversionError(
                "the original layers were converted on the meta device and never had values: "
                "build the model anew, without converting it, and load its weights"
            )
        old.to(device=now.device, dtype=now.dtype if was_cast else None)
    old._is_full_backward_hook = replacement._is_full_backward_hook
    return old.train(replacement.training)


def _links(replacement: nn.Module) -> Iterator[tuple[nn.Module, Original]]:
    """Each layer that stood there, from the last on, with what it replaced: more than one if converted again."""
    layer = replacement
    while (original := original_of(layer)) is not None:
        yield layer, original
        layer = original.module


def has_state_hooks(module: nn.Module) -> bool:
    """Tell whether hooks on its state dict would be lost; they are written for the old layer's keys."""
    return any(module.__dict__.get(name) for name in _STATE_HOOKS)


def _floating_dtype(module: nn.Module) -> torch.dtype | None:
    return next((t.dtype for t in (*module.parameters(), *module.buffers()) if t.is_floating_point()), None)


def _own(module: nn.Module | None) -> nn.Module | None:
    # An activation with parameters is copied, so that training does not reach the original's state.
    return copy.deepcopy(module) if module is not None and any(True for _ in module.parameters()) else module
