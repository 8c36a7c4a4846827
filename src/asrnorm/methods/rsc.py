"""Representation self-challenging: train on without the features that the answer leans on most.

Huang, Wang, Xing and Huang, *Self-Challenging Improves Cross-Domain Generalization*, ECCV 2020, in the three versions
that its authors released. Shape legend: n samples, c channels, h rows, w columns.
"""

from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from asrnorm.errors import InputError, UnknownNameError, describe_unknown
from asrnorm.methods.base import METHODS, Batch, Method
from asrnorm.methods.mode import evaluating
from asrnorm.methods.noise import uniform_noise
from asrnorm.methods.randomness import draw_key
from asrnorm.methods.rsc_mask import VERSIONS, DropRule, drop_to_exceed
from asrnorm.methods.stage import features_and_stage, features_from_stage
from asrnorm.models import Classifier


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
