"""What may be changed of a trained network before it is scored again, without training."""

from dataclasses import replace
from typing import TYPE_CHECKING

from asrnorm.config import RunConfig
from asrnorm.errors import InputError

if TYPE_CHECKING:
    from torch import nn

    from asrnorm.data import Suite
    from asrnorm.training import LoadedRun


def change_norm(loaded: "LoadedRun", config: RunConfig) -> None:
    """Let BN look at the test batch, where that is asked for."""
    if config.norm == loaded.config.norm:
        return
    if (loaded.config.norm.name, config.norm.name) != ("bn", "bn_test"):
        raise InputError(
            f"a trained network keeps its norm: {loaded.config.norm.name!r} cannot become {config.norm.name!r}; "
            "only 'bn' can become 'bn_test'"
        )
    if config.norm.args not in ({}, loaded.config.norm.args):
        raise InputError("bn_test has the options that the run's bn was trained with: leave norm.OPTION out")
    from asrnorm.conversion import convert

    convert(loaded.model, "bn_test", layers="all", **loaded.config.norm.args)


def change_limits(loaded: "LoadedRun", config: RunConfig, suite: "Suite | None") -> None:
    """Confine the learned means to their range on the run's own training images, or set them free.

    Args:
        loaded: the run; its network is changed.
        config: with what was changed.
        suite: that of the training; it is not needed where limits are lifted.
    """
    if config.confine and suite is not None:
        from asrnorm.training.confinement import confine_to_source

        confine_to_source(loaded.model, suite, config)
        return
    from asrnorm.norms import ASRNorm2d

    for layer in loaded.model.modules():
        if isinstance(layer, ASRNorm2d):
            layer.confine(None, None)


def validate_limits(loaded: "LoadedRun", config: RunConfig, suite: "Suite", limit: int) -> dict[str, float]:
    """Return the accuracy on validation images of the source, once limits were set or lifted: what to choose them by.

    Args:
        loaded: the run, its network changed.
        config: with what was changed.
        suite: that of the training.
        limit: images at most, 0 for all.
    """
    from asrnorm.training.selection import validate
    from asrnorm.world import ALONE

    device = next(loaded.model.parameters()).device
    return validate(loaded.model, suite, replace(config, evaluate_limit=limit), device, ALONE)


def describe_device(model: "nn.Module") -> str:
    """Return where a model lies, a GPU by its name.

    Example:
        >>> from torch import nn
        >>> describe_device(nn.Linear(1, 1))
        'cpu'
    """
    import torch

    device = next(model.parameters()).device
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
