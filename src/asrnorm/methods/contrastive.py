"""CCSA and d-SNE: embeddings of one class are pulled together, those of different classes pushed apart.

Motiian, Piccirilli, Adjeroh and Doretto, *Unified Deep Supervised Domain Adaptation and Generalization*, ICCV 2017; Xu,
Zhou, Venkatesan, Swaminathan and Majumder, *d-SNE: Domain Adaptation Using Stochastic Neighborhood Embedding*, CVPR
2019. Both are made for a source and a few labelled images of the target. Here both streams are of the source.
"""

from abc import abstractmethod
from dataclasses import dataclass
from math import inf
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from asrnorm.methods.base import METHODS, Batch, Method
from asrnorm.models import Classifier

_LEAST = 1e-8  # of a squared distance, whose root has no slope at 0


@dataclass(kw_only=True, eq=False)
class _Contrastive(Method):
    """Weighs the cross-entropy of a batch against a loss of the distances between its embeddings."""

    ranges: ClassVar = {"alpha": (0, 1), "margin": (0, inf)}

    alpha: float = 0.25
    margin: float = 1.0

    @abstractmethod
    def compare(self, embedding: Tensor, labels: Tensor, batch: Batch) -> Tensor:
        """Return the loss of the distances in the global batch."""

    def loss(self, model: Classifier, batch: Batch) -> Tensor:
        """Return `1 - alpha` times the cross-entropy and `alpha` times the loss of the distances."""
        embedding = model.embed(model.features(batch.images))
        class_loss = F.cross_entropy(model.classify(embedding), batch.labels)
        labels = self.world.gather(batch.labels)
        wide = embedding.to(torch.promote_types(embedding.dtype, torch.float32))  # half precision loses small distances
        distance_loss = self.compare(batch.whole(wide, self.world), labels, batch)
        return (1 - self.alpha) * class_loss + self.alpha * distance_loss


@METHODS.register("ccsa")
@dataclass(kw_only=True, eq=False)
class CCSA(_Contrastive):
    r"""CCSA: the contrastive loss of pairs of images, all of one class and some of two, beside the cross-entropy.

    $L = (1 - \alpha)\, \mathrm{CE} + \alpha\, \mathrm{mean}(y d^2 + (1 - y) \max(0, m - d)^2)$, with $d$ the
    distance of a pair and $y$ whether it is of one class.

    Args:
        alpha: $\alpha$.
        margin: $m$.
        negatives: pairs of two classes for each pair of one.
    """

    capturable = True
    ranges: ClassVar = {"negatives": (0, inf)}

    negatives: int = 3

    def draw(self, step: int, size: int) -> dict[str, Tensor]:
        """Return a random number for each pair of the batch; negatives with the smallest are taken."""
        return {"chance": torch.rand((size * (size - 1)) // 2, generator=self.generator(step, "ccsa"))}

    def compare(self, embedding: Tensor, labels: Tensor, batch: Batch) -> Tensor:
        """Return the mean over all pairs of one class and `negatives` times as many others."""
        first, second = torch.triu_indices(len(labels), len(labels), 1, device=labels.device)
        same = labels[first] == labels[second]
        chance = self.drawn(batch)["chance"].masked_fill(same, 2.0)  # behind all negatives
        count = (self.negatives * same.sum()).clamp(max=len(same))
        # Shapes do not depend on the labels, and the host does not read them: a mask instead of a selection.
        chosen = (chance.argsort().argsort() < count) & ~same
        squared = (embedding[first] - embedding[second]).square().sum(1).clamp(min=_LEAST)
        apart = (self.margin - squared.sqrt()).clamp(min=0).square()
        total = (same * squared).sum() + (chosen * apart).sum()
        return total / (same | chosen).sum().clamp(min=1)


@METHODS.register("dsne")
@dataclass(kw_only=True, eq=False)
class DSNE(_Contrastive):
    r"""d-SNE: the farthest image of the same class must be nearer than the nearest of another, by a margin.

    $L = (1 - \alpha)\, \mathrm{CE} + \alpha\, \mathrm{mean}_t \max(0, \max_{s:\, y_s = y_t} d_{st} - \min_{s:\, y_s \ne
    y_t} d_{st} + m)$, with $d$ the squared distance; s and t are the halves of the batch, each in both roles.

    Args:
        alpha: $\alpha$.
        margin: $m$.
        normalize: scale embeddings to length one first.
    """

    capturable = True

    normalize: bool = True

    def compare(self, embedding: Tensor, labels: Tensor, batch: Batch) -> Tensor:  # noqa: ARG002
        """Return the mean of both roles; a batch of one image has no second half."""
        if len(labels) < 2:
            return embedding.new_zeros(())
        if self.normalize:
            embedding = F.normalize(embedding, dim=1)
        half = len(labels) // 2
        squared = (embedding[:half, None] - embedding[None, half : 2 * half]).square().sum(2)
        same = labels[:half, None] == labels[None, half : 2 * half]
        return (self._hinge(squared, same) + self._hinge(squared.T, same.T)) / 2

    def _hinge(self, squared_st: Tensor, same_st: Tensor) -> Tensor:
        farthest = squared_st.masked_fill(~same_st, 0.0).amax(0)  # 0 where no s is of the class of t
        # As in its code: entries of the same class are replaced by the largest distance.
        nearest = torch.where(same_st, squared_st.amax(0, keepdim=True), squared_st).amin(0)
        return (farthest - nearest + self.margin).clamp(min=0).mean()
