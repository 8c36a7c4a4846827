"""The registry of backbones and the three parts that training methods reach into."""

from abc import ABC, abstractmethod
from collections.abc import Callable

from torch import Tensor, nn

from asrnorm.norms import NormLayer
from asrnorm.registry import Registry

NormFactory = Callable[[int], nn.Module]

MODELS: Registry[Callable[..., "Classifier"]] = Registry("model")


class Classifier(nn.Module, ABC):
    """A network in three parts: `features`, `embed` and `classify`; `forward` is their composition."""

    num_classes: int

    def loadable(self) -> tuple[nn.Module, str]:
        """Return the module whose keys a file of pretrained weights has, and the name of its classifier there."""
        return self, "fc"

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


def classifier_head(model: nn.Module) -> nn.Linear | None:
    """Return the layer that gives the logits: the last linear one with an output for each class, outside of norms.

    Example:
        >>> from asrnorm.models import create_model
        >>> classifier_head(create_model("wrn_16_4", norm="asr", num_classes=7))
        Linear(in_features=256, out_features=7, bias=True)
    """
    inside = {id(part) for norm in model.modules() if isinstance(norm, NormLayer) for part in norm.modules()}
    classes = getattr(model, "num_classes", None)
    dense = [m for m in model.modules() if isinstance(m, nn.Linear) and m.out_features == classes]
    return next((layer for layer in reversed(dense) if id(layer) not in inside), None)
