"""M-ADA: ADA with a reward for leaving the newest domain, and a meta-learning step.

Qiao et al., *Learning to Learn Single Domain Generalization*, CVPR 2020. The auto-encoder is that of Tolstikhin et al.,
*Wasserstein Auto-Encoders*, ICLR 2018, with the adversarial critic of its codes.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from asrnorm.core.distributed import World, sum_over_processes
from asrnorm.core.errors import InputError
from asrnorm.methods.ada import ADA, Growth
from asrnorm.methods.base import METHODS, Batch, Images
from asrnorm.models import Classifier

_IMAGE_SIZE = 32
_PIXELS = 3 * _IMAGE_SIZE**2
_READ_ROWS = 512  # images read at a time, so that a pool of large ones is reduced chunk by chunk


@METHODS.register("m_ada")
@dataclass(kw_only=True, eq=False)
class MADA(ADA):
    """M-ADA: ADA that rewards leaving the newest domain, and learns grown domains through a step on the source.

    Each round trains a Wasserstein auto-encoder from scratch on the newest domain (in the first round the source) and
    adds `relaxation` times the change of an image's reconstruction to the objective of the ascent. From then on,
    `Batch.rows` splits a batch into source and generated images for the meta step.

    Args:
        relaxation: weight of the change of the reconstruction.
        inner_lr: step size of the inner step on the source images.
        wae_epochs: epochs of the auto-encoder's training.

    The other options are those of `ADA`.
    """

    capturable = False
    differentiates_twice = True

    relaxation: float = 2000.0
    inner_lr: float = 1e-4
    rounds: int = 3
    growth: Growth = "m_ada"
    ascent_steps: int = 25
    wae_epochs: int = 20

    def __post_init__(self) -> None:
        super().__post_init__()
        self.wae = WassersteinAutoEncoder()
        self.num_source = 0  # zero before the first round
        self.newest = 0  # first row of the newest domain

    def loss(self, model: Classifier, batch: Batch) -> Tensor:
        """Return the cross-entropy, and from the first round on the loss of the meta step.

        Raises:
            InputError: images were generated, and the batch does not say which of its images these are.
        """
        if not self.num_source:
            return super().loss(model, batch)
        if batch.rows is None:
            raise InputError("m_ada cannot tell source from generated images: give the batch its rows= in the pool")
        is_source = batch.rows.to(batch.labels.device) < self.num_source
        return meta_loss(model, batch, is_source, inner_lr=self.inner_lr, world=self.world)

    def grow(self, model: Classifier, pool: Images, step: int) -> dict[str, float]:
        """Train the auto-encoder on the newest domain, then append the next one; log its loss too.

        A round that would start from no image, as later ones of a tiny source do, is left out.
        """
        rows = self.starting_rows(pool, step)
        if not len(rows):
            return {"grown": 0, "pool": len(pool), "change": 0.0}
        like = next(model.parameters())
        self.wae.to(device=like.device, dtype=like.dtype)
        wae_loss = self._train_wae(pool, step)
        newest = len(pool)
        log = self.append_domain(model, pool, rows, self._reward)
        self.num_source, self.newest = pool.num_source, newest
        return {**log, "wae_loss": wae_loss}

    def _reward(self, images: Tensor, originals: Tensor) -> Tensor:
        return self.relaxation * self.wae.change(images, originals)

    def _train_wae(self, pool: Images, step: int) -> float:
        rows = torch.arange(self.newest, len(pool)).split(_READ_ROWS)
        pixels = torch.cat([flatten(pool.images(part)) for part in rows])
        generator = self.generator(step, "m_ada.wae")
        self.wae.reset(generator)
        loss = fit(
            self.wae,
            pixels.to(next(self.wae.parameters())),
            epochs=self.wae_epochs,
            generator=generator,
            after_epoch=partial(self.on_progress, 0.0),  # the ascent, which takes longer, is yet to come
        )
        # All processes train the same; GPUs may add up in another order, so all take the first one's weights.
        with torch.no_grad():
            for value in self.wae.parameters():
                value.copy_(self.world.sum(value if self.world.rank == 0 else torch.zeros_like(value)))
        return loss

    def modules(self) -> dict[str, nn.Module]:
        """Return the auto-encoder with its critic."""
        return {"wae": self.wae}

    def state_dict(self) -> dict[str, Any]:
        """Return where the domains begin, and the auto-encoder; its optimizers last no longer than a round."""
        return {"num_source": self.num_source, "newest": self.newest, "wae": self.wae.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        self.num_source, self.newest = state["num_source"], state["newest"]
        self.wae.to(next(iter(state["wae"].values())).dtype).load_state_dict(state["wae"])


def meta_loss(model: Classifier, batch: Batch, is_source: Tensor, *, inner_lr: float, world: World) -> Tensor:
    r"""Return $\tfrac12 L_s(\theta) + \tfrac12 L_g(\theta - \alpha \nabla L_s(\theta))$, to be differentiated twice.

    $L_s$ and $L_g$ are means over the source and the generated images of the global batch. A batch of only one kind
    gives its plain mean.

    Each process returns a value that, times its share of the global batch, adds up to the formula over the processes;
    the trainer multiplies it before the backward pass. Both forward passes update running statistics, first by the
    source images, then by the generated ones; the second uses the weights of the inner step, of size `inner_lr`.
    """
    counts = world.sum(torch.stack([is_source.sum(), (~is_source).sum()])).tolist()
    if 0 in counts:
        return F.cross_entropy(model(batch.images), batch.labels)
    # A process without source images still takes part: others wait for its gradients, and for its batch statistics.
    share = len(batch.labels) / batch.global_size
    logits = model(batch.images[is_source])
    source_loss = F.cross_entropy(logits, batch.labels[is_source], reduction="sum") / counts[0]
    parameters = {name: value for name, value in model.named_parameters() if value.requires_grad}
    gradients = torch.autograd.grad(
        source_loss, list(parameters.values()), create_graph=True, allow_unused=True, materialize_grads=True
    )
    if world.size > 1:
        gradients = _sum_gradients(gradients)
    adapted = {
        name: value - inner_lr * gradient for (name, value), gradient in zip(parameters.items(), gradients, strict=True)
    }
    logits = functional_call(model, adapted, (batch.images[~is_source],))
    generated_loss = F.cross_entropy(logits, batch.labels[~is_source], reduction="sum") / counts[1]
    return (source_loss + generated_loss) / (2 * share)


def _sum_gradients(gradients: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    flat = sum_over_processes(torch.cat([gradient.flatten() for gradient in gradients]))
    parts = flat.split([gradient.numel() for gradient in gradients])
    return tuple(part.view_as(gradient) for part, gradient in zip(parts, gradients, strict=True))


class WassersteinAutoEncoder(nn.Module):
    """3072-400-20-400-3072 with a sigmoid at the end, and a critic 20-128-1 of its codes, as in Qiao et al."""

    def __init__(self, *, hidden: int = 400, latent: int = 20, critic_hidden: int = 128) -> None:
        super().__init__()
        self.latent = latent
        self.encoder = _two_layers(_PIXELS, hidden, latent)
        self.decoder = _two_layers(latent, hidden, _PIXELS)
        self.critic = _two_layers(latent, critic_hidden, 1)
        self.reset(torch.Generator().manual_seed(0))

    def reset(self, generator: torch.Generator) -> None:
        """Initialize all weights as `nn.Linear` does, from a CPU generator: the same on every device."""
        with torch.no_grad():
            for layer in self.modules():
                if isinstance(layer, nn.Linear):
                    bound = layer.in_features**-0.5
                    for values in (layer.weight, layer.bias):
                        values.copy_(bound * (2 * torch.rand(values.shape, generator=generator) - 1))

    def reconstruct(self, pixels: Tensor) -> Tensor:
        """Return the reconstruction, in (0, 1), of flattened images `(n, 3072)`."""
        return torch.sigmoid(self.decoder(self.encoder(pixels)))

    def change(self, images: Tensor, originals: Tensor) -> Tensor:
        """Return the mean squared difference between the reconstructions of two batches, `(n,)`.

        Never under autocast: between images that hardly differ, half precision would leave only rounding errors.
        """
        with torch.autocast(images.device.type, enabled=False):
            return (self.reconstruct(flatten(images)) - self.reconstruct(flatten(originals))).square().mean(1)

    def critic_loss(self, codes: Tensor, prior: Tensor) -> Tensor:
        """Return the critic's loss: it separates draws of the prior from codes."""
        density = _log_density(prior)
        drawn, coded = self.critic(prior) + density, self.critic(codes) + density
        return _logistic(drawn, 1.0) + _logistic(coded, 0.0)

    def loss(self, pixels: Tensor, prior: Tensor, critic_weight: float) -> Tensor:
        """Return the auto-encoder's loss: the reconstruction's, and that of codes that the critic tells from draws."""
        codes = self.encoder(pixels)
        reconstruction = F.binary_cross_entropy_with_logits(self.decoder(codes), pixels, reduction="sum")
        return reconstruction + critic_weight * _logistic(self.critic(codes) + _log_density(prior), 1.0)


def flatten(images: Tensor) -> Tensor:
    """Return images as rows of 3,072 values; those of another size than 32x32 are averaged over areas first."""
    height, width = images.shape[2:]
    if (height, width) != (_IMAGE_SIZE, _IMAGE_SIZE):
        # As two products: on a GPU the gradient of adaptive pooling differs from run to run.
        with torch.autocast(images.device.type, enabled=False):
            images = _averaging(height).to(images) @ images @ _averaging(width).to(images).T
    return images.flatten(1)


def fit(
    wae: WassersteinAutoEncoder,
    pixels: Tensor,
    *,
    epochs: int,
    generator: torch.Generator,
    lr: float = 1e-3,
    batch_size: int = 32,
    critic_weight: float = 100.0,
    after_epoch: Callable[[], object] = bool,
) -> float:
    """Train an auto-encoder and its critic in turn, one step of each per batch; return the last epoch's mean loss.

    Values of the flattened images `(n, 3072)` outside [0, 1], which the cross-entropy cannot reach, are clamped. A
    short last batch is left out, unless it is the only one. The generator, on the CPU, draws order and prior.
    """
    pixels = pixels.detach().clamp(0, 1)
    auto_encoder = torch.optim.Adam([*wae.encoder.parameters(), *wae.decoder.parameters()], lr=lr)
    critic = torch.optim.Adam(wae.critic.parameters(), lr=lr)
    total = torch.zeros((), dtype=pixels.dtype, device=pixels.device)
    batches = max(1, len(pixels) // batch_size)
    # Autocast would keep its casts of the first weights for the whole training.
    with torch.enable_grad(), torch.autocast(pixels.device.type, enabled=False):
        for _ in range(epochs):
            total.zero_()
            order = torch.randperm(len(pixels), generator=generator).to(pixels.device)
            for rows in order.split(batch_size)[:batches]:
                batch = pixels[rows]
                prior = torch.randn(len(rows), wae.latent, generator=generator).to(pixels)
                with torch.no_grad():
                    codes = wae.encoder(batch)
                _update(critic, critic_weight * wae.critic_loss(codes, prior))
                loss = wae.loss(batch, prior, critic_weight)
                _update(auto_encoder, loss)
                total += loss.detach() / len(rows)
            after_epoch()
    wae.zero_grad()
    return total.item() / batches


def _update(optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def _two_layers(inputs: int, hidden: int, outputs: int) -> nn.Sequential:
    # torch's own initialization would draw from the global generator.
    first = nn.utils.skip_init(nn.Linear, inputs, hidden)
    return nn.Sequential(first, nn.ReLU(), nn.utils.skip_init(nn.Linear, hidden, outputs))


@lru_cache(maxsize=4)  # the ascent asks for the same two at every step
def _averaging(size: int) -> Tensor:
    """Return the matrix `(32, size)` that averages an axis over areas."""
    return F.adaptive_avg_pool1d(torch.eye(size, dtype=torch.float64)[None], _IMAGE_SIZE)[0].T


def _log_density(prior: Tensor) -> Tensor:
    log_two_pi = 1.8378770664093453
    return -(prior.square() + log_two_pi).sum(1, keepdim=True) / 2


def _logistic(logits: Tensor, target: float) -> Tensor:
    return F.binary_cross_entropy_with_logits(logits, torch.full_like(logits, target))
