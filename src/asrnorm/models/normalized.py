"""Networks that take images in [0, 1] and normalize them themselves."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from asrnorm.errors import InputTypeError
from asrnorm.models.base import PARTS, Classifier


class Normalize(nn.Module):
    """Mean and deviation of a data set as the first layer of any network, so that methods and attacks work on [0, 1].

    Args:
        mean: of each channel.
        std: of each channel.

    Example:
        >>> network = nn.Sequential(Normalize((0.5, 0.5, 0.5), (0.25, 0.25, 0.25)), nn.Conv2d(3, 8, 3))
        >>> network[0](torch.zeros(1, 3, 1, 1)).flatten().tolist()
        [-2.0, -2.0, -2.0]
    """

    mean: Tensor
    std: Tensor

    def __init__(self, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor(mean).reshape(1, -1, 1, 1))
        self.register_buffer("std", torch.tensor(std).reshape(1, -1, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        """Return the normalized images."""
        return (x - self.mean) / self.std


class NormalizedInput(Classifier):
    """Mean and deviation of the data set in front of a backbone, so that methods and attacks work on [0, 1].

    Args:
        backbone: any classifier; before a network without its parts, put `Normalize` in an `nn.Sequential`.
        mean: of each channel.
        std: of each channel.

    Example:
        >>> from asrnorm.models import create_model
        >>> model = NormalizedInput(create_model("wrn_16_4"), (0.5, 0.5, 0.5), (0.25, 0.25, 0.25))
        >>> model(torch.rand(2, 3, 32, 32)).shape
        torch.Size([2, 10])
    """

    mean: Tensor
    std: Tensor

    def __init__(self, backbone: Classifier, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        if not all(hasattr(backbone, part) for part in PARTS):
            raise InputTypeError(
                f"{type(backbone).__name__} has no {', '.join(PARTS)}; put asrnorm.models.Normalize(mean, std) before "
                "it in an nn.Sequential"
            )
        self.backbone = backbone
        self.num_classes = backbone.num_classes
        self.register_buffer("mean", torch.tensor(mean).reshape(1, 3, 1, 1))
        self.register_buffer("std", torch.tensor(std).reshape(1, 3, 1, 1))

    def features(self, x: Tensor) -> Tensor:
        """Return the backbone's last spatial map of the normalized images."""
        return self.backbone.features((x - self.mean) / self.std)

    def embed(self, maps: Tensor) -> Tensor:
        """Return the backbone's semantic vector."""
        return self.backbone.embed(maps)

    def classify(self, embedding: Tensor) -> Tensor:
        """Return the logits."""
        return self.backbone.classify(embedding)
