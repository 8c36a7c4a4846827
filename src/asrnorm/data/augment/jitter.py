"""torchvision's `ColorJitter` on batches: brightness, contrast, saturation and hue in an order of each sample's own.

The four adjustments are Pillow's and equal to the bit. What is drawn follows torchvision's rule, not its stream.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from asrnorm.data.augment.batch import check_images, in_pieces
from asrnorm.data.augment.enhance import blend, luma, mean_luma
from asrnorm.data.augment.hue import hue_steps, turn_hue

BRIGHTNESS, CONTRAST, SATURATION, HUE = range(4)


class Jitter(NamedTuple):
    """What was drawn for each sample: three factors `(n, 3)`, the hue `(n,)`, and the order, a permutation `(n, 4)`."""

    factors: Tensor
    hue: Tensor
    order: Tensor


class JitterRange(NamedTuple):
    """How far each adjustment may go: factors from `1 - x` to `1 + x`, hue from `-x` to `x` of the circle."""

    brightness: float = 0.4
    contrast: float = 0.4
    saturation: float = 0.4
    hue: float = 0.4


def draw_jitter(count: int, generator: torch.Generator, spread: JitterRange = JitterRange()) -> Jitter:  # noqa: B008
    """Draw factors and hue uniformly, and the order of the four adjustments, for each sample.

    Example:
        >>> jitter = draw_jitter(2, torch.Generator().manual_seed(0))
        >>> jitter.factors.shape, jitter.order.sort(1).values.tolist()
        (torch.Size([2, 3]), [[0, 1, 2, 3], [0, 1, 2, 3]])
    """
    device = generator.device
    uniform = torch.rand((4, count), generator=generator, device=device, dtype=torch.float64) * 2 - 1
    factors = [(1 + width * u).clamp_(min=0) for width, u in zip(spread[:3], uniform[:3], strict=True)]
    order = torch.rand((count, 4), generator=generator, device=device).argsort(1)
    return Jitter(torch.stack(factors, 1), uniform[3] * spread.hue, order)


def jitter_colors(images: Tensor, jitter: Jitter) -> Tensor:
    """Apply what was drawn.

    Each sample has its own order, and shapes must not depend on it. The hue, far the dearest of the four, is computed
    once: the blends that come before a sample's hue go into three slots before it, the others into three after it, and
    a slot that is not a sample's leaves that sample as it is.

    Args:
        images: uint8 `(n, 3, h, w)`.
        jitter: of as many samples.
    """
    check_images(images)
    return in_pieces(_jitter, images, *jitter)


def _jitter(images: Tensor, factors: Tensor, hue: Tensor, order: Tensor) -> Tensor:
    place = (order == HUE).int().argmax(1, keepdim=True)
    slot = torch.arange(3, device=images.device).expand(images.shape[0], 3)
    kind = order.gather(1, slot + (slot >= place))
    factor = factors.gather(1, kind).float()
    before = slot < place
    x_nchw = images.float()
    for k in range(3):
        x_nchw = _blend_some(x_nchw, kind[:, k], factor[:, k], before[:, k])
    x_nchw = turn_hue(x_nchw, hue_steps(hue).view(-1, 1, 1, 1))
    for k in range(3):
        x_nchw = _blend_some(x_nchw, kind[:, k], factor[:, k], ~before[:, k])
    return x_nchw.to(torch.uint8)


def _blend_some(x_nchw: Tensor, kind: Tensor, factor: Tensor, wanted: Tensor) -> Tensor:
    """Blend the samples that want it, each in its own kind."""
    if x_nchw.device.type == "cpu":
        # Reading the mask costs nothing here, and only these samples are worked on.
        rows = wanted.nonzero().squeeze(1)
        if len(rows) == len(wanted):
            return _blend(x_nchw, kind, factor)
        if len(rows) == 0:
            return x_nchw
        x_nchw[rows] = _blend(x_nchw[rows], kind[rows], factor[rows])
        return x_nchw
    return _blend(x_nchw, torch.where(wanted, kind, BRIGHTNESS), torch.where(wanted, factor, 1.0))


def _blend(x_nchw: Tensor, kind: Tensor, factor: Tensor) -> Tensor:
    kind, factor = kind.view(-1, 1, 1, 1), factor.view(-1, 1, 1, 1)
    gray = luma(x_nchw)
    degenerate = torch.where(kind == CONTRAST, mean_luma(gray), gray).masked_fill_(kind == BRIGHTNESS, 0)
    return blend(degenerate, x_nchw, factor).floor_()
