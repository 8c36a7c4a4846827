"""Wide residual networks for CIFAR.

Zagoruyko and Komodakis, *Wide Residual Networks*, 2016: pre-activation blocks, a 3x3 stem of 16 channels, three groups
of 16k, 32k and 64k channels, a 1x1 convolution on the shortcut where the width changes.
"""

from torch import Tensor, nn

from asrnorm.core.errors import InputError
from asrnorm.models.base import MODELS, NormFactory
from asrnorm.models.resnet import PooledClassifier, make_stage
from asrnorm.norms import BatchNorm
from asrnorm.norms.base import norm_relu

_STEM_WIDTH = 16


class PreActivationBlock(nn.Module):
    """Norm-ReLU-conv twice, with a shortcut; where the width changes, the shortcut starts after the first ReLU."""

    expansion = 1

    def __init__(self, in_width: int, width: int, stride: int, norm_layer: NormFactory) -> None:
        super().__init__()
        self.norm1 = norm_layer(in_width)
        self.conv1 = nn.Conv2d(in_width, width, 3, stride, padding=1, bias=False)
        self.norm2 = norm_layer(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.shortcut = None if in_width == width else nn.Conv2d(in_width, width, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return the block's output."""
        activated = norm_relu(self.norm1, x)
        residual = self.conv2(norm_relu(self.norm2, self.conv1(activated)))
        return residual + (x if self.shortcut is None else self.shortcut(activated))


class WideResNet(PooledClassifier):
    """A wide residual network of `depth` (6n + 4) layers, `widen` times as wide as the thin one."""

    def __init__(self, depth: int, widen: int, *, norm_layer: NormFactory = BatchNorm, num_classes: int = 10) -> None:
        super().__init__()
        if depth < 10 or (depth - 4) % 6:
            raise InputError(f"WideResNet: depth must be 6n + 4, not {depth}")
        self.num_classes = num_classes
        blocks = (depth - 4) // 6
        widths = [_STEM_WIDTH, 16 * widen, 32 * widen, 64 * widen]
        self.conv1 = nn.Conv2d(3, _STEM_WIDTH, 3, padding=1, bias=False)
        self.group1 = make_stage(PreActivationBlock, blocks, widths[0], widths[1], 1, norm_layer)
        self.group2 = make_stage(PreActivationBlock, blocks, widths[1], widths[2], 2, norm_layer)
        self.group3 = make_stage(PreActivationBlock, blocks, widths[2], widths[3], 2, norm_layer)
        self.norm = norm_layer(widths[3])
        self.fc = nn.Linear(widths[3], num_classes)
        self.initialize_convolutions()
        nn.init.zeros_(self.fc.bias)

    def features(self, x: Tensor) -> Tensor:
        """Return the last map, after the final norm and ReLU."""
        return norm_relu(self.norm, self.group3(self.group2(self.group1(self.conv1(x)))))


@MODELS.register("wrn_40_4")
def wrn_40_4(*, norm_layer: NormFactory = BatchNorm, num_classes: int = 10) -> WideResNet:
    """WideResNet of depth 40 and width 4, the paper's network for CIFAR-10-C."""
    return WideResNet(40, 4, norm_layer=norm_layer, num_classes=num_classes)


@MODELS.register("wrn_16_4")
def wrn_16_4(*, norm_layer: NormFactory = BatchNorm, num_classes: int = 10) -> WideResNet:
    """WideResNet of depth 16 and width 4, M-ADA's network for CIFAR-10-C."""
    return WideResNet(16, 4, norm_layer=norm_layer, num_classes=num_classes)


@MODELS.register("wrn_40_2")
def wrn_40_2(*, norm_layer: NormFactory = BatchNorm, num_classes: int = 10) -> WideResNet:
    """WideResNet of depth 40 and width 2, ME-ADA's network for CIFAR-10-C."""
    return WideResNet(40, 2, norm_layer=norm_layer, num_classes=num_classes)
