"""Random convolutions: RandConv, and its progressive form, which repeats a small one.

Xu, Liu, Yang, Raffel and Niethammer, *Robust and Generalizable Visual Representation Learning via Random Convolutions*,
ICLR 2021. Choi, Das, Choi, Yang, Park and Yun, *Progressive Random Convolutions for Single Domain Generalization*, CVPR
2023. Every image has a convolution of its own; its weights are computed on the device from a key.
"""

import math
from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

from asrnorm.core.randomness import draw_keys, normal_rows
from asrnorm.data.augment.named import AUGMENTATIONS, Occasional, Size, check_range, draw_uniform, on_floats

_LARGEST = 7  # kernel sizes are 1, 3, 5 and 7
_TAPS = 9  # of a 3x3 convolution
_FIELD = 8  # nodes of a field of offsets along an axis
_LEAST = 0.05  # of the random deviations, which must not be 0


@AUGMENTATIONS.register("randconv")
class RandConv(Occasional):
    r"""RandConv: the image under a random convolution of 1x1, 3x3, 5x5 or 7x7, mixed with the image itself.

    $\alpha x + (1 - \alpha)\, \Theta * x$ with weights $\Theta \sim N(0, 1 / 3 k^2)$ and $\alpha$ uniform in 0..1.
    Paper: one convolution for the batch, on images normalized by the data set's mean and deviation, without clipping;
    here one for each image, around a gray of .5, clipped to [0, 1].

    Args:
        share: probability of each image to be changed.
        mixed: mix with the image; otherwise $\alpha = 0$.
    """

    fold = "structure"

    def __init__(self, *, share: float = 0.5, mixed: bool = True) -> None:
        super().__init__(share=share)
        self.mixed = mixed

    def parameters(self, count: int, image_size: Size, generator: torch.Generator) -> dict[str, Tensor]:  # noqa: ARG002
        """Draw the kernel sizes, the mixing weights and the keys of the kernels."""
        device = generator.device
        radius = torch.randint(_LARGEST // 2 + 1, (count,), generator=generator, device=device)
        alpha = torch.rand(count, generator=generator, device=device) * self.mixed
        return {"radius": radius, "alpha": alpha, "key": draw_keys(count, generator)}

    def change(self, images: Tensor, drawn: Mapping[str, Tensor]) -> Tensor:
        """Convolve each image with its kernel: all are computed as 7x7, smaller ones with zeros around."""
        radius = drawn["radius"].view(-1, 1, 1, 1, 1)
        distance = (torch.arange(_LARGEST, device=images.device) - _LARGEST // 2).abs()
        inside = torch.maximum(distance[:, None], distance) <= radius
        kernel = normal_rows(drawn["key"], (3, 3, _LARGEST, _LARGEST)) * inside / (math.sqrt(3) * (2 * radius + 1))
        alpha = drawn["alpha"].view(-1, 1, 1, 1)

        def convolve(x_nchw: Tensor) -> Tensor:
            n, c, h, w = x_nchw.shape
            flat = (x_nchw - 0.5).reshape(1, n * c, h, w)
            out = F.conv2d(flat, kernel.flatten(0, 1), padding=_LARGEST // 2, groups=n).view(n, c, h, w)
            return torch.lerp(out + 0.5, x_nchw, alpha)

        return on_floats(images, convolve)


@AUGMENTATIONS.register("pro_randconv")
class ProRandConv(Occasional):
    r"""Progressive RandConv: one random deformable 3x3 convolution, standardized, rescaled, under tanh, repeated.

    $x \mapsto \tanh(\gamma\, \mathrm{standardize}(\Theta *_\Delta x) + \beta)$, 1 to `repeats` times with the same
    weights: $\Theta$ normal under a Gaussian window of random width, $\gamma$ and $\beta$ in $N(0, .5^2)$ for each
    channel, offsets $\Delta$ a smooth normal field of random deviation up to `deformation` pixels. Paper: offsets are
    a Gaussian random field with a given correlation; here normal numbers on 8x8 nodes, interpolated. The drawn image
    replaces the original here; the paper trains on both, which is the method `consistency`.

    Args:
        share: probability of each image to be changed.
        repeats: the largest number of repetitions.
        deformation: the largest deviation of offsets in pixels; .2 for Digits and .5 for PACS in the paper.
    """

    fold = "structure"

    def __init__(self, *, share: float = 0.5, repeats: int = 10, deformation: float = 0.5) -> None:
        super().__init__(share=share)
        self.repeats = int(check_range("repeats", repeats, 1, 100))
        self.deformation = check_range("deformation", deformation, 0)

    def parameters(self, count: int, image_size: Size, generator: torch.Generator) -> dict[str, Tensor]:  # noqa: ARG002
        """Draw the repetitions, the two deviations, and the key of weights, offsets and affine values."""
        return {
            "repeats": torch.randint(1, self.repeats + 1, (count,), generator=generator, device=generator.device),
            "window": draw_uniform(count, _LEAST, 1, generator).float(),
            "deformation": draw_uniform(count, 0, self.deformation, generator).float(),
            "key": draw_keys(count, generator),
        }

    def change(self, images: Tensor, drawn: Mapping[str, Tensor]) -> Tensor:
        """Apply each image's convolution as often as drawn; where the host may not read that, always as often."""
        key, count = drawn["key"], drawn["repeats"].view(-1, 1, 1, 1)
        most = int(count.max()) if images.device.type == "cpu" else self.repeats
        sizes = (3 * 3 * _TAPS, 2 * 3, 2 * _TAPS * _FIELD * _FIELD)
        numbers = normal_rows(key, (sum(sizes),)).split(sizes, 1)
        step = torch.arange(-1, 2, device=images.device)
        square = (step[:, None] ** 2 + step**2).flatten()
        window = torch.exp(-square / (2 * drawn["window"][:, None] ** 2))
        weight = numbers[0].view(-1, 3, 3, _TAPS) * window[:, None, None] / math.sqrt(3 * _TAPS)
        gamma, beta = (0.5 * numbers[1]).view(-1, 2, 3, 1, 1).unbind(1)
        grid = self._grid(numbers[2], drawn["deformation"], (images.shape[2], images.shape[3]))

        def repeat(x_nchw: Tensor) -> Tensor:
            x_nchw = 2 * x_nchw - 1
            for number in range(most):
                y_nchw = _convolve_deformed(x_nchw, weight, grid)
                deviation, mean = torch.std_mean(y_nchw, (2, 3), correction=0, keepdim=True)
                y_nchw = torch.tanh(gamma * (y_nchw - mean) / (deviation + 1e-5) + beta)
                x_nchw = torch.where(number < count, y_nchw, x_nchw)
            return (x_nchw + 1) / 2

        return on_floats(images, repeat)

    def _grid(self, numbers: Tensor, deformation: Tensor, size: Size) -> Tensor:
        """Return where each tap looks, `(9, n, h, w, 2)`, in the coordinates of `grid_sample`."""
        field = numbers.view(-1, 2 * _TAPS, _FIELD, _FIELD) * deformation.view(-1, 1, 1, 1)
        offset = F.interpolate(field, size, mode="bilinear", align_corners=True).unflatten(1, (_TAPS, 2))
        axes = [torch.arange(length, device=numbers.device) for length in size]
        base = torch.stack(torch.meshgrid(*axes, indexing="ij"))
        tap = torch.cartesian_prod(*[torch.arange(-1, 2, device=numbers.device)] * 2).view(_TAPS, 2, 1, 1)
        row, column = (base + tap + offset).unbind(2)
        scaled = [2 * value / max(1, length - 1) - 1 for value, length in zip((column, row), size[::-1], strict=True)]
        return torch.stack(scaled, -1).transpose(0, 1)


def _convolve_deformed(x_nchw: Tensor, weight: Tensor, grid: Tensor) -> Tensor:
    out = torch.zeros_like(x_nchw)
    for tap in range(_TAPS):
        seen = F.grid_sample(x_nchw, grid[tap], align_corners=True, padding_mode="zeros")
        out = out + torch.einsum("noi,nihw->nohw", weight[..., tap], seen)
    return out
