"""A model in evaluation for a while, and then exactly as it was."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Put a model into evaluation and give every module its own mode back, also after an error.

    `model.train()` would not do: layers that the user has frozen in evaluation would wake up.

    Example:
        >>> model = nn.Sequential(nn.BatchNorm2d(1), nn.BatchNorm2d(1).eval())
        >>> with evaluating(model):
        ...     print(model[0].training)
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
