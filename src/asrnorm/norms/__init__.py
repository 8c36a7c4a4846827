"""Norm layers: importing a layer here exports and registers it."""

from typing import Any

from torch import nn

from asrnorm.norms.asr import ARNorm2d as ARNorm2d
from asrnorm.norms.asr import ASNorm2d as ASNorm2d
from asrnorm.norms.asr import ASRNorm2d as ASRNorm2d
from asrnorm.norms.base import NORMS as NORMS
from asrnorm.norms.base import NoNorm as NoNorm
from asrnorm.norms.base import NormLayer as NormLayer
from asrnorm.norms.batch import BatchNorm as BatchNorm
from asrnorm.norms.batch import BatchNormTest as BatchNormTest
from asrnorm.norms.batch import DomainBatchNorm as DomainBatchNorm
from asrnorm.norms.batch import set_domain as set_domain
from asrnorm.norms.dson import DomainMixedNorm as DomainMixedNorm
from asrnorm.norms.group import GroupNorm as GroupNorm
from asrnorm.norms.group import InstanceNorm as InstanceNorm
from asrnorm.norms.group import LayerNorm as LayerNorm
from asrnorm.norms.ilm import ILMNorm as ILMNorm
from asrnorm.norms.switchable import BatchInstanceNorm as BatchInstanceNorm
from asrnorm.norms.switchable import SwitchNorm as SwitchNorm
from asrnorm.norms.switchable import SwitchNormInLn as SwitchNormInLn


def list_norms() -> tuple[str, ...]:
    """Return the names of all norms.

    Example:
        >>> "asr" in list_norms()
        True
    """
    return NORMS.names()


def create_norm(name: str, num_features: int, **options: Any) -> nn.Module:
    """Return a norm layer by its registry name; the error for an unknown name or option suggests the nearest one.

    Example:
        >>> create_norm("gn", 64, num_groups=8)
        GroupNorm(64, num_groups=8)
    """
    NORMS.check(name, options)
    return NORMS[name](num_features, **options)
