"""The registry of backbones, their base class, and input normalization as a part of the network."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import asrnorm
from asrnorm.core.errors import InputError, InputTypeError
from asrnorm.core.registry import Registry
from asrnorm.norms import DomainMixedNorm, NormLayer, set_domain

NormFactory = Callable[[int], nn.Module]

PARTS = ("features", "embed", "classify")  # the methods of a model that training methods call

MODELS: Registry[Callable[..., "Classifier"]] = Registry("model")


class Classifier(nn.Module, ABC):
    """A network in three parts: `features`, `embed` and `classify`; `forward` is their composition."""

    num_classes: int

    def loadable(self) -> tuple[nn.Module, str]:
        """Return the module that pretrained weights are loaded into, and the name of its classifier."""
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

    def save_pretrained(self, folder: str | Path, **options: Any) -> None:
        """Save the network as `asrnorm.save_pretrained` does."""
        asrnorm.save_pretrained(self, folder, **options)

    def push_to_hub(self, repo_id: str, **options: Any) -> str:
        """Upload the network as `asrnorm.push_to_hub` does."""
        return asrnorm.push_to_hub(self, repo_id, **options)

    @staticmethod
    def from_pretrained(where: str | Path, **options: Any) -> nn.Module:
        """Return a network as `asrnorm.from_pretrained` does, of the class that was saved."""
        return asrnorm.from_pretrained(where, **options)


def check_parts(name: str, model: nn.Module) -> None:
    """Raise `InputError` if a backbone lacks one of `PARTS` or `num_classes`."""
    missing = [part for part in PARTS if not callable(getattr(model, part, None))]
    if missing:
        raise InputError(f"model {name!r} has no {', '.join(missing)}: derive it from asrnorm.models.Classifier")
    if not isinstance(getattr(model, "num_classes", None), int):
        raise InputError(f"model {name!r} has no num_classes: set self.num_classes in its constructor")


def classifier_head(model: nn.Module) -> nn.Linear | None:
    """Return the layer that computes the logits: the last linear layer outside norms with one output per class."""
    inside = {id(part) for norm in model.modules() if isinstance(norm, NormLayer) for part in norm.modules()}
    classes = getattr(model, "num_classes", None)
    dense = [m for m in model.modules() if isinstance(m, nn.Linear) and m.out_features == classes]
    return next((layer for layer in reversed(dense) if id(layer) not in inside), None)


class Normalize(nn.Module):
    """Input normalization as the first layer of any network, so that methods and attacks work on images in [0, 1].

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


class _Wrapper(Classifier):
    def __init__(self, backbone: Classifier) -> None:
        super().__init__()
        self.backbone = backbone
        self.num_classes = backbone.num_classes

    def features(self, x: Tensor) -> Tensor:
        """Return the backbone's last spatial map."""
        return self.backbone.features(x)

    def embed(self, maps: Tensor) -> Tensor:
        """Return the backbone's semantic vector."""
        return self.backbone.embed(maps)

    def classify(self, embedding: Tensor) -> Tensor:
        """Return the logits."""
        return self.backbone.classify(embedding)


class NormalizedInput(_Wrapper):
    """A backbone with input normalization, so that methods and attacks work on images in [0, 1].

    For networks that are no `Classifier`, put `Normalize` before them in an `nn.Sequential`.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, backbone: Classifier, mean: Sequence[float], std: Sequence[float]) -> None:
        if not all(hasattr(backbone, part) for part in PARTS):
            raise InputTypeError(
                f"{type(backbone).__name__} has no {', '.join(PARTS)}; put asrnorm.models.Normalize(mean, std) before "
                "it in an nn.Sequential"
            )
        super().__init__(backbone)
        self.register_buffer("mean", torch.tensor(mean).reshape(1, 3, 1, 1))
        self.register_buffer("std", torch.tensor(std).reshape(1, 3, 1, 1))

    def features(self, x: Tensor) -> Tensor:
        """Return the backbone's last spatial map of the normalized images."""
        return self.backbone.features((x - self.mean) / self.std)


class DomainAverage(_Wrapper):
    """A backbone with `dson` layers: in evaluation its logits are those of the mean prediction over all domains."""

    def __init__(self, backbone: Classifier) -> None:
        super().__init__(backbone)
        self.num_domains = count_domains(backbone)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of the domain that is set; in evaluation the log of the mean probability over domains."""
        if self.training:
            return super().forward(x)
        branches = []
        for domain in range(self.num_domains):
            set_domain(self.backbone, domain)
            branches.append(super().forward(x).log_softmax(1))
        return torch.stack(branches).logsumexp(0) - math.log(self.num_domains)


def count_domains(model: nn.Module) -> int:
    """Return the number of domains of a model's `dson` layers, 0 if it has none."""
    return next((len(layer.domains) for layer in model.modules() if isinstance(layer, DomainMixedNorm)), 0)
