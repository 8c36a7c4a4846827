"""The registry of backbones and the three parts that training methods reach into."""

from abc import ABC, abstractmethod
from collections.abc import Callable

from torch import Tensor, nn

from asrnorm.registry import Registry

NormFactory = Callable[[int], nn.Module]

MODELS: Registry[Callable[..., "Classifier"]] = Registry("model")


class Classifier(nn.Module, ABC):
    """A network in three parts: `features`, `embed` and `classify`; `forward` is their composition."""

    num_classes: int

    @abstractmethod
    def features(self, x: Tensor) -> Tensor:
        """Return the last spatial map `(n, c, h, w)` of images `(n, 3, h, w)`; RSC masks it."""

    @abstractmethod
    def embed(self, maps: Tensor) -> Tensor:
        """Return the semantic vector `(n, d)` before the classifier; ADA measures its distance there."""

    @abstractmethod
    def classify(self, embedding: Tensor) -> Tensor:
        """Return the logits `(n, num_classes)`."""

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of images."""
        return self.classify(self.embed(self.features(x)))
