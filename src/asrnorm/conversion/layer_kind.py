"""Recognize the norm layers of a network and read the values that a replacement inherits.

Layers of torchvision and timm are recognized by class name and attributes, so that neither needs to be installed.
"""

from dataclasses import dataclass
from inspect import getattr_static
from typing import Any, TypeGuard

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm
from torch.nn.modules.lazy import LazyModuleMixin
from torch.nn.utils import parametrize

from asrnorm.norms import BatchNorm, BatchNormTest, GroupNorm, InstanceNorm, LayerNorm, NormLayer
from asrnorm.norms.asr import WEIGHT_HOOKS

KINDS = ("batch", "batch1d", "group", "instance", "layer2d")
DEFAULT_KINDS = ("batch",)

_TYPES: dict[str, tuple[type[nn.Module], ...]] = {
    "batch1d": (nn.BatchNorm1d,),
    "batch": (nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm, BatchNorm, BatchNormTest),
    "group": (nn.GroupNorm, GroupNorm, LayerNorm),
    "instance": (nn.InstanceNorm2d, nn.InstanceNorm3d, InstanceNorm),
}
# Classes of torchvision, timm and detectron2.
_FOREIGN_NAMES = {
    "batch": ("BatchNormAct2d", "SyncBatchNormAct", "FrozenBatchNorm2d", "FrozenBatchNormAct2d"),
    "group": ("GroupNorm", "GroupNorm1", "GroupNormAct", "GroupNorm1Act"),
    "layer2d": ("LayerNorm2d", "LayerNormAct2d"),
}
_FOREIGN_MODULES = ("timm.", "torchvision.", "detectron2.")
# Number of axes of a batch; the layer rejects inputs with another, or takes them for a single image.
_RANK_OF_TYPE: dict[type, int] = {
    **dict.fromkeys((nn.BatchNorm2d, nn.InstanceNorm2d), 4),
    **dict.fromkeys((nn.BatchNorm3d, nn.InstanceNorm3d), 5),
}
_TORCH_NORMS = (_BatchNorm, _InstanceNorm, nn.GroupNorm, nn.LayerNorm)

# Overriding these changes how a subclass is initialized, printed, saved or loaded, and not what it computes.
_HARMLESS = {
    "extra_repr",
    "reset_parameters",
    "reset_running_stats",
    "_get_name",
    "_version",
    "_load_from_state_dict",
    "_save_to_state_dict",
    "get_extra_state",
    "set_extra_state",
}
# Special methods that a call uses, and values that a property may compute.
_CALLED = {"__call__", "__getattr__", "__getattribute__"}
_VALUES = {"weight", "bias", "running_mean", "running_var", "num_batches_tracked", "eps", "momentum", "training"}


@dataclass(frozen=True)
class NormSpec:
    """Kind, settings and values of a norm layer that can be replaced."""

    kind: str
    num_features: int
    eps: float
    momentum: float | None = None
    weight: Tensor | None = None
    bias: Tensor | None = None
    running_mean: Tensor | None = None
    running_var: Tensor | None = None
    num_batches_tracked: Tensor | None = None
    drop: nn.Module | None = None
    act: nn.Module | None = None
    num_groups: int | None = None
    input_rank: int | None = None
    is_synchronized: bool = False

    def factory_kwargs(self, fallback: dict[str, Any]) -> dict[str, Any]:
        """Return device and dtype of the layer, `fallback` if it has no tensors."""
        for tensor in (self.weight, self.running_mean):
            if tensor is not None:
                return {"device": tensor.device, "dtype": tensor.dtype}
        return fallback

    def is_trained(self) -> bool:
        """Return whether the layer has been trained: its values differ from those of a new one."""
        if _is_readable(self.num_batches_tracked) and int(self.num_batches_tracked) > 0:
            return True
        # A constant gain is an initialization: ones, or zeros in the last norm of a block.
        if _is_readable(self.weight) and bool((self.weight != self.weight.flatten()[0]).any()):
            return True
        if _is_readable(self.bias) and bool(self.bias.any()):
            return True
        if _is_readable(self.running_mean) and bool(self.running_mean.any()):
            return True
        # detectron2's frozen layers start with a variance of 1 - eps.
        return _is_readable(self.running_var) and bool(((self.running_var - 1).abs() > 2 * self.eps).any())


@dataclass(frozen=True)
class Unsupported:
    """Why a layer that looks like a norm cannot be replaced."""

    reason: str


def recognize(module: nn.Module) -> NormSpec | Unsupported | None:
    """Return the description of a norm layer; `None` if a module is no norm."""
    if isinstance(module, LazyModuleMixin) and module.has_uninitialized_params():
        if "Norm" in type(module).__name__:
            return Unsupported("lazy and not initialized; run one batch through the model first")
        return None
    if parametrize.is_parametrized(module) and isinstance(module, _TORCH_NORMS):
        return Unsupported("parametrized; remove the parametrization first")
    base = next((c for c in type(module).__mro__ if _kind(c) is not None), None)
    if base is None or _changed(module, base):
        return _why_not(module)
    if any(isinstance(hook, WEIGHT_HOOKS) for hook in module._forward_pre_hooks.values()):
        return Unsupported("a hook computes its weight, as pruning does; make that permanent first")
    return _read(module, base)


def _why_not(module: nn.Module) -> Unsupported | None:
    """Return why a layer cannot be replaced; `None` if it does not look like a norm."""
    own = type(module)
    if isinstance(module, NormLayer):
        return Unsupported(f"is {own.__name__} already")
    if isinstance(module, _TORCH_NORMS):
        base = next(c for c in own.__mro__ if _kind(c) is not None or c.__module__.startswith("torch."))
        if changed := _changed(module, base):
            return Unsupported(
                f"an unknown subclass of {base.__name__} that overrides {', '.join(changed)}, which a conversion would "
                "lose; replace it yourself with a layer from asrnorm.create_norm"
            )
        if base is nn.LayerNorm:
            return Unsupported("normalizes the last axis, not the channels of (N, C, ...)")
        return Unsupported(f"{base.__name__} is not a kind that can be converted")
    if "Norm" in own.__name__ and not list(module.children()):
        return Unsupported(f"an unknown norm, {own.__module__}.{own.__name__}")
    return None


def _kind(own: type) -> str | None:
    exact = next((kind for kind, types in _TYPES.items() if own in types), None)
    if exact is None and _is_foreign(own):
        return next((kind for kind, names in _FOREIGN_NAMES.items() if own.__name__ in names), None)
    return exact


def _is_foreign(own: type) -> bool:
    return own.__module__.startswith(_FOREIGN_MODULES)


def _changed(module: nn.Module, base: type) -> list[str]:
    """Return the attributes that a layer or its class overrides and that may change what `base` computes."""
    own = type(module)
    methods = {name for name in dir(base) if not name.startswith("__") and callable(getattr_static(base, name))}
    itself = sorted(methods & vars(module).keys() - _HARMLESS)
    if own is base:
        return itself
    names = {name for name in dir(base) if not name.startswith("__")} | _CALLED | _VALUES
    overridden = [
        name
        for name in sorted(names - _HARMLESS)
        if getattr_static(own, name, None) is not getattr_static(base, name, None)
    ]
    return list(dict.fromkeys([*overridden, *itself]))


def _read(module: nn.Module, base: type) -> NormSpec | Unsupported:
    kind = _kind(base)
    assert kind is not None
    parts = {name: getattr(module, name, None) if _is_foreign(base) else None for name in ("drop", "act")}
    tensors = {name: getattr(module, name, None) for name in ("weight", "bias", "running_mean", "running_var")}
    num_features = _num_features(module, tensors["weight"])
    if num_features is None:
        return Unsupported("without a number of channels")
    return NormSpec(
        kind=kind,
        num_features=num_features,
        eps=float(getattr(module, "eps", 1e-5)),
        momentum=getattr(module, "momentum", None),
        **tensors,
        num_batches_tracked=getattr(module, "num_batches_tracked", None),
        drop=_unless_identity(parts["drop"]),
        act=_unless_identity(parts["act"]),
        num_groups=getattr(module, "num_groups", None) if kind == "group" else None,
        input_rank=_RANK_OF_TYPE.get(base, getattr(module, "input_rank", None)),
        is_synchronized=isinstance(module, nn.SyncBatchNorm),
    )


def _num_features(module: nn.Module, weight: Tensor | None) -> int | None:
    for name in ("num_features", "num_channels"):
        if isinstance(getattr(module, name, None), int):
            return int(getattr(module, name))
    shape = getattr(module, "normalized_shape", None)
    if weight is None:
        return int(shape[0]) if shape is not None else None
    return int(weight.numel())


def _is_readable(tensor: Tensor | None) -> TypeGuard[Tensor]:
    return tensor is not None and not tensor.is_meta and tensor.numel() > 0


def _unless_identity(module: Any) -> nn.Module | None:
    return module if isinstance(module, nn.Module) and not isinstance(module, nn.Identity) else None


def factory_kwargs(model: nn.Module) -> dict[str, Any]:
    """Return device and dtype of the first floating-point parameter of a model, otherwise PyTorch's defaults."""
    for parameter in model.parameters():
        if parameter.is_floating_point():
            return {"device": parameter.device, "dtype": parameter.dtype}
    return {"device": torch.get_default_device(), "dtype": torch.get_default_dtype()}
