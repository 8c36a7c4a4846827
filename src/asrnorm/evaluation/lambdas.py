"""The lambdas of a network's ASR layers: how far each has moved from the native statistics to the learned ones."""

import torch
from torch import nn


def collect_lambdas(model: nn.Module) -> dict[str, dict[str, float]]:
    """Return the squashed lambdas of every layer that has some, by module name; the mean where they are per channel.

    A layer is known by its method `lambdas()`, so that a user's own layers are found too.

    Example:
        >>> from asrnorm.models import create_model
        >>> found = collect_lambdas(create_model("digits_convnet", norm="asr"))
        >>> sorted(found), round(found["norm1"]["lambda_mu"], 4)
        (['norm1', 'norm2'], 0.0474)
    """
    names: list[tuple[str, str]] = []
    means = []
    for layer_name, module in model.named_modules():
        lambdas = getattr(module, "lambdas", None)
        if not callable(lambdas):
            continue
        for name, value in lambdas().items():
            names.append((layer_name, name))
            means.append(value.detach().float().mean())
    found: dict[str, dict[str, float]] = {}
    if means:  # one copy from the device for all layers
        for (layer_name, name), value in zip(names, torch.stack(means).tolist(), strict=True):
            found.setdefault(layer_name, {})[name] = value
    return found
