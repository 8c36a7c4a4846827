"""Backbones: one line a file, which exports and registers its networks."""

from functools import partial
from pathlib import Path
from typing import Any

from asrnorm.conversion import convert
from asrnorm.conversion.select import Layers
from asrnorm.errors import InputError
from asrnorm.models.base import MODELS as MODELS
from asrnorm.models.base import Classifier as Classifier
from asrnorm.models.digits_convnet import DigitsConvNet as DigitsConvNet
from asrnorm.models.resnet import ResNet as ResNet
from asrnorm.models.timm_network import TimmNetwork as TimmNetwork
from asrnorm.models.weight import WeightReport as WeightReport
from asrnorm.models.weight import load_weights as load_weights
from asrnorm.models.wideresnet import WideResNet as WideResNet
from asrnorm.norms import NORMS


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
            `None`.
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
    if weights is not None:
        model = MODELS[name](**options)
        load_weights(model, weights)
        if norm not in (None, "bn"):
            convert(model, norm, layers=layers, **norm_options)
        return model
    if norm is None:
        return MODELS[name](**options)
    return MODELS[name](norm_layer=partial(NORMS[norm], **norm_options), **options)
