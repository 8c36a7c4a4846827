"""Which features RSC drops: the thresholds and tie rules of its three published versions.

Shape legend: n samples, k positions or channels.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class DropRule:
    """A threshold on the scores of a sample, and what is dropped above it.

    The scores are sorted in descending order; the threshold is the one at place `rounding(k / divisor)`, counted from
    0, so that many lie above it where no two are equal.

    Attributes:
        divisor: of k, for the place of the threshold.
        rounding: to a whole number, down (`int`) or up (`math.ceil`).
        inclusive: scores equal to the threshold lie above it too: at least one more.
        pick_divisor: drop only `rounding(k / pick_divisor)` of those above, chosen at random; where fewer lie above,
            of all. `None` drops all of those above.

    Example:
        >>> DropRule(3).dropped(torch.tensor([[0.1, 0.9, 0.2, 0.8, 0.3, 0.4]])).int().tolist()
        [[0, 1, 0, 1, 0, 0]]
    """

    divisor: float
    rounding: Callable[[float], int] = int
    inclusive: bool = False
    pick_divisor: float | None = None

    def dropped(self, score_nk: Tensor, random_nk: Tensor | None = None) -> Tensor:
        """Return what is dropped, bool `(n, k)`.

        Args:
            score_nk: the larger, the sooner dropped.
            random_nk: uniform numbers in [0, 1), for rules that pick at random.
        """
        k = score_nk.shape[1]
        place = min(self.rounding(k / self.divisor), k - 1)  # a map of one position has no second place
        threshold_n1 = score_nk.sort(dim=1, descending=True).values[:, place : place + 1]
        above = score_nk >= threshold_n1 if self.inclusive else score_nk > threshold_n1
        if self.pick_divisor is None:
            return above
        assert random_nk is not None
        count = self.rounding(k / self.pick_divisor)
        eligible = above | (above.sum(1, keepdim=True) < count)
        picked = random_nk.masked_fill(~eligible, -1.0).topk(count, dim=1).indices
        return torch.zeros_like(above).scatter_(1, picked, True)


@dataclass(frozen=True)
class Version:
    """The numbers of one published version.

    Attributes:
        spatial: which positions are dropped.
        channel: which channels are dropped.
        margin: taken off a sample's loss of probability before it counts.
        batch_share: share of the batch whose masks are kept.
        share_increase: added to it at every interval.
        flip: each batch is joined by its mirror image.
    """

    spatial: DropRule
    channel: DropRule
    margin: float
    batch_share: float
    share_increase: float
    flip: bool


VERSIONS = {
    "v1": Version(
        DropRule(3, inclusive=True, pick_divisor=3), DropRule(3.1, pick_divisor=3.2), 1e-4, 1 / 3, 0.0, flip=False
    ),
    "v2": Version(DropRule(3, inclusive=True), DropRule(3), 1e-5, 1 / 3, 0.0, flip=False),
    "v3": Version(DropRule(3, math.ceil), DropRule(3.2, math.ceil), 1e-4, 0.3, 0.2, flip=True),
}
"""By the date of their release: 24 August, 11 September and 2 November 2020."""


def drop_to_exceed(drop_n: Tensor, share: Tensor) -> Tensor:
    """Return the drop that a sample must exceed to keep its mask, a scalar on the same device.

    It is at place `round(n * share)` of the drops in descending order. At a share of 1 there is no such place; every
    sample with a drop keeps its mask then.

    Args:
        drop_n: of all samples of the global batch, none negative.
        share: of the batch, float64 and on the same device; it is not read.

    Example:
        >>> drop_to_exceed(torch.tensor([0.0, 0.5, 0.25, 0.75]), torch.tensor(0.5, dtype=torch.float64))
        tensor(0.2500)
    """
    ranked = drop_n.sort(descending=True).values
    index = (len(drop_n) * share).round().long().clamp(max=len(drop_n))
    return torch.cat([ranked, ranked.new_zeros(1)]).index_select(0, index.view(1)).squeeze(0)
