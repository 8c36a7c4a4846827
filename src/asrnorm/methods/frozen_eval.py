"""The model as evaluation sees it, for the time of an ascent, an attack or a search."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
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


@contextmanager
def held_fixed(model: nn.Module) -> Iterator[None]:
    """Put a model in evaluation mode with no gradient wanted of its parameters, only of what it is given.

    Asked for the gradient of the images alone, autograd would have the norm layers compute those of their weights too.

    Example:
        >>> layer = nn.Linear(2, 1)
        >>> with held_fixed(layer):
        ...     layer.weight.requires_grad
        False
        >>> layer.weight.requires_grad
        True
    """
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    with evaluating(model):
        try:
            for parameter in trained:
                parameter.requires_grad_(False)
            yield
        finally:
            for parameter in trained:
                parameter.requires_grad_(True)


@contextmanager
def casting_anew() -> Iterator[None]:
    """Let autocast keep no casts of the weights, as in a graph: kept ones round an ascent otherwise than fresh ones do.

    Example:
        >>> with casting_anew():
        ...     torch.is_autocast_cache_enabled()
        False
        >>> torch.is_autocast_cache_enabled()
        True
    """
    before = torch.is_autocast_cache_enabled()
    torch.set_autocast_cache_enabled(False)
    try:
        yield
    finally:
        torch.set_autocast_cache_enabled(before)


def mixes_samples(model: nn.Module) -> bool:
    """Tell whether what a model makes of an image in evaluation depends on the others of its batch.

    So it does where a norm takes the statistics of the batch even then.

    Example:
        >>> mixes_samples(nn.BatchNorm2d(3)), mixes_samples(nn.BatchNorm2d(3, track_running_stats=False))
        (False, True)
    """
    with evaluating(model):
        return any(map(looks_at_batch, model.modules()))


def looks_at_batch(module: nn.Module) -> bool:
    """Tell whether a layer, in the mode it is in, takes the statistics of the batch it is given."""
    uses_batch = getattr(module, "uses_batch", None)
    if callable(uses_batch):
        return bool(uses_batch())
    return isinstance(module, nn.modules.batchnorm._BatchNorm) and module.running_mean is None
