"""The photometric bank: a few changes of tone, contrast and sharpness in a row, each image its own.

Every operation on bytes is a blend with another image (black, gray, flat, smoothed) or a table of 256 tones, so that
one formula computes them all: shapes do not depend on what is drawn. Blends, `invert`, `solarize` and gray equal
Pillow's to the bit.
"""

from collections.abc import Mapping, Sequence
from typing import ClassVar

import torch
from torch import Tensor

from asrnorm.core.config import Fold
from asrnorm.data.augment.base import constant, in_chunks
from asrnorm.data.augment.color import blend, look_up, luma, mean_luma, smooth
from asrnorm.data.augment.named import AUGMENTATIONS, Operations, Size, check_range, on_bytes

# Name and range of the level of each operation; its index is its position.
BANK = (
    ("identity", 0.0, 0.0),
    ("invert", 0.0, 0.0),
    ("solarize", 64.0, 192.0),  # threshold
    ("posterize", 2.0, 6.0),  # tones: 2, 3, 4 or 5
    ("contrast", 0.2, 3.0),
    ("brightness", 0.4, 1.8),
    ("sharpness", 0.0, 4.0),
    ("gamma", 0.4, 2.5),
    ("gray", 0.0, 0.0),
)
_, INVERT, SOLARIZE, POSTERIZE, CONTRAST, BRIGHTNESS, SHARPNESS, GAMMA, GRAY = range(len(BANK))


@AUGMENTATIONS.register("photometric")
class Photometric(Operations):
    """Photometric bank: `depth` operations in a row, each of identity, invert, solarize, posterize and five more.

    The others are contrast, brightness, sharpness, gamma and gray. `posterize` keeps 2 to 5 evenly spaced tones;
    Pillow's, which keeps bits and darkens, is part of `augmix`.

    Args:
        share: probability of each image to be changed.
        depth: operations in a row.
        operations: names of those to draw from; all of them if `None`.
    """

    names = tuple(name for name, _, _ in BANK)
    folds: ClassVar[Mapping[str, Fold]] = {"identity": "none", "sharpness": "structure"}

    def __init__(self, *, share: float = 0.5, depth: int = 2, operations: Sequence[str] | None = None) -> None:
        super().__init__(share=share, operations=operations)
        self.depth = int(check_range("depth", depth, 1, 100))

    def parameters(self, count: int, image_size: Size, generator: torch.Generator) -> dict[str, Tensor]:  # noqa: ARG002
        """Draw operations uniformly, and levels uniformly within their ranges."""
        device = generator.device
        op = self.draw_operations((count, self.depth), generator)
        uniform = torch.rand((count, self.depth), generator=generator, device=device, dtype=torch.float64)
        low, high = (constant(tuple(entry[k] for entry in BANK), device, torch.float64) for k in (1, 2))
        return {"op": op, "level": low[op] + uniform * (high - low)[op]}

    def change(self, images: Tensor, drawn: Mapping[str, Tensor]) -> Tensor:
        """Apply the operations one after the other."""
        op, level = drawn["op"], drawn["level"]

        def apply(pixels: Tensor) -> Tensor:
            for k in range(self.depth):
                pixels = in_chunks(apply_bank, pixels, op[:, k], level[:, k])
            return pixels

        return on_bytes(images, apply)


def apply_bank(pixels: Tensor, op: Tensor, level: Tensor) -> Tensor:
    """Apply one operation of `BANK` to each image, uint8 `(n, 3, h, w)`: its index int64 `(n,)`, its level float64."""
    x_nchw = pixels.float()
    gray = luma(x_nchw)
    kind = op.view(-1, 1, 1, 1)
    degenerate = torch.where(kind == CONTRAST, mean_luma(gray), gray).masked_fill(kind == BRIGHTNESS, 0)
    degenerate = torch.where(kind == SHARPNESS, smooth(x_nchw), degenerate)
    is_blend = (op == CONTRAST) | (op == BRIGHTNESS) | (op == SHARPNESS)
    factor = torch.where(is_blend, level, (op != GRAY).double()).float().view(-1, 1, 1, 1)
    return look_up(blend(degenerate, x_nchw, factor).to(torch.uint8), tone_table(op, level))


def tone_table(op: Tensor, level: Tensor) -> Tensor:
    """Return what each of 256 tones becomes, uint8 `(n, 1, 256)`; operations that are no table keep all tones."""
    tone = torch.arange(256, dtype=torch.float64, device=op.device)
    op, level = op[:, None], level[:, None]
    table = torch.where(op == INVERT, 255 - tone, tone)
    table = torch.where((op == SOLARIZE) & (tone >= level.floor()), 255 - tone, table)
    count = level.floor().clamp(min=2)
    table = torch.where(op == POSTERIZE, ((tone * count / 256).floor() * 255 / (count - 1)).round(), table)
    table = torch.where(op == GAMMA, ((tone / 255) ** level * 255).round(), table)
    return table.to(torch.uint8)[:, None]
