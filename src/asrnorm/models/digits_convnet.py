"""The ConvNet of the Digits benchmark: conv-pool-conv-pool-fc-fc-softmax.

LeCun et al., 1989, in the sizes of Volpi et al., 2018 and 2019: two 5x5 convolutions of 64 and 128 channels without
padding, two hidden layers of 1,024.
"""

from typing import Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from asrnorm.core.errors import InputError, UnknownNameError, describe_unknown
from asrnorm.models.base import MODELS, Classifier, NormFactory
from asrnorm.norms import NoNorm
from asrnorm.norms.base import norm_relu
from asrnorm.norms.dispatch import takes_kernels

Initialization = Literal["xavier", "torch"]
NormInitialization = Literal["own", "zero_bias", "xavier"]

_IMAGE_SIZE = 32
_MAP_SIZE = 5  # 32 -> 28 -> 14 -> 10 -> 5
_FEW_TERMS = 128  # of an output: channels times the area of the kernel
_MAX_CHANNELS = 128  # of the output, all of which a program computes


@MODELS.register("digits_convnet")
class DigitsConvNet(Classifier):
    """ConvNet of the Digits benchmark, for images of 32x32.

    Args:
        norm_layer: makes a norm from a number of channels; it follows each convolution, before the ReLU.
        num_classes: number of outputs.
        channels: output channels of the two convolutions.
        hidden: width of the two hidden layers.
        init: `xavier`, uniform with zero biases, as TF-slim initializes Volpi's networks; or `torch`, PyTorch's
            default, as in the code of M-ADA and ME-ADA.
        norm_init: of the linear layers inside norms such as ASR-Norm: their `own`, the same with biases of zero
            (`zero_bias`), or `xavier` as above.
    """

    def __init__(
        self,
        *,
        norm_layer: NormFactory = NoNorm,
        num_classes: int = 10,
        channels: tuple[int, int] = (64, 128),
        hidden: int = 1024,
        init: Initialization = "xavier",
        norm_init: NormInitialization = "own",
    ) -> None:
        super().__init__()
        if min(num_classes, hidden, *channels) < 1:
            given = f"num_classes={num_classes}, channels={list(channels)}, hidden={hidden}"
            raise InputError(f"digits_convnet: sizes must be at least 1, not {given}")
        for start, choices in ((init, Initialization), (norm_init, NormInitialization)):
            if start not in (known := get_args(choices)):
                raise UnknownNameError(describe_unknown("initialization of digits_convnet,", str(start), known))
        self.num_classes = num_classes
        self.conv1 = SmallConv2d(3, channels[0], 5)
        self.norm1 = norm_layer(channels[0])
        self.conv2 = nn.Conv2d(channels[0], channels[1], 5)
        self.norm2 = norm_layer(channels[1])
        self.fc1 = nn.Linear(channels[1] * _MAP_SIZE**2, hidden)
        self.fc2 = nn.Linear(hidden, hidden)
        self.fc3 = nn.Linear(hidden, num_classes)
        # Paper: how the networks inside ASR-Norm start is not given; RSDA's TensorFlow code has Xavier and zeros.
        inside = [part for norm in (self.norm1, self.norm2) for part in norm.modules() if isinstance(part, nn.Linear)]
        for layer in (self.conv1, self.conv2, self.fc1, self.fc2, self.fc3) if init == "xavier" else ():
            _initialize(layer, "xavier")
        for layer in inside if norm_init != "own" else ():
            _initialize(layer, norm_init)

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


def _initialize(layer: nn.Conv2d | nn.Linear, init: str) -> None:
    if init == "xavier":
        nn.init.xavier_uniform_(layer.weight)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)


class SmallConv2d(nn.Conv2d):
    """A convolution with stride 1 and no padding that uses `convolve_small`."""

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:  # noqa: A002
        return convolve_small(input, weight, bias)


def convolve_small(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return `F.conv2d(x, weight, bias)`; on a GPU by kernels where its sums are short.

    cuDNN is made for many channels: on the 75 terms of a 5x5 square of colors it takes several times as long as memory
    traffic would, forward and backward. The kernels take float32 in channels-last, where TF32 products are allowed.
    """
    if not (_fits(x, weight) and takes_kernels(x)):
        return F.conv2d(x, weight, bias)
    from asrnorm.kernels import launch

    if launch.memory_format(weight) is None or launch.is_traced(x):
        return F.conv2d(x, weight, bias)
    from asrnorm.kernels.convolve import convolve

    return convolve(x, weight, bias)


def _fits(x: Tensor, weight: Tensor) -> bool:
    if x.device.type != "cuda" or torch.compiler.is_compiling():
        return False
    if torch.is_autocast_enabled("cuda") or not torch.backends.cudnn.allow_tf32:
        return False
    if x.dtype != torch.float32 or weight.dtype != torch.float32 or x.ndim != 4 or not x.numel():
        return False
    height, width = x.shape[2] - weight.shape[2] + 1, x.shape[3] - weight.shape[3] + 1
    if x.shape[1] != weight.shape[1] or min(height, width) < 1:
        return False  # PyTorch raises the error
    if len(weight) > _MAX_CHANNELS or not (_is_channels_last(x) or _is_channels_last(weight)):
        return False
    return weight[0].numel() <= _FEW_TERMS


def _is_channels_last(x: Tensor) -> bool:
    return not x.is_contiguous() and x.is_contiguous(memory_format=torch.channels_last)


def max_pool_2x2(x: Tensor) -> Tensor:
    """Return `F.max_pool2d(x, 2)`; on a GPU by a kernel for maps with even sides."""
    if x.device.type == "cuda" and x.ndim == 4 and not (x.shape[2] % 2 or x.shape[3] % 2) and takes_kernels(x):
        from asrnorm.kernels import launch

        if not launch.is_traced(x):
            from asrnorm.kernels.pool import max_pool

            return max_pool(x)
    return F.max_pool2d(x, 2)
