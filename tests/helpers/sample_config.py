"""A config for the tests of configs."""

from asrnorm.core.config import Choice, OptimConfig, RunConfig


def make(**changes):
    """Return it with some fields replaced."""
    values = {
        "recipe": "pacs.rsc_asr",
        "suite": Choice(name="pacs", args={"source": "photo"}),
        "model": Choice(name="resnet18"),
        "norm": Choice(name="asr"),
        "method": Choice(name="rsc", args={"interval": 100, "batch_share": 0.5, "version": "v1", "clip": False}),
        "optim": OptimConfig(lr=0.004),
        "steps": 330,
        "batch_size": 128,
    }
    return RunConfig(**{**values, **changes})
