"""Recognize the norm layers of a network and read the values that a replacement inherits.

Layers of torchvision and timm are recognized by class name and attributes, so that neither needs to be installed.
"""

from collections.abc import Callable
from dataclasses import dataclass
from inspect import getattr_static
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm
from torch.nn.modules.lazy import LazyModuleMixin
from torch.nn.utils import parametrize

from asrnorm.norms import BatchNorm, BatchNormTest, GroupNorm, InstanceNorm, LayerNorm, NormLayer
from asrnorm.norms.asr import WEIGHT_HOOKS

KINDS = ("batch", "batch1d", "group", "instance", "layer2d")
DEFAULT_KINDS = ("batch",)
VALUES = ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
"""Tensors that a replacement inherits."""

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
    *("extra_repr", "reset_parameters", "reset_running_stats", "_get_name", "_version"),
    *("_load_from_state_dict", "_save_to_state_dict", "get_extra_state", "set_extra_state"),
}
_LAST_AXIS = "normalizes the last axis, not the channels of (N, C, ...)"
# Special methods that a call uses, and attributes that a property may compute.
_USED = {"__call__", "__getattr__", "__getattribute__", *VALUES, "eps", "momentum", "training"}


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

    def is_trained(self) -> bool:
        """Return whether the layer has been trained: its values differ from those of a new one."""
        differs: list[tuple[Tensor | None, Callable[[Tensor], Tensor]]] = [
            (self.num_batches_tracked, lambda count: count > 0),
            # A constant gain is an initialization: ones, or zeros in the last norm of a block.
            (self.weight, lambda gain: gain != gain.flatten()[0]),
            (self.bias, lambda bias: bias != 0),
            (self.running_mean, lambda mean: mean != 0),
            # detectron2's frozen layers start with a variance of 1 - eps.
            (self.running_var, lambda variance: (variance - 1).abs() > 2 * self.eps),
        ]
        readable = ((value, test) for value, test in differs if value is not None and not value.is_meta)
        return any(value.numel() > 0 and bool(test(value).any()) for value, test in readable)


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
    is_channel_norm = base is None and _is_channel_norm(module)
    if not is_channel_norm and (base is None or _overridden(module, base)):
        return _why_not(module)
    if any(isinstance(hook, WEIGHT_HOOKS) for hook in module._forward_pre_hooks.values()):
        return Unsupported("a hook computes its weight, as pruning does; make that permanent first")
    if base is None:
        values: Any = module
        return NormSpec("layer2d", values.weight.numel(), float(values.eps), weight=values.weight, bias=values.bias)
    return _read(module, base)


def _is_channel_norm(module: Any) -> bool:
    """Tell whether a layer says that it normalizes the channels of `(N, C, H, W)`, and does just that.

    Hugging Face and the authors of ConvNeXt have a class each, with `data_format="channels_first"`; others are called
    `...LayerNorm2d`. On an image it must compute what a LayerNorm does; on the meta device its word is taken for it.
    """
    is_called_so = type(module).__name__.endswith("LayerNorm2d")
    if getattr(module, "data_format", "channels_first" if is_called_so else None) != "channels_first":
        return False
    values: list[Any] = [getattr(module, name, None) for name in ("weight", "bias", "eps")]
    weight, bias, eps = values
    has_values = eps is not None and all(isinstance(value, Tensor) and value.ndim == 1 for value in (weight, bias))
    if not has_values or "forward" in vars(module) or list(module.children()):
        return False
    if weight.is_meta:
        return True
    with torch.no_grad():
        wave = torch.linspace(-2, 3, 6 * len(weight), device=weight.device).cos()
        x_nchw = wave.to(weight.dtype).reshape(1, -1, 2, 3)
        expected = F.layer_norm(x_nchw.movedim(1, -1), weight.shape, weight, bias, float(eps)).movedim(-1, 1)
        try:
            found = type(module).forward(module, x_nchw)  # without its hooks
        except (RuntimeError, ValueError, TypeError):
            return False
    return found.shape == expected.shape and torch.allclose(found, expected, rtol=1e-2, atol=1e-3)


def _why_not(module: nn.Module) -> Unsupported | None:
    """Return why a layer cannot be replaced; `None` if it does not look like a norm."""
    own = type(module)
    if isinstance(module, NormLayer):
        return Unsupported(f"is {own.__name__} already")
    if isinstance(module, _TORCH_NORMS):
        base = next(c for c in own.__mro__ if _kind(c) is not None or c.__module__.startswith("torch."))
        if getattr(module, "data_format", None) == "channels_last":
            return Unsupported(_LAST_AXIS)
        if names := _overridden(module, base):
            return Unsupported(
                f"an unknown subclass of {base.__name__} that overrides {', '.join(names)}, which a conversion would "
                "lose; replace it yourself with a layer from asrnorm.create_norm"
            )
        if base is nn.LayerNorm:
            return Unsupported(_LAST_AXIS)
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


def _overridden(module: nn.Module, base: type) -> list[str]:
    """Return the attributes that a layer's class or the layer overrides and that may change what `base` computes."""
    own = type(module)
    names = {name for name in dir(base) if not name.startswith("__")}
    methods = {name for name in names if callable(getattr_static(base, name))}
    by_layer = sorted(methods & vars(module).keys() - _HARMLESS)
    if own is base:
        return by_layer
    by_class = [
        name
        for name in sorted((names | _USED) - _HARMLESS)
        if getattr_static(own, name, None) is not getattr_static(base, name, None)
    ]
    return list(dict.fromkeys([*by_class, *by_layer]))


def _read(module: nn.Module, base: type) -> NormSpec | Unsupported:
    kind = _kind(base)
    assert kind is not None
    num_features = _num_features(module)
    if num_features is None:
        return Unsupported("without a number of channels")
    parts: dict[str, Any] = {name: getattr(module, name, None) for name in ("drop", "act") if _is_foreign(base)}
    parts = {name: p for name, p in parts.items() if isinstance(p, nn.Module) and not isinstance(p, nn.Identity)}
    return NormSpec(
        kind=kind,
        num_features=num_features,
        eps=float(getattr(module, "eps", 1e-5)),
        momentum=getattr(module, "momentum", None),
        **{name: getattr(module, name, None) for name in VALUES},
        **parts,
        num_groups=getattr(module, "num_groups", None) if kind == "group" else None,
        input_rank=_RANK_OF_TYPE.get(base, getattr(module, "input_rank", None)),
        is_synchronized=isinstance(module, nn.SyncBatchNorm),
    )


def _num_features(module: Any) -> int | None:
    for name in ("num_features", "num_channels"):
        if isinstance(count := getattr(module, name, None), int):
            return count
    if getattr(module, "weight", None) is not None:
        return int(module.weight.numel())
    return int(module.normalized_shape[0]) if hasattr(module, "normalized_shape") else None


def factory_kwargs(model: nn.Module) -> dict[str, Any]:
    """Return device and dtype of the first floating-point parameter of a model, otherwise PyTorch's defaults."""
    for parameter in model.parameters():
        if parameter.is_floating_point():
            return {"device": parameter.device, "dtype": parameter.dtype}
    return {"device": torch.get_default_device(), "dtype": torch.get_default_dtype()}
