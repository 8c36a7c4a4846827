"""ResNet-18 and ResNet-50 under torchvision's key names, so that its weights load.

He et al., *Deep Residual Learning for Image Recognition*, 2016; the stride of a bottleneck is in its 3x3 convolution.
"""

from collections.abc import Sequence
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from asrnorm.models.base import MODELS, Classifier, NormFactory
from asrnorm.norms import BatchNorm
from asrnorm.norms.base import norm_relu


class BasicBlock(nn.Module):
    """Two 3x3 convolutions and a shortcut."""

    expansion = 1

    def __init__(self, in_width: int, width: int, stride: int, norm_layer: NormFactory) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(in_width, width, 3, stride, padding=1, bias=False)
        self.bn1 = norm_layer(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn2 = norm_layer(width)
        self.downsample = _shortcut(in_width, width, stride, norm_layer)

    def forward(self, x: Tensor) -> Tensor:
        """Return the block's output."""
        y = norm_relu(self.bn1, self.conv1(x))
        y = self.bn2(self.conv2(y))
        return F.relu(y + (x if self.downsample is None else self.downsample(x)))


class Bottleneck(nn.Module):
    """1x1, 3x3 and 1x1 convolutions and a shortcut."""

    expansion = 4

    def __init__(self, in_width: int, width: int, stride: int, norm_layer: NormFactory) -> None:
        super().__init__()
        out_width = width * self.expansion
        self.conv1 = nn.Conv2d(in_width, width, 1, bias=False)
        self.bn1 = norm_layer(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, padding=1, bias=False)
        self.bn2 = norm_layer(width)
        self.conv3 = nn.Conv2d(width, out_width, 1, bias=False)
        self.bn3 = norm_layer(out_width)
        self.downsample = _shortcut(in_width, out_width, stride, norm_layer)

    def forward(self, x: Tensor) -> Tensor:
        """Return the block's output."""
        y = norm_relu(self.bn1, self.conv1(x))
        y = norm_relu(self.bn2, self.conv2(y))
        y = self.bn3(self.conv3(y))
        return F.relu(y + (x if self.downsample is None else self.downsample(x)))


class PooledClassifier(Classifier):
    """A network whose last map is averaged over its positions and classified by a linear layer, `fc`."""

    fc: nn.Linear

    def embed(self, maps: Tensor) -> Tensor:
        """Return the map averaged over its positions."""
        return maps.mean((2, 3))

    def classify(self, embedding: Tensor) -> Tensor:
        """Return the logits."""
        return self.fc(embedding)

    def initialize_convolutions(self) -> None:
        """Initialize all convolutions as He et al. do, by their number of outputs."""
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")


class ResNet(PooledClassifier):
    """A residual network for images of about 224x224, with `depths` blocks in its four stages."""

    def __init__(
        self, block: Any, depths: Sequence[int], *, norm_layer: NormFactory = BatchNorm, num_classes: int = 1000
    ) -> None:
        super().__init__()
        self.num_classes = num_classes
        self.conv1 = nn.Conv2d(3, 64, 7, 2, padding=3, bias=False)
        self.bn1 = norm_layer(64)
        self.maxpool = nn.MaxPool2d(3, 2, padding=1)
        widths = [64, *(64 * 2**stage * block.expansion for stage in range(4))]
        self.layer1 = make_stage(block, depths[0], widths[0], 64, 1, norm_layer)
        self.layer2 = make_stage(block, depths[1], widths[1], 128, 2, norm_layer)
        self.layer3 = make_stage(block, depths[2], widths[2], 256, 2, norm_layer)
        self.layer4 = make_stage(block, depths[3], widths[3], 512, 2, norm_layer)
        self.fc = nn.Linear(widths[4], num_classes)
        self.initialize_convolutions()

    def features(self, x: Tensor) -> Tensor:
        """Return the output of the last stage, 7x7 for images of 224 or 222."""
        x = self.maxpool(norm_relu(self.bn1, self.conv1(x)))
        return self.layer4(self.layer3(self.layer2(self.layer1(x))))


def make_stage(
    block: Any, depth: int, in_width: int, width: int, stride: int, norm_layer: NormFactory
) -> nn.Sequential:
    """Return `depth` blocks of a class; the first has the stride and leads to `width` times the block's `expansion`."""
    rest = (block(width * block.expansion, width, 1, norm_layer) for _ in range(depth - 1))
    return nn.Sequential(block(in_width, width, stride, norm_layer), *rest)


def _shortcut(in_width: int, width: int, stride: int, norm_layer: NormFactory) -> nn.Sequential | None:
    if stride == 1 and in_width == width:
        return None
    return nn.Sequential(nn.Conv2d(in_width, width, 1, stride, bias=False), norm_layer(width))


@MODELS.register("resnet18")
def resnet18(*, norm_layer: NormFactory = BatchNorm, num_classes: int = 1000) -> ResNet:
    """ResNet-18, the paper's network for PACS, with torchvision's key names."""
    return ResNet(BasicBlock, (2, 2, 2, 2), norm_layer=norm_layer, num_classes=num_classes)


@MODELS.register("resnet50")
def resnet50(*, norm_layer: NormFactory = BatchNorm, num_classes: int = 1000) -> ResNet:
    """ResNet-50, with torchvision's key names."""
    return ResNet(Bottleneck, (3, 4, 6, 3), norm_layer=norm_layer, num_classes=num_classes)
