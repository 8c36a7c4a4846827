"""A network small enough to differentiate by hand, and pools of random images for it."""

import numpy as np
import torch
from torch import Tensor, nn

from asrnorm.data.image_set import ImageSet
from asrnorm.data.pool import Pool
from asrnorm.models import Classifier

CLASSES = 4


class SmoothNet(Classifier):
    """tanh of one linear layer, then another: without kinks, so that finite differences hold.

    With `norm`, a batch norm and dropout stand before it, which evaluation mode has to switch off.
    """

    def __init__(self, *, size: int = 4, width: int = 5, norm: bool = False, seed: int = 0) -> None:
        super().__init__()
        self.num_classes = CLASSES
        self.front = nn.Sequential(nn.BatchNorm2d(3), nn.Dropout(0.5)) if norm else nn.Identity()
        self.hidden = nn.Linear(3 * size * size, width)
        self.last = nn.Linear(width, CLASSES)
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for parameter in (*self.hidden.parameters(), *self.last.parameters()):
                parameter.copy_(torch.randn(parameter.shape, generator=generator) / 2)
        self.double()

    def features(self, x: Tensor) -> Tensor:
        return self.front(x)

    def embed(self, maps: Tensor) -> Tensor:
        return torch.tanh(self.hidden(maps.flatten(1)))

    def classify(self, embedding: Tensor) -> Tensor:
        return self.last(embedding)


def random_images(count: int, *, size: int = 4, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    images = torch.rand((count, 3, size, size), generator=generator, dtype=torch.float64)
    return images, torch.randint(CLASSES, (count,), generator=generator)


def random_pool(count: int, *, size: int = 4, seed: int = 0) -> Pool:
    numbers = np.random.default_rng(seed)
    images = numbers.integers(0, 256, (count, size, size, 3), dtype=np.uint8)
    return Pool(ImageSet(images, numbers.integers(0, CLASSES, count)))


def everything(model: nn.Module) -> dict[str, object]:
    """All that a grow phase or an attack must leave as it was."""
    return {
        "state": {name: value.clone() for name, value in model.state_dict().items()},
        "modes": {name: module.training for name, module in model.named_modules()},
        "gradients": {n: None if p.grad is None else p.grad.clone() for n, p in model.named_parameters()},
        "trained": {name: parameter.requires_grad for name, parameter in model.named_parameters()},
    }


def assert_untouched(model: nn.Module, before: dict[str, object]) -> None:
    torch.testing.assert_close(everything(model), before, rtol=0, atol=0)
