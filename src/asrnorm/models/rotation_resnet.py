"""The network of TTT: a thin ResNet-26 for 32x32 images with a second branch that names the angle of an image.

Sun et al., *Test-Time Training with Self-Supervision for Generalization under Distribution Shifts*, ICML 2020, after
the code that its authors released.
"""

import copy

import torch.nn.functional as F
from torch import Tensor, nn

from asrnorm.core.errors import InputError
from asrnorm.models.base import MODELS, NormalizedInput, NormFactory
from asrnorm.models.resnet import PooledClassifier, make_stage
from asrnorm.norms import BatchNorm
from asrnorm.norms.base import norm_relu

_WIDTHS = (16, 32, 64)
_BLOCKS = 4  # in each stage
ANGLES = 4


class PooledShortcutBlock(nn.Module):
    """Norm-ReLU-conv twice; a shortcut to a wider map is average-pooled, its new channels are zero."""

    expansion = 1

    def __init__(self, in_width: int, width: int, stride: int, norm_layer: NormFactory) -> None:
        super().__init__()
        self.norm1 = norm_layer(in_width)
        self.conv1 = nn.Conv2d(in_width, width, 3, stride, padding=1, bias=False)
        self.norm2 = norm_layer(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.stride, self.new_channels = stride, width - in_width

    def forward(self, x: Tensor) -> Tensor:
        """Return the block's output."""
        residual = self.conv2(norm_relu(self.norm2, self.conv1(norm_relu(self.norm1, x))))
        if self.stride > 1:
            x = F.avg_pool2d(x, self.stride)
        return residual + F.pad(x, (0, 0, 0, 0, 0, self.new_channels))


class RotationBranch(nn.Module):
    """A stage, norm, ReLU, pooling and a linear layer: from the maps of the second stage to the logits of the angle."""

    def __init__(self, stage: nn.Module, norm: nn.Module) -> None:
        super().__init__()
        self.stage, self.norm = stage, norm
        self.fc = nn.Linear(_WIDTHS[-1], ANGLES)

    def forward(self, maps: Tensor) -> Tensor:
        """Return the logits of the angle."""
        return self.fc(norm_relu(self.norm, self.stage(maps)).mean((2, 3)))


@MODELS.register("resnet26_ttt")
class RotationResNet(PooledClassifier):
    """ResNet-26 with a rotation branch, TTT's network for CIFAR-10-C.

    The branch follows the second stage and starts as a copy of the third.

    Example:
        >>> sum(p.numel() for p in RotationResNet().parameters())
        644766
    """

    adapted = ("conv1", "layer1", "layer2", "rotation")  # what the angle depends on

    def __init__(self, *, norm_layer: NormFactory = BatchNorm, num_classes: int = 10) -> None:
        super().__init__()
        self.num_classes = num_classes
        self.conv1 = nn.Conv2d(3, _WIDTHS[0], 3, padding=1, bias=False)
        self.layer1 = make_stage(PooledShortcutBlock, _BLOCKS, _WIDTHS[0], _WIDTHS[0], 1, norm_layer)
        self.layer2 = make_stage(PooledShortcutBlock, _BLOCKS, _WIDTHS[0], _WIDTHS[1], 2, norm_layer)
        self.layer3 = make_stage(PooledShortcutBlock, _BLOCKS, _WIDTHS[1], _WIDTHS[2], 2, norm_layer)
        self.norm = norm_layer(_WIDTHS[2])
        self.initialize_convolutions()
        self.rotation = RotationBranch(copy.deepcopy(self.layer3), copy.deepcopy(self.norm))
        self.fc = nn.Linear(_WIDTHS[2], num_classes)

    def features(self, x: Tensor) -> Tensor:
        """Return the last map, after the final norm and ReLU."""
        return norm_relu(self.norm, self.layer3(self.layer2(self.layer1(self.conv1(x)))))


def find_rotation(model: nn.Module) -> RotationResNet | None:
    """Return the network with a rotation branch inside a model, `None` if it has none."""
    return next((module for module in model.modules() if isinstance(module, RotationResNet)), None)


def rotation_logits(model: nn.Module, images: Tensor) -> Tensor:
    """Return the logits of the angle of images in [0, 1]; raise `InputError` if the model has no rotation branch."""
    if isinstance(model, NormalizedInput):
        return rotation_logits(model.backbone, (images - model.mean) / model.std)
    if not isinstance(model, RotationResNet):
        raise InputError(
            f"{type(model).__name__} has no branch that names the angle of an image; use model=resnet26_ttt"
        )
    return model.rotation(model.layer2(model.layer1(model.conv1(images))))
