"""The ConvNet of the Digits benchmark: conv-pool-conv-pool-fc-fc-softmax.

LeCun et al., 1989, in the sizes of Volpi et al., 2018 and 2019: two 5x5 convolutions of 64 and 128 channels without
padding, two hidden layers of 1,024.
"""

from typing import Literal, get_args

import torch.nn.functional as F
from torch import Tensor, nn

from asrnorm.core.errors import InputError, UnknownNameError, describe_unknown
from asrnorm.models.base import MODELS, Classifier, NormFactory
from asrnorm.models.max_pool import max_pool_2x2
from asrnorm.models.small_convolution import convolve_small
from asrnorm.norms import NoNorm
from asrnorm.norms.base import norm_relu

Initialization = Literal["xavier", "torch"]

_IMAGE_SIZE = 32
_MAP_SIZE = 5  # 32 -> 28 -> 14 -> 10 -> 5


class SmallConv2d(nn.Conv2d):
    """A convolution with a stride of 1 and no padding, by kernels where they are faster."""

    def __init__(self, in_channels: int, out_channels: int, kernel_size: int) -> None:
        super().__init__(in_channels, out_channels, kernel_size)

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:  # noqa: A002
        return convolve_small(input, weight, bias)


class DigitsConvNet(Classifier):
    """Two convolutions and three fully-connected layers, for images of 32x32.

    Args:
        norm_layer: makes a norm from a number of channels; it stands after each convolution, before the ReLU.
        num_classes: outputs.
        channels: of the two convolutions.
        hidden: width of the two hidden layers.
        init: `xavier`, uniform and without biases, as in the TF-slim of Volpi's programs; or `torch`, PyTorch's own, as
            in the programs of M-ADA and ME-ADA. Norms keep theirs.

    Raises:
        InputError: a size below 1.
        UnknownNameError: another initialization.
    """

    def __init__(
        self,
        *,
        norm_layer: NormFactory = NoNorm,
        num_classes: int = 10,
        channels: tuple[int, int] = (64, 128),
        hidden: int = 1024,
        init: Initialization = "xavier",
    ) -> None:
        super().__init__()
        if min(num_classes, hidden, *channels) < 1:
            given = f"num_classes={num_classes}, channels={list(channels)}, hidden={hidden}"
            raise InputError(f"digits_convnet: sizes must be at least 1, not {given}")
        if init not in get_args(Initialization):
            known = get_args(Initialization)
            raise UnknownNameError(describe_unknown("initialization of digits_convnet,", str(init), known))
        self.num_classes = num_classes
        self.conv1 = SmallConv2d(3, channels[0], 5)
        self.norm1 = norm_layer(channels[0])
        self.conv2 = nn.Conv2d(channels[0], channels[1], 5)
        self.norm2 = norm_layer(channels[1])
        self.fc1 = nn.Linear(channels[1] * _MAP_SIZE**2, hidden)
        self.fc2 = nn.Linear(hidden, hidden)
        self.fc3 = nn.Linear(hidden, num_classes)
        if init == "xavier":
            self._initialize()

    def _initialize(self) -> None:
        for layer in (self.conv1, self.conv2, self.fc1, self.fc2, self.fc3):
            nn.init.xavier_uniform_(layer.weight)
            assert layer.bias is not None
            nn.init.zeros_(layer.bias)

    def features(self, x: Tensor) -> Tensor:
        """Return the second pooled map, `(n, 128, 5, 5)`."""
        if tuple(x.shape[1:]) != (3, _IMAGE_SIZE, _IMAGE_SIZE):
            raise InputError(f"DigitsConvNet: expected images (N, 3, 32, 32), got shape {tuple(x.shape)}")
        x = max_pool_2x2(norm_relu(self.norm1, self.conv1(x)))
        return max_pool_2x2(norm_relu(self.norm2, self.conv2(x)))

    def embed(self, maps: Tensor) -> Tensor:
        """Return the second hidden layer after its ReLU."""
        return F.relu(self.fc2(F.relu(self.fc1(maps.flatten(1)))))

    def classify(self, embedding: Tensor) -> Tensor:
        """Return the logits."""
        return self.fc3(embedding)


@MODELS.register("digits_convnet")
def digits_convnet(
    *,
    norm_layer: NormFactory = NoNorm,
    num_classes: int = 10,
    channels: tuple[int, int] = (64, 128),
    hidden: int = 1024,
    init: Initialization = "xavier",
) -> DigitsConvNet:
    """ConvNet of the Digits benchmark, for images of 32x32.

    Example:
        >>> import torch
        >>> digits_convnet(channels=(8, 16), hidden=32)(torch.zeros(2, 3, 32, 32)).shape
        torch.Size([2, 10])
    """
    return DigitsConvNet(norm_layer=norm_layer, num_classes=num_classes, channels=channels, hidden=hidden, init=init)
