"""Contexts that put a model in evaluation mode for an ascent, an attack or a search, and restore it afterwards."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Put a model in evaluation mode, then restore the mode of every module.

    Modules are restored one by one, so that norms frozen in evaluation mode stay frozen.
    """
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


@contextmanager
def frozen_eval(model: nn.Module) -> Iterator[None]:
    """Put a model in evaluation mode and freeze its parameters, so that only its input has a gradient.

    Otherwise norm layers would compute the gradients of their weights even if only those of the images are asked for.
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
def no_autocast_cache() -> Iterator[None]:
    """Turn off autocast's cache of weight casts, as in a CUDA graph: cached casts round an ascent differently."""
    before = torch.is_autocast_cache_enabled()
    torch.set_autocast_cache_enabled(False)
    try:
        yield
    finally:
        torch.set_autocast_cache_enabled(before)


def mixes_samples(model: nn.Module) -> bool:
    """Tell whether a norm uses the statistics of the batch even in evaluation mode: images affect each other."""
    with evaluating(model):
        return any(map(looks_at_batch, model.modules()))


def looks_at_batch(module: nn.Module) -> bool:
    """Tell whether a layer, in its current mode, uses the statistics of the batch."""
    uses_batch = getattr(module, "uses_batch", None)
    if callable(uses_batch):
        return bool(uses_batch())
    return isinstance(module, nn.modules.batchnorm._BatchNorm) and module.running_mean is None
