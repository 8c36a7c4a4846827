"""MetaReg: a regularizer of the classifier's weights, learned so that a step on one domain helps on another.

Balaji, Sankaranarayanan and Chellappa, *MetaReg: Towards Domain Generalization using Meta-Regularization*, NeurIPS
2018. There is no official code.
"""

import copy
from dataclasses import dataclass
from math import inf
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from asrnorm.core.errors import InputError
from asrnorm.methods.base import METHODS, Batch, Images, Method
from asrnorm.models import Classifier
from asrnorm.models.base import classifier_head


@METHODS.register("metareg")
@dataclass(kw_only=True, eq=False)
class MetaReg(Method):
    r"""MetaReg: cross-entropy and $R_\phi(\theta) = \sum_k \phi_k |\theta_k|$ of the classifier's weights.

    $\phi$ is learned before the first step, in a phase of its own: a copy of the network, with a head for each source
    domain, is trained; at each of its steps a head takes `inner_steps` on the loss of its domain plus $R_\phi$, and
    $\phi$ a step that lowers the loss of that head on another domain. Then the network itself is trained from its
    start, with $\phi$ fixed. The phase needs the domain of each image.

    Args:
        phase_steps: steps of the phase.
        lr: learning rate of the copy, and of the inner steps.
        inner_steps: steps of a head on its own domain.
        meta_lr: learning rate of $\phi$, which stays at 0 or above.

    Example:
        >>> MetaReg().is_growing(0), MetaReg().is_growing(1)
        (True, False)
    """

    capturable = True
    differentiates_twice = True
    ranges: ClassVar = {"phase_steps": (1, inf), "inner_steps": (1, inf), "lr": (0, inf), "meta_lr": (0, inf)}

    phase_steps: int = 400
    lr: float = 0.01
    inner_steps: int = 5
    meta_lr: float = 0.001

    def __post_init__(self) -> None:
        super().__post_init__()
        self.regularizer = nn.Module()
        self.regularizer.register_buffer("phi", torch.zeros(0))  # empty until it is learned

    @property
    def phi(self) -> Tensor:
        """The weight of each entry of the classifier's matrix; empty until it is learned."""
        return self.regularizer.get_buffer("phi")

    def loss(self, model: Classifier, batch: Batch) -> Tensor:
        """Return the cross-entropy and the regularizer."""
        loss = F.cross_entropy(model(batch.images), batch.labels)
        return loss + (self.phi * find_head(model).weight.abs()).sum() if self.phi.numel() else loss

    def is_growing(self, step: int) -> bool:
        """Tell whether the regularizer is still to be learned: before the first step."""
        return step == 0 and not self.phi.numel()

    def grow(self, model: Classifier, pool: Images, step: int) -> dict[str, float]:  # noqa: ARG002
        """Learn the regularizer on a copy of the network, which itself stays as it is.

        Raises:
            InputError: the images are of a single source.
        """
        copied = copy.deepcopy(model).train()
        head = find_head(copied)
        domains = getattr(pool, "domains", None)
        if domains is None or not int(domains.max()):
            raise InputError("metareg needs several sources: choose one with --target, and all others are trained on")
        count = int(domains.max()) + 1
        weight = nn.Parameter(head.weight.detach().repeat(count, 1, 1))
        bias = None if head.bias is None else nn.Parameter(head.bias.detach().repeat(count, 1))
        heads = [weight] if bias is None else [weight, bias]
        parameters = [*(p for p in copied.parameters() if p.requires_grad), *heads]
        optimizer = torch.optim.SGD(parameters, lr=self.lr, momentum=0.9)
        phi = torch.zeros_like(head.weight, requires_grad=True)
        for number in range(self.phase_steps):
            batch = self._fetch(pool, number, next(model.parameters()))
            assert batch.domains is not None
            embedding = copied.embed(copied.features(batch.images))
            own = (weight[batch.domains] @ embedding[:, :, None]).squeeze(2)
            logits = own if bias is None else own + bias[batch.domains]
            (F.cross_entropy(logits, batch.labels) * len(batch.labels) / batch.global_size).backward()
            self.world.sum_gradients(parameters)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            vectors, labels, of = map(self.world.gather, (embedding.detach(), batch.labels, batch.domains))
            first, second = torch.randperm(count, generator=self.generator(number, "metareg"))[:2].tolist()
            domain_pair = [(vectors[of == domain], labels[of == domain]) for domain in (first, second)]
            if all(len(own) for _, own in domain_pair):
                theta = weight[first].detach(), None if bias is None else bias[first].detach()
                phi = self._meta_step(phi, *theta, *domain_pair)
            self.on_progress((number + 1) / self.phase_steps)
        self.regularizer.register_buffer("phi", phi.detach())
        return {"phase_steps": self.phase_steps, "phi": float(phi.detach().mean())}

    def _meta_step(self, phi: Tensor, theta: Tensor, bias: Tensor | None, *domains: tuple[Tensor, Tensor]) -> Tensor:
        """Return phi after a step on the second domain through the inner steps on the first."""
        (first, first_labels), (second, second_labels) = ((x.to(theta.dtype), y) for x, y in domains)
        with torch.enable_grad(), torch.autocast(theta.device.type, enabled=False):
            theta = theta.requires_grad_()
            for _ in range(self.inner_steps):
                inner = F.cross_entropy(F.linear(first, theta, bias), first_labels) + (phi * theta.abs()).sum()
                theta = theta - self.lr * torch.autograd.grad(inner, theta, create_graph=True)[0]
            outer = F.cross_entropy(F.linear(second, theta, bias), second_labels)
            slope = torch.autograd.grad(outer, phi)[0]
        return (phi.detach() - self.meta_lr * slope).clamp(min=0).requires_grad_()

    def _fetch(self, pool: Images, step: int, like: Tensor) -> Batch:
        if self.fetch is not None:
            return self.fetch(step)
        rows = torch.randint(len(pool), (32,), generator=self.generator(step, "metareg.rows"))
        on_device = rows.to(pool.labels.device)
        domains = getattr(pool, "domains")[on_device]  # noqa: B009
        return Batch(pool.images(rows).to(like), pool.labels[on_device], step, domains=domains)

    def modules(self) -> dict[str, nn.Module]:
        """Return the holder of phi."""
        return {"regularizer": self.regularizer}

    def state_dict(self) -> dict[str, Any]:
        """Return phi."""
        return {"phi": self.phi}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        self.regularizer.register_buffer("phi", state["phi"])


def find_head(model: nn.Module) -> nn.Linear:
    """Return the linear layer that computes the logits; raise if none has an output for each class."""
    head = classifier_head(model)
    if head is None:
        raise InputError(f"metareg: {type(model).__name__} has no linear layer with an output for each class")
    return head
