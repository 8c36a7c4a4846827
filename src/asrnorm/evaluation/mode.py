"""Evaluation mode for the time of a measurement."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Put a model in evaluation mode, and every part of it back into its own mode afterwards.

    `model.train()` would also wake up parts that were frozen on purpose.

    Example:
        >>> model = nn.Sequential(nn.Dropout(), nn.BatchNorm2d(3).eval())
        >>> with evaluating(model):
        ...     model[0].training
        False
        >>> model[0].training, model[1].training
        (True, False)
    """
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training
