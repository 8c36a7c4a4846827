"""A network with a norm of each kind that conversion meets first, and one whose norms have learned something."""

import torch
from torch import nn


def small_net():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Conv2d(8, 16, 3),
        nn.BatchNorm2d(16),
        nn.Flatten(),
        nn.LazyLinear(4),
        nn.BatchNorm1d(4),
    )


def trained(model, x=None):
    """A model whose norms have learned something, in evaluation mode."""
    x = torch.randn(8, 3, 12, 12) if x is None else x
    with torch.no_grad():
        model(x)
        for module in model.modules():
            if isinstance(module, nn.modules.batchnorm._BatchNorm):
                module.weight.uniform_(0.5, 1.5)
                module.bias.normal_()
        model(x)
    return model.eval()
