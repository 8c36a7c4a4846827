"""The model as evaluation sees it, for the time of an ascent, an attack or a search."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Put a model in evaluation mode and give every module its own mode back.

    Modules are restored one by one: a network whose norms were frozen in evaluation mode stays so.

    Example:
        >>> layer = nn.Dropout()
        >>> with evaluating(layer):
        ...     layer.training
        False
        >>> layer.training
        True
    """
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training
