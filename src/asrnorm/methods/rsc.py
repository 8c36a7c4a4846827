"""Which features RSC drops: the thresholds and tie rules of its three published versions.

Shape legend: n samples, k positions or channels.

The map between the last two stages of a backbone: taken while it runs, or put in from outside.

Representation self-challenging: train on without the features that the answer leans on most.

Huang, Wang, Xing and Huang, *Self-Challenging Improves Cross-Domain Generalization*, ECCV 2020, in the three versions
that its authors released. Shape legend: n samples, c channels, h rows, w columns.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from asrnorm.core.errors import InputError, UnknownNameError, describe_unknown
from asrnorm.methods.base import METHODS, Batch, Method
from asrnorm.methods.frozen_eval import evaluating
from asrnorm.methods.randomness import draw_key, uniform_noise
from asrnorm.models import Classifier


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


# What backbones call their last stage but one: ResNets, wide ResNets.
STAGES = ("layer3", "group2")


def find_stage(model: nn.Module) -> nn.Module:
    """Return the last stage but one of a backbone, wherever in the model the backbone is.

    Raises:
        InputError: the model has no stage of a known name.

    Example:
        >>> from asrnorm.models import create_model
        >>> model = create_model("wrn_16_4")
        >>> find_stage(model) is model.group2
        True
    """
    for name, module in model.named_modules():
        if name.rpartition(".")[2] in STAGES:
            return module
    raise InputError(
        f"version 'v2' of rsc reads the map of a last stage but one, named {' or '.join(STAGES)}, which "
        f"{type(model).__name__} has not: choose version 'v1' or 'v3'"
    )


def features_and_stage(model: Classifier, images: Tensor) -> tuple[Tensor, Tensor]:
    """Return the last map of the images, and the one after the last stage but one on the way."""
    seen: list[Tensor] = []
    with _hooked(find_stage(model), lambda _module, _inputs, output: seen.append(output)):
        maps = model.features(images)
    return maps, seen[-1]


def features_from_stage(model: Classifier, images: Tensor, stage_map: Tensor) -> Tensor:
    """Return the last map that follows from a given one after the last stage but one.

    The layers before see a single image, since what they compute is thrown away.
    """
    with _hooked(find_stage(model), lambda _module, _inputs, _output: stage_map):
        return model.features(images[:1])


@contextmanager
def _hooked(module: nn.Module, hook: Any) -> Iterator[None]:
    handle = module.register_forward_hook(hook)
    try:
        yield
    finally:
        handle.remove()


class _Probe(NamedTuple):
    """What masks are made from: the maps as the head saw them, its answer, and the scores."""

    maps_nchw: Tensor
    probability_n: Tensor
    spatial_nhw: Tensor
    channel_nc: Tensor


@METHODS.register("rsc")
class RSC(Method):
    """RSC: the positions or channels with the largest gradients are muted in the samples that they matter most to.

    Args:
        version: `v1` is the paper's text, `v3` what the authors' repository ended with; all three are on the page.
        batch_share: share of the batch whose masks are kept; `None` is the version's.
        share_increase: added to `batch_share` after every `interval` steps; `None` is the version's.
        interval: steps between increases, ten epochs' worth in `v3`; 0 never increases.
        margin: taken off a sample's loss of probability before it counts; `None` is the version's.
        flip: join each batch with its mirror image; `None` is the version's.
        spatial_chance: that a batch is masked by position rather than by channel.

    Example:
        >>> method = RSC(version="v3", interval=100)
        >>> [round(method.share(step), 1) for step in (0, 99, 100, 200)]
        [0.3, 0.3, 0.5, 0.7]
    """

    capturable = True

    def __init__(
        self,
        *,
        version: Literal["v1", "v2", "v3"] = "v1",
        batch_share: float | None = None,
        share_increase: float | None = None,
        interval: int = 0,
        margin: float | None = None,
        flip: bool | None = None,
        spatial_chance: float = 0.5,
    ) -> None:
        super().__init__()
        if version not in VERSIONS:
            raise UnknownNameError(describe_unknown("version of RSC,", version, VERSIONS))
        published = VERSIONS[version]
        self.version = version
        self.batch_share = published.batch_share if batch_share is None else batch_share
        self.share_increase = published.share_increase if share_increase is None else share_increase
        self.interval = interval
        self.margin = published.margin if margin is None else margin
        self.flip = published.flip if flip is None else flip
        self.spatial_chance = spatial_chance
        if not (0 <= self.batch_share <= 1 and 0 <= spatial_chance <= 1):
            raise InputError(
                f"RSC: batch_share and spatial_chance must be in 0..1, not {self.batch_share} and {spatial_chance}"
            )
        if interval < 0:
            raise InputError(f"RSC: interval must be at least 0, not {interval}")

    def share(self, step: int) -> float:
        """Return the share of the batch whose masks are kept in a step."""
        increases = step // self.interval if self.interval else 0
        return min(1.0, max(0.0, self.batch_share + increases * self.share_increase))

    def draw(self, step: int, size: int) -> dict[str, Tensor]:  # noqa: ARG002
        """Return the coin of a step, the key of its picks, and its share of the batch."""
        return {
            "spatial": torch.rand((), generator=self.generator(step, "coin")) < self.spatial_chance,
            "key": draw_key(self.generator(step, "pick")),
            "share": torch.tensor(self.share(step), dtype=torch.float64),
        }

    def loss(self, model: Classifier, batch: Batch) -> Tensor:
        """Return the cross-entropy of all samples, of which the most hurt are masked."""
        batch = batch._replace(drawn=self.drawn(batch))
        images, labels = batch.images, batch.labels
        if self.flip:
            images, labels = torch.cat([images, images.flip(3)]), torch.cat([labels, labels])
        if self.version == "v2":
            maps, stage_map = features_and_stage(model, images)
            mask = self._mask(model, images, labels, maps, stage_map, batch)
        else:
            maps = model.features(images)
            mask = self._mask(model, images, labels, maps, None, batch)
        return F.cross_entropy(model.classify(model.embed(maps * mask)), labels)

    def _mask(
        self, model: Classifier, images: Tensor, labels: Tensor, maps: Tensor, stage_map: Tensor | None, batch: Batch
    ) -> Tensor:
        """The mask of every sample, `(n, 1, h, w)` or `(n, c, 1, 1)`: 0 where dropped, ones where it is not kept."""
        # In full precision under autocast: scores rounded to bfloat16 would tie, and ties change what is dropped.
        with evaluating(model), torch.autocast(maps.device.type, enabled=False):
            probe = self._probe(model, images, labels, maps, stage_map)
            dropped = self._dropped(probe, batch)
            with torch.no_grad():
                masked = probe.maps_nchw * ~dropped
                after_n = _true_class(F.softmax(model.classify(model.embed(masked)), dim=1), labels)
        drop_n = (probe.probability_n - after_n - self.margin).clamp(min=0)
        kept = drop_n > drop_to_exceed(self.world.gather(drop_n), self.drawn(batch)["share"])
        return (~(dropped & kept[:, None, None, None])).to(maps.dtype)

    def _probe(
        self, model: Classifier, images: Tensor, labels: Tensor, maps: Tensor, stage_map: Tensor | None
    ) -> _Probe:
        """Scores from the gradient of the true classes' logits, with the head in evaluation."""
        dtype = next(model.parameters()).dtype
        with torch.enable_grad():
            if stage_map is None:
                inputs = [maps.detach().to(dtype).requires_grad_()]
                maps = inputs[0]
            else:
                start = stage_map.detach().to(dtype).requires_grad_()
                maps = features_from_stage(model, images.to(dtype), start)
                inputs = [maps, start]
            logits = model.classify(model.embed(maps))
            gradients = torch.autograd.grad(_true_class(logits, labels).sum(), inputs)
        maps, gradient = maps.detach(), gradients[0]
        channel_nc = gradient.mean((2, 3))
        if self.version == "v3":
            spatial_nhw = (maps * channel_nc[:, :, None, None]).sum(1)
        elif self.version == "v2":
            spatial_nhw = F.interpolate(gradients[1].mean(1, keepdim=True), size=maps.shape[2:]).squeeze(1)
        else:
            # Behind an average pool all positions have the same gradients. Summed in float64 and kept in float32 their
            # scores are equal too, however the sum was ordered, and the tie rule decides instead of rounding errors.
            spatial_nhw = gradient.double().mean(1).float()
        probability_n = _true_class(F.softmax(logits.detach(), dim=1), labels)
        return _Probe(maps, probability_n, spatial_nhw, channel_nc)

    def _dropped(self, probe: _Probe, batch: Batch) -> Tensor:
        """What the masks would drop, bool, as wide as the maps or to be spread over them; one coin for the batch."""
        rules, is_spatial = VERSIONS[self.version], self.drawn(batch)["spatial"]

        def by_position() -> Tensor:
            dropped = rules.spatial.dropped(*self._scores(rules.spatial, probe.spatial_nhw.flatten(1), batch))
            return dropped.view(-1, 1, *probe.spatial_nhw.shape[1:])

        def by_channel() -> Tensor:
            return rules.channel.dropped(*self._scores(rules.channel, probe.channel_nc, batch))[:, :, None, None]

        if is_spatial.device.type == "cpu":
            return by_position() if bool(is_spatial) else by_channel()
        return torch.where(is_spatial, by_position(), by_channel())  # to read the coin would be to wait for it

    def _scores(self, rule: DropRule, score_nk: Tensor, batch: Batch) -> tuple[Tensor, Tensor | None]:
        """The scores, and for a rule that picks at random as many numbers, each copy of the batch its own."""
        if rule.pick_divisor is None:
            return score_nk, None
        shape = (2 if self.flip else 1, batch.global_size, score_nk.shape[1])
        if score_nk.device.type == "cpu":
            drawn = torch.rand(shape, generator=self.generator(batch.step, "pick"))
        else:
            drawn = uniform_noise(self.drawn(batch)["key"], shape)
        return score_nk, torch.cat([batch.own(copy) for copy in drawn])


def _true_class(values_nk: Tensor, labels: Tensor) -> Tensor:
    return values_nk.gather(1, labels[:, None]).squeeze(1)
