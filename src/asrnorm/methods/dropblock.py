"""DropBlock: square blocks of the feature maps are dropped, in each channel others.

Ghiasi, Lin and Le, *DropBlock: A Regularization Method for Convolutional Networks*, NeurIPS 2018.
"""

from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from asrnorm.core.randomness import draw_key, uniform_noise
from asrnorm.methods.base import BELOW_ONE, METHODS, Batch, Method
from asrnorm.methods.rsc import hooked
from asrnorm.models import Classifier

STAGES = (("layer3", "layer4"), ("group2", "group3"))
"""Names of the last two stages of ResNets and of wide ResNets."""


@METHODS.register("dropblock")
@dataclass(kw_only=True, eq=False)
class DropBlock(Method):
    """DropBlock: cross-entropy with blocks dropped after every block of layers of the last two stages.

    A network without stages that are known by name has them dropped in its last map alone.

    Args:
        drop: share of the activations to drop, reached linearly from 0 over the run.
        block_size: side of a dropped square in the last stage.
        early_block_size: side in the stage before it.
        early_share: the share in that stage, relative to `drop`.

    Example:
        >>> method = DropBlock(drop=0.1)
        >>> method.total_steps = 100
        >>> method.share(50)
        0.05
    """

    capturable = True
    ranges: ClassVar = {
        "drop": (0, BELOW_ONE),
        "early_share": (0, 1),
        "block_size": (1, inf),
        "early_block_size": (1, inf),
    }

    drop: float = 0.1
    block_size: int = 3
    early_block_size: int = 5
    early_share: float = 0.25

    def share(self, step: int) -> float:
        """Return the share to drop in a step; the whole `drop` where the length of the run is not known."""
        return self.drop * min(1.0, step / self.total_steps) if self.total_steps else self.drop

    def draw(self, step: int, size: int) -> dict[str, Tensor]:  # noqa: ARG002
        """Return the share of the step and the key of its masks."""
        return {
            "share": torch.tensor(self.share(step), dtype=torch.float64),
            "key": draw_key(self.generator(step, "dropblock")),
        }

    def loss(self, model: Classifier, batch: Batch) -> Tensor:
        """Return the cross-entropy of the network with dropped blocks."""
        batch = batch._replace(drawn=self.drawn(batch))
        stages = find_last_stages(model)
        with ExitStack() as hooks:
            for number, stage in enumerate(stages):
                for index, block in enumerate(stage.children()):
                    drop = partial(self._drop, batch=batch, purpose=f"{number}.{index}", is_last=number == 1)
                    hooks.enter_context(hooked(block, drop))
            maps = model.features(batch.images)
        if not stages:
            maps = self._drop(None, (), maps, batch=batch, purpose="maps", is_last=True)
        return F.cross_entropy(model.classify(model.embed(maps)), batch.labels)

    def _drop(
        self, _module: nn.Module | None, _inputs: Any, maps: Tensor, *, batch: Batch, purpose: str, is_last: bool
    ) -> Tensor:
        assert batch.drawn is not None
        share = batch.drawn["share"] * (1.0 if is_last else self.early_share)
        noise = self._noise(batch, purpose, (batch.global_size, *maps.shape[1:]))
        kept = keep_blocks(noise, share, self.block_size if is_last else self.early_block_size)
        # The mask of the global batch is scaled as a whole, so that processes agree.
        scale = kept.numel() / kept.sum(dtype=torch.float64).clamp(min=1)
        return maps * (batch.own(kept) * scale).to(maps.dtype)

    def _noise(self, batch: Batch, purpose: str, shape: tuple[int, ...]) -> Tensor:
        if batch.labels.device.type == "cpu":
            return torch.rand(shape, generator=self.generator(batch.step, f"dropblock.{purpose}"))
        assert batch.drawn is not None
        key = batch.drawn["key"] + draw_key(self.generator(0, purpose)).item()
        return uniform_noise(key, shape)


def keep_blocks(noise_nchw: Tensor, share: Tensor, block_size: int) -> Tensor:
    r"""Return a mask, 0 in blocks around random seeds and 1 elsewhere, float `(n, c, h, w)`.

    A seed is drawn where a whole block fits, with probability
    $\gamma = \frac{share}{b^2} \cdot \frac{hw}{(h - b + 1)(w - b + 1)}$, so that about `share` is dropped. A map
    smaller than `block_size`, b, is one block. The noise is uniform in [0, 1); the host does not read `share`.

    Example:
        >>> noise = torch.ones(1, 1, 3, 4)
        >>> noise[0, 0, 1, 0] = 0
        >>> keep_blocks(noise, torch.tensor(0.5), 2)[0, 0].tolist()
        [[1.0, 1.0, 1.0, 1.0], [0.0, 0.0, 1.0, 1.0], [0.0, 0.0, 1.0, 1.0]]
    """
    h, w = noise_nchw.shape[2:]
    high, wide = min(block_size, h), min(block_size, w)
    rows, columns = h - high + 1, w - wide + 1
    gamma = share / (high * wide) * (h * w) / (rows * columns)
    seeds = (noise_nchw[:, :, :rows, :columns] < gamma).to(noise_nchw.dtype)
    padded = F.pad(seeds, (wide - 1, wide - 1, high - 1, high - 1))
    return 1 - F.max_pool2d(padded, (high, wide), stride=1)


def find_last_stages(model: nn.Module) -> list[nn.Module]:
    """Return the last two stages of a ResNet or wide ResNet, wherever in the model it is; else an empty list."""
    named = {name.rpartition(".")[2]: module for name, module in model.named_modules()}
    for pair in STAGES:
        if all(name in named for name in pair):
            return [named[name] for name in pair]
    return []
