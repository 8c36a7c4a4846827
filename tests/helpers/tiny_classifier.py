"""Networks so small that a step on them can be worked out by hand."""

import torch
from torch import nn

from asrnorm.models import Classifier


class FixedMaps(Classifier):
    """Its last map is a parameter, whatever the images: after backward a dropped feature has gradient 0, others not.

    The embedding is the mean over positions, the logits a product with `weight`, `(classes, channels)`.
    """

    def __init__(self, maps, weight):
        super().__init__()
        self.maps = nn.Parameter(torch.as_tensor(maps, dtype=torch.float64))
        self.weight = nn.Parameter(torch.as_tensor(weight, dtype=torch.float64))
        self.num_classes = len(self.weight)

    def features(self, x):  # noqa: ARG002
        return self.maps

    def embed(self, maps):
        return maps.mean((2, 3))

    def classify(self, embedding):
        return embedding @ self.weight.T

    def dropped(self):
        """What the last backward found masked."""
        return self.maps.grad == 0


class FlatHead(FixedMaps):
    """As `FixedMaps`, with a weight for every position of every channel."""

    def embed(self, maps):
        return maps.flatten(1)


class Weigh(nn.Module):
    """Multiply a map by fixed numbers and take the mean of every 2x2; notes the mode it ran in."""

    def __init__(self, factors):
        super().__init__()
        self.register_buffer("factors", torch.as_tensor(factors, dtype=torch.float64))
        self.modes = []

    def forward(self, x):
        self.modes.append(self.training)
        return nn.functional.avg_pool2d(x * self.factors, 2)


class TwoStages(FixedMaps):
    """As `FixedMaps`, with the parameter before a last stage; the images add nothing to it."""

    def __init__(self, maps, factors, weight):
        super().__init__(maps, weight)
        self.layer3 = nn.Identity()
        self.layer4 = Weigh(factors)

    def features(self, x):  # noqa: ARG002
        return self.layer4(self.layer3(self.maps))


class LightRed(Classifier):
    """Answers 1 where the mean of the red channel is at least 100 of 255, else 0."""

    num_classes = 2

    def __init__(self):
        super().__init__()
        self.unused = nn.Parameter(torch.zeros(()))
        self.norm = nn.BatchNorm2d(3)

    def features(self, x):
        self.norm(x)
        return x[:, :1]

    def embed(self, maps):
        return maps.mean((2, 3)) - 99.5 / 255

    def classify(self, embedding):
        return torch.cat([-embedding, embedding], 1) + self.unused
