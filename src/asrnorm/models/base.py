"""The registry of backbones and the three parts that training methods reach into."""

from abc import ABC, abstractmethod
from collections.abc import Callable

from torch import Tensor, nn

from asrnorm.errors import InputError
from asrnorm.norms import NormLayer
from asrnorm.registry import Registry

NormFactory = Callable[[int], nn.Module]

PARTS = ("features", "embed", "classify")  # what methods call of a model

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


def check_parts(name: str, model: nn.Module) -> None:
    """Refuse a backbone without what the package calls of it.

    Raises:
        InputError: a part or the number of classes is missing.
    """
    missing = [part for part in PARTS if not callable(getattr(model, part, None))]
    if missing:
        raise InputError(f"model {name!r} has no {', '.join(missing)}: derive it from asrnorm.models.Classifier")
    if not isinstance(getattr(model, "num_classes", None), int):
        raise InputError(f"model {name!r} does not say its number of classes: set self.num_classes in its constructor")


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
