"""Backbones: one line a file, which exports and registers its networks."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from torch import nn

from asrnorm.conversion import convert
from asrnorm.conversion.select import Layers
from asrnorm.errors import InputError
from asrnorm.models.base import MODELS as MODELS
from asrnorm.models.base import Classifier as Classifier
from asrnorm.models.base import check_parts
from asrnorm.models.digits_convnet import DigitsConvNet as DigitsConvNet
from asrnorm.models.normalized import Normalize as Normalize
from asrnorm.models.resnet import ResNet as ResNet
from asrnorm.models.timm_network import TimmNetwork as TimmNetwork
from asrnorm.models.weight import WeightReport as WeightReport
from asrnorm.models.weight import load_weights as load_weights
from asrnorm.models.wideresnet import WideResNet as WideResNet
from asrnorm.norms import NORMS, NoNorm

# What backbones come with: a norm of such a name is there where a layer is of such a kind.
_OWN: dict[str, type] = {"bn": nn.modules.batchnorm._BatchNorm, "none": NoNorm}


def list_models() -> tuple[str, ...]:
    """Return the names of all backbones.

    Example:
        >>> list_models()
        ('digits_convnet', 'resnet18', 'resnet50', 'timm', 'wrn_16_4', 'wrn_40_2', 'wrn_40_4')
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
        name: of the backbone.
        norm: name of the norm in all its norm layers; the network's own (none for the ConvNet, BN elsewhere) where
            `None`. A network that takes no `norm_layer` is converted to it.
        norm_options: options of the norm.
        weights: a file of pretrained weights. They are loaded into the network with BN, whose norms are then converted
            as `asrnorm.convert` does, so that trained values are kept.
        layers: which layers that conversion takes; only with `weights`.
        **options: of the backbone, such as `num_classes`.

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
        _refuse_ignored(name, model, norm)
        return model
    model = MODELS[name](**options)
    check_parts(name, model)
    if weights is not None:
        load_weights(model, weights)
    if norm is not None and replaces_norms(model, norm, norm_options):
        convert(model, norm, layers=layers if weights is not None else "all", **norm_options)
    return model


def replaces_norms(model: nn.Module, norm: str, norm_options: Mapping[str, Any]) -> bool:
    """Tell whether a network has to be converted to a norm: not to BN, nor to none, where that is its own already.

    Example:
        >>> model = create_model("wrn_16_4")
        >>> [replaces_norms(model, *wanted) for wanted in (("bn", {}), ("bn", {"momentum": 0.01}), ("in", {}))]
        [False, True, True]
    """
    return bool(norm_options) or norm not in _OWN or not _has(model, _OWN[norm])


def _refuse_ignored(name: str, model: Classifier, norm: str) -> None:
    kind = _OWN.get(norm, NORMS[norm])
    if norm != "none" and isinstance(kind, type) and not _has(model, kind):
        raise InputError(
            f"model {name!r} has no {norm!r} layer: it does not use the norm_layer it takes; make its norms with it, "
            "or leave that argument out, so that they are converted"
        )


def _has(model: nn.Module, kind: type) -> bool:
    return any(isinstance(part, kind) for part in model.modules())
