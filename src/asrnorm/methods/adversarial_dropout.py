"""AdversarialDropout: the classifier also answers without the features that help it most.

Park, Park, Shin and Moon, *Adversarial Dropout for Supervised and Semi-Supervised Learning*, AAAI 2018, in its
supervised form; the rule of the mask is that of its authors' code.
"""

from dataclasses import dataclass
from math import inf
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from asrnorm.core.frozen_eval import evaluating
from asrnorm.methods.base import BELOW_ONE, METHODS, Batch, Method
from asrnorm.models import Classifier


@METHODS.register("adversarial_dropout")
@dataclass(kw_only=True, eq=False)
class AdversarialDropout(Method):
    r"""AdversarialDropout: cross-entropy of the embedding, and of the embedding under the mask that hurts it most.

    $L = \mathrm{CE}(e) + \lambda\, \mathrm{CE}(e \odot m)$. The mask starts at ones; with $J = \partial \mathrm{CE}(e
    \odot m) / \partial m$ the entries with the most negative $J$ become zero, at most `delta` of them.

    Args:
        delta: largest share of the embedding to drop.
        dropout_weight: $\lambda$.
    """

    capturable = True
    ranges: ClassVar = {"delta": (0, BELOW_ONE), "dropout_weight": (0, inf)}

    delta: float = 0.1
    dropout_weight: float = 1.0

    def loss(self, model: Classifier, batch: Batch) -> Tensor:
        """Return the cross-entropy of the plain embedding and the weighted one of the masked embedding."""
        embedding = model.embed(model.features(batch.images))
        mask = find_mask(self._slope(model, embedding.detach(), batch.labels), self.delta).to(embedding.dtype)
        plain = F.cross_entropy(model.classify(embedding), batch.labels)
        return plain + self.dropout_weight * F.cross_entropy(model.classify(embedding * mask), batch.labels)

    def _slope(self, model: Classifier, embedding: Tensor, labels: Tensor) -> Tensor:
        # In full precision under autocast, where rounded slopes would tie.
        with evaluating(model), torch.enable_grad(), torch.autocast(embedding.device.type, enabled=False):
            embedding = embedding.to(next(model.parameters()).dtype)
            mask = torch.ones_like(embedding).requires_grad_()
            loss = F.cross_entropy(model.classify(embedding * mask), labels, reduction="sum")
            return torch.autograd.grad(loss, mask)[0]


def find_mask(slope_nd: Tensor, delta: float) -> Tensor:
    """Return the mask of every sample: ones, but zero at the most negative slopes, scaled to a sum of d.

    At most `int(d * delta)` entries are dropped, those strictly steeper than the next one.

    Example:
        >>> find_mask(torch.tensor([[-3.0, 1.0, -1.0, -2.0]]), 0.5).tolist()
        [[0.0, 2.0, 2.0, 0.0]]
    """
    d = slope_nd.shape[1]
    gain_nd = (-slope_nd).clamp(min=0)
    count = int(d * delta)
    next_n1 = gain_nd.sort(dim=1, descending=True).values[:, count : count + 1]
    mask_nd = (gain_nd <= next_n1).to(slope_nd.dtype)
    return mask_nd * (d / mask_nd.sum(1, keepdim=True))
