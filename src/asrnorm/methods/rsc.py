"""RSC: representation self-challenging, which trains without the features that the prediction relies on most.

Huang, Wang, Xing and Huang, *Self-Challenging Improves Cross-Domain Generalization*, ECCV 2020, in the three versions
that its authors released. Shape legend: n samples, c channels, h rows, w columns, k positions or channels.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from asrnorm.core.errors import InputError, UnknownNameError, describe_unknown
from asrnorm.core.frozen_eval import evaluating
from asrnorm.core.randomness import draw_key, uniform_noise
from asrnorm.methods.base import METHODS, Batch, Method
from asrnorm.models import Classifier

STAGES = ("layer3", "group2")
"""Names of the second to last stage in ResNets and wide ResNets."""


@dataclass(frozen=True)
class DropRule:
    """A threshold on the scores of a sample, and what is dropped above it.

    The scores are sorted in descending order; the threshold is the one at index `rounding(k / divisor)`, so that many
    scores lie above it if no two are equal.

    Attributes:
        divisor: of k, for the index of the threshold.
        rounding: to a whole number, down (`int`) or up (`math.ceil`).
        inclusive: scores equal to the threshold count as above it: at least one more.
        pick_divisor: drop only `rounding(k / pick_divisor)` of those above, chosen at random, or of all if fewer lie
            above. `None` drops all of those above.

    Example:
        >>> DropRule(3).dropped(torch.tensor([[0.1, 0.9, 0.2, 0.8, 0.3, 0.4]])).int().tolist()
        [[0, 1, 0, 1, 0, 0]]
    """

    divisor: float
    rounding: Callable[[float], int] = int
    inclusive: bool = False
    pick_divisor: float | None = None

    def dropped(self, score_nk: Tensor, random_nk: Tensor | None = None) -> Tensor:
        """Return what is dropped, bool `(n, k)`; rules that pick at random need uniform numbers in [0, 1)."""
        k = score_nk.shape[1]
        index = min(self.rounding(k / self.divisor), k - 1)  # a map of one position has no second score
        threshold_n1 = score_nk.sort(dim=1, descending=True).values[:, index : index + 1]
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

    The other fields are the options of `RSC`.
    """

    spatial: DropRule  # which positions are dropped
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


class _Probe(NamedTuple):
    """What masks are made from: the maps as the head saw them, its answer, and the scores."""

    maps_nchw: Tensor
    probability_n: Tensor
    spatial_nhw: Tensor
    channel_nc: Tensor


@METHODS.register("rsc")
@dataclass(kw_only=True, eq=False)
class RSC(Method):
    """RSC: the positions or channels with the largest gradients are muted in the samples that they matter most to.

    Args:
        version: `v1` is the paper's text, `v3` what the authors' repository ended with; the page of RSC compares them.
        batch_share: share of the batch that keeps its masks; `None` is the version's, here and below.
        share_increase: added to `batch_share` after every `interval` steps.
        interval: steps between increases, ten epochs' worth in `v3`; 0 never increases.
        margin: subtracted from the fall of a sample's probability before it counts.
        flip: join each batch with its mirror image.
        spatial_chance: probability that a batch is masked by position rather than by channel.

    Attributes:
        numbers: those of the version, with the given ones in place.

    Raises:
        UnknownNameError: no such version.
        InputError: a number out of range.

    Example:
        >>> method = RSC(version="v3", interval=100)
        >>> [round(method.share(step), 1) for step in (0, 99, 100, 200)]
        [0.3, 0.3, 0.5, 0.7]
    """

    capturable = True
    ranges: ClassVar = {"spatial_chance": (0, 1), "interval": (0, math.inf)}

    version: Literal["v1", "v2", "v3"] = "v1"
    batch_share: float | None = None
    share_increase: float | None = None
    interval: int = 0
    margin: float | None = None
    flip: bool | None = None
    spatial_chance: float = 0.5

    def __post_init__(self) -> None:
        if self.version not in list(VERSIONS):  # a config may give a list, which has no hash
            raise UnknownNameError(describe_unknown("version of RSC,", str(self.version), VERSIONS))
        given = {name: getattr(self, name) for name in ("batch_share", "share_increase", "margin", "flip")}
        given = {name: value for name, value in given.items() if value is not None}
        self.numbers = replace(VERSIONS[self.version], **given)
        if not 0 <= self.numbers.batch_share <= 1:
            raise InputError(f"rsc: batch_share must be in 0..1, not {self.numbers.batch_share}")
        super().__post_init__()

    def share(self, step: int) -> float:
        """Return the share of the batch that keeps its masks in a step."""
        increases = step // self.interval if self.interval else 0
        return min(1.0, max(0.0, self.numbers.batch_share + increases * self.numbers.share_increase))

    def draw(self, step: int, size: int) -> dict[str, Tensor]:  # noqa: ARG002
        """Return the coin of a step, the key of its picks, and its share of the batch."""
        return {
            "spatial": torch.rand((), generator=self.generator(step, "coin")) < self.spatial_chance,
            "key": draw_key(self.generator(step, "pick")),
            "share": torch.tensor(self.share(step), dtype=torch.float64),
        }

    def loss(self, model: Classifier, batch: Batch) -> Tensor:
        """Return the cross-entropy of all samples, of which those most affected are masked."""
        batch = batch._replace(drawn=self.drawn(batch))
        images, labels = batch.images, batch.labels
        if self.numbers.flip:
            images, labels = torch.cat([images, images.flip(3)]), torch.cat([labels, labels])
        if self.version == "v2":
            maps, stage_map = features_and_stage(model, images)
        else:
            maps, stage_map = model.features(images), None
        mask = self._mask(model, images, labels, maps, stage_map, batch)
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
        drop_n = (probe.probability_n - after_n - self.numbers.margin).clamp(min=0)
        kept = drop_n > drop_to_exceed(self.world.gather(drop_n), self.drawn(batch)["share"])
        return (~(dropped & kept[:, None, None, None])).to(maps.dtype)

    def _probe(
        self, model: Classifier, images: Tensor, labels: Tensor, maps: Tensor, stage_map: Tensor | None
    ) -> _Probe:
        """Scores from the gradient of the true classes' logits, with the head in evaluation mode."""
        dtype = next(model.parameters()).dtype
        with torch.enable_grad():
            if stage_map is None:
                maps = maps.detach().to(dtype).requires_grad_()
                inputs = [maps]
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
            # scores are equal too, in whatever order they are added, and the tie rule decides, not rounding errors.
            spatial_nhw = gradient.double().mean(1).float()
        probability_n = _true_class(F.softmax(logits.detach(), dim=1), labels)
        return _Probe(maps, probability_n, spatial_nhw, channel_nc)

    def _dropped(self, probe: _Probe, batch: Batch) -> Tensor:
        """What the masks would drop, bool, broadcastable to the maps; one coin for the whole batch."""
        is_spatial = self.drawn(batch)["spatial"]

        def by_position() -> Tensor:
            dropped = self._apply(self.numbers.spatial, probe.spatial_nhw.flatten(1), batch)
            return dropped.view(-1, 1, *probe.spatial_nhw.shape[1:])

        def by_channel() -> Tensor:
            return self._apply(self.numbers.channel, probe.channel_nc, batch)[:, :, None, None]

        if is_spatial.device.type == "cpu":
            return by_position() if bool(is_spatial) else by_channel()
        return torch.where(is_spatial, by_position(), by_channel())  # reading the coin would wait for the device

    def _apply(self, rule: DropRule, score_nk: Tensor, batch: Batch) -> Tensor:
        """Apply a rule; one that picks at random draws for the global batch, and for its mirror image apart."""
        if rule.pick_divisor is None:
            return rule.dropped(score_nk)
        shape = (2 if self.numbers.flip else 1, batch.global_size, score_nk.shape[1])
        if score_nk.device.type == "cpu":
            drawn = torch.rand(shape, generator=self.generator(batch.step, "pick"))
        else:
            drawn = uniform_noise(self.drawn(batch)["key"], shape)
        return rule.dropped(score_nk, torch.cat([batch.own(copy) for copy in drawn]))


def drop_to_exceed(drop_n: Tensor, share: Tensor) -> Tensor:
    """Return the drop that a sample must exceed to keep its mask, a scalar on the same device.

    It is the one at index `round(n * share)` of the drops in the global batch, in descending order. At a share of 1
    every sample with a drop keeps its mask. The host does not read `share`, float64 on the same device.

    Example:
        >>> drop_to_exceed(torch.tensor([0.0, 0.5, 0.25, 0.75]), torch.tensor(0.5, dtype=torch.float64))
        tensor(0.2500)
    """
    ranked = drop_n.sort(descending=True).values
    index = (len(drop_n) * share).round().long().clamp(max=len(drop_n))
    return torch.cat([ranked, ranked.new_zeros(1)]).index_select(0, index.view(1)).squeeze(0)


def find_stage(model: nn.Module) -> nn.Module:
    """Return the second to last stage of a backbone, wherever in the model the backbone is."""
    for name, module in model.named_modules():
        if name.rpartition(".")[2] in STAGES:
            return module
    raise InputError(
        f"version 'v2' of rsc needs the map of the second to last stage; {type(model).__name__} has no module named "
        f"{' or '.join(STAGES)}; choose version 'v1' or 'v3'"
    )


def features_and_stage(model: Classifier, images: Tensor) -> tuple[Tensor, Tensor]:
    """Return the last map of the images, and the one after the second to last stage."""
    seen: list[Tensor] = []
    with hooked(find_stage(model), lambda _module, _inputs, output: seen.append(output)):
        maps = model.features(images)
    return maps, seen[-1]


def features_from_stage(model: Classifier, images: Tensor, stage_map: Tensor) -> Tensor:
    """Return the last map computed from a given one after the second to last stage.

    The layers before see a single image, since their output is discarded.
    """
    with hooked(find_stage(model), lambda _module, _inputs, _output: stage_map):
        return model.features(images[:1])


@contextmanager
def hooked(module: nn.Module, hook: Any) -> Iterator[None]:
    """Register a forward hook within the block."""
    handle = module.register_forward_hook(hook)
    try:
        yield
    finally:
        handle.remove()


def _true_class(values_nk: Tensor, labels: Tensor) -> Tensor:
    return values_nk.gather(1, labels[:, None]).squeeze(1)
