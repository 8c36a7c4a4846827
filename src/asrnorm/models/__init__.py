"""Backbones: importing a module here exports and registers its networks."""

from collections.abc import Collection, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from torch import nn

from asrnorm.conversion import convert
from asrnorm.conversion.layer_kind import KINDS
from asrnorm.conversion.select import Layers, find_sites
from asrnorm.core.errors import InputError
from asrnorm.models.base import MODELS as MODELS
from asrnorm.models.base import Classifier as Classifier
from asrnorm.models.base import Normalize as Normalize
from asrnorm.models.base import check_parts
from asrnorm.models.digits_convnet import DigitsConvNet as DigitsConvNet
from asrnorm.models.hub import from_pretrained as from_pretrained
from asrnorm.models.hub import push_to_hub as push_to_hub
from asrnorm.models.hub import save_pretrained as save_pretrained
from asrnorm.models.resnet import ResNet as ResNet
from asrnorm.models.rotation_resnet import RotationResNet as RotationResNet
from asrnorm.models.saved_model import load as load
from asrnorm.models.saved_model import remember_call
from asrnorm.models.saved_model import save as save
from asrnorm.models.timm_network import TimmNetwork as TimmNetwork
from asrnorm.models.weights import load_weights as load_weights
from asrnorm.models.wideresnet import WideResNet as WideResNet
from asrnorm.norms import NORMS, BatchNorm

# Norms after dense layers are only ever removed: most other norms cannot replace them.
_SPATIAL = tuple(kind for kind in KINDS if kind != "batch1d")


def list_models() -> tuple[str, ...]:
    """Return the names of all backbones.

    Example:
        >>> list_models()
        ('digits_convnet', 'resnet18', 'resnet26_ttt', 'resnet50', 'timm', 'wrn_16_4', 'wrn_40_2', 'wrn_40_4')
    """
    return MODELS.names()


def create_model(
    name: str,
    *,
    norm: str | None = None,
    norm_options: dict[str, Any] | None = None,
    weights: str | Path | None = None,
    layers: Layers = "auto",
    **options: Any,
) -> Classifier:
    """Return a backbone by its registry name.

    Args:
        name: registry name of the backbone.
        norm: registry name of its norm layers; `None` keeps the network's default (none for the ConvNet, BN
            elsewhere). A network without a `norm_layer` option is converted.
        norm_options: options of the norm.
        weights: a file of pretrained weights. They are loaded into the network with BN, whose norms are then converted
            by `asrnorm.convert`, which keeps trained values.
        layers: the layers to convert; only with `weights`.
        **options: options of the backbone, such as `num_classes`.

    Example:
        >>> model = create_model("wrn_16_4", norm="asr", num_classes=10)
        >>> type(model.norm).__name__
        'ASRNorm2d'
    """
    norm_options = norm_options or {}
    MODELS.check(name, options)
    if isinstance(classes := options.get("num_classes"), int) and classes < 1:
        raise InputError(f"{name}: num_classes must be at least 1, not {classes}")
    if norm is not None:
        NORMS.check(norm, norm_options)
    if norm is not None and weights is None and "norm_layer" in MODELS.options(name):
        model = MODELS[name](norm_layer=partial(NORMS[norm], **norm_options), **options)
        check_parts(name, model)
        _check_norm_is_used(name, model, norm)
        remember_call(model, name=name, norm=norm, norm_options=norm_options, options=options)
        return model
    model = MODELS[name](**options)
    check_parts(name, model)
    remember_call(model, name=name, norm=None, norm_options={}, options=options)  # conversions are kept by the layers
    if weights is not None:
        load_weights(model, weights)
        if norm is not None and replaces_norms(model, norm, norm_options):
            convert(model, norm, layers=layers, **norm_options)
    elif norm is not None:
        _convert_all(model, norm, norm_options)
    return model


def replaces_norms(model: nn.Module, norm: str, norm_options: Mapping[str, Any]) -> bool:
    """Return whether a trained network needs conversion to a norm: not if it already has BN, or has no norms.

    Example:
        >>> model = create_model("wrn_16_4")
        >>> [replaces_norms(model, *wanted) for wanted in (("bn", {}), ("bn", {"momentum": 0.01}), ("in", {}))]
        [False, True, True]
    """
    if norm == "none":
        return bool(_norms_of(model, KINDS))
    return bool(norm_options) or norm != "bn" or not _has(model, nn.modules.batchnorm._BatchNorm)


def _convert_all(model: nn.Module, norm: str, norm_options: Mapping[str, Any]) -> None:
    """Convert all norms of a network without a `norm_layer` option, unless they are the wanted ones."""
    kinds = KINDS if norm == "none" else _SPATIAL
    norms = _norms_of(model, kinds)
    if norm == "none" and not norms:
        return
    # PyTorch's own BN is converted too, because processes cannot share its statistics.
    if norm == "bn" and not norm_options and norms and all(isinstance(layer, BatchNorm) for layer in norms):
        return
    convert(model, norm, layers="all", kinds=kinds, **norm_options)


def _norms_of(model: nn.Module, kinds: Collection[str]) -> list[nn.Module]:
    return [site.module for site in find_sites(model) if site.is_kind(kinds)]


def _check_norm_is_used(name: str, model: Classifier, norm: str) -> None:
    kind = nn.modules.batchnorm._BatchNorm if norm == "bn" else NORMS[norm]
    if norm != "none" and isinstance(kind, type) and not _has(model, kind):
        raise InputError(
            f"model {name!r} has no {norm!r} layer: it ignores its norm_layer argument; build its norms with "
            "norm_layer, or remove the argument, and they are converted"
        )


def _has(model: nn.Module, kind: type) -> bool:
    return any(isinstance(part, kind) for part in model.modules())
