"""What may be changed of a trained network before it is scored again, without training."""

from typing import TYPE_CHECKING

from asrnorm.config import RunConfig
from asrnorm.errors import InputError

if TYPE_CHECKING:
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


def change_limits(loaded: "LoadedRun", config: RunConfig) -> None:
    """Confine the learned means to their range on the run's own training images, or set them free."""
    if config.confine == loaded.config.confine:
        return
    if config.confine:
        from asrnorm.training.confinement import confine_to_source

        loaded.suite.require_source()
        confine_to_source(loaded.model, loaded.suite, config)
        return
    from asrnorm.norms import ASRNorm2d

    for layer in loaded.model.modules():
        if isinstance(layer, ASRNorm2d):
            layer.confine(None, None)
