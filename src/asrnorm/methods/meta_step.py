"""M-ADA's meta step: the loss of grown images after a step on source images, differentiated through that step."""

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import functional_call

from asrnorm.methods.base import Batch
from asrnorm.models import Classifier
from asrnorm.world import World, sum_over_processes


def meta_loss(model: Classifier, batch: Batch, is_source: Tensor, *, inner_lr: float, world: World) -> Tensor:
    r"""Return $\tfrac12 L_s(\theta) + \tfrac12 L_g(\theta - \alpha \nabla L_s(\theta))$, to be differentiated twice.

    $L_s$ and $L_g$ are means over the source and the grown images of the global batch. A batch that has but one kind
    gives its plain mean.

    Each process returns a value that, times its share of the global batch, adds up to the formula over the processes;
    the trainer multiplies it before it goes back. Both forward passes update running statistics, of the source and of
    the grown images in turn; the second with the weights of the inner step.

    Args:
        model: in training mode.
        batch: this process's part.
        is_source: bool `(n,)`.
        inner_lr: $\alpha$.
        world: the processes that share the batch.

    Example:
        >>> from asrnorm.models import create_model
        >>> from asrnorm.world import ALONE
        >>> model = create_model("digits_convnet", channels=(2, 4), hidden=8)
        >>> batch = Batch(torch.rand(4, 3, 32, 32), torch.tensor([0, 1, 2, 3]))
        >>> loss = meta_loss(model, batch, torch.tensor([True, True, False, False]), inner_lr=0.1, world=ALONE)
        >>> loss.requires_grad, model.fc3.weight.grad is None
        (True, True)
    """
    counts = world.sum(torch.stack([is_source.sum(), (~is_source).sum()])).tolist()
    if 0 in counts:
        return F.cross_entropy(model(batch.images), batch.labels)
    # A process without source images still takes part: others wait for its gradients, and for its batch statistics.
    share = len(batch.labels) / batch.global_size
    source_loss = _total_loss(model(batch.images[is_source]), batch.labels[is_source]) / counts[0]
    parameters = {name: value for name, value in model.named_parameters() if value.requires_grad}
    gradients = torch.autograd.grad(
        source_loss, list(parameters.values()), create_graph=True, allow_unused=True, materialize_grads=True
    )
    if world.size > 1:
        gradients = _sum_gradients(gradients)
    adapted = {
        name: value - inner_lr * gradient for (name, value), gradient in zip(parameters.items(), gradients, strict=True)
    }
    grown_logits = functional_call(model, adapted, (batch.images[~is_source],))
    grown_loss = _total_loss(grown_logits, batch.labels[~is_source]) / counts[1]
    return (source_loss + grown_loss) / (2 * share)


def _total_loss(logits: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(logits, labels, reduction="sum")


def _sum_gradients(gradients: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    flat = sum_over_processes(torch.cat([gradient.flatten() for gradient in gradients]))
    parts = flat.split([gradient.numel() for gradient in gradients])
    return tuple(part.view_as(gradient) for part, gradient in zip(parts, gradients, strict=True))
