"""The Wasserstein auto-encoder of M-ADA: how far an image has left a domain is how much its reconstruction has changed.

Tolstikhin et al., *Wasserstein Auto-Encoders*, ICLR 2018, with the adversarial critic of the codes; in the sizes of
Qiao et al., 2020.
"""

from collections.abc import Callable
from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor, nn

_IMAGE_SIZE = 32
_PIXELS = 3 * _IMAGE_SIZE**2


class WassersteinAutoEncoder(nn.Module):
    """3072-400-20-400-3072 with a sigmoid at the end, and a critic 20-128-1 of its codes.

    Args:
        hidden: width of encoder and decoder.
        latent: length of a code.
        critic_hidden: width of the critic.

    Example:
        >>> wae = WassersteinAutoEncoder()
        >>> wae.reconstruct(flatten(torch.rand(2, 3, 224, 224))).shape
        torch.Size([2, 3072])
    """

    def __init__(self, *, hidden: int = 400, latent: int = 20, critic_hidden: int = 128) -> None:
        super().__init__()
        self.latent = latent
        self.encoder = _two_layers(_PIXELS, hidden, latent)
        self.decoder = _two_layers(latent, hidden, _PIXELS)
        self.critic = _two_layers(latent, critic_hidden, 1)
        self.reset(torch.Generator().manual_seed(0))

    def reset(self, generator: torch.Generator) -> None:
        """Draw all weights anew, as `nn.Linear` does.

        Args:
            generator: on the CPU, so that the weights do not depend on the device of the run.
        """
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

        Never under autocast: of two that hardly differ, half precision would leave the difference of their roundings.
        """
        with torch.autocast(images.device.type, enabled=False):
            return (self.reconstruct(flatten(images)) - self.reconstruct(flatten(originals))).square().mean(1)

    def critic_loss(self, codes: Tensor, prior: Tensor) -> Tensor:
        """Return the critic's loss: draws of the prior are to be told from codes."""
        density = _log_density(prior)
        drawn, coded = self.critic(prior) + density, self.critic(codes) + density
        return _logistic(drawn, 1.0) + _logistic(coded, 0.0)

    def loss(self, pixels: Tensor, prior: Tensor, critic_weight: float) -> Tensor:
        """Return the auto-encoder's loss: the reconstruction's, and that of codes which the critic tells from draws."""
        codes = self.encoder(pixels)
        reconstruction = F.binary_cross_entropy_with_logits(self.decoder(codes), pixels, reduction="sum")
        return reconstruction + critic_weight * _logistic(self.critic(codes) + _log_density(prior), 1.0)


def flatten(images: Tensor) -> Tensor:
    """Return images as rows of 3,072 values; those of another size than 32x32 are averaged over areas first.

    Example:
        >>> flatten(torch.ones(2, 3, 222, 224)).shape
        torch.Size([2, 3072])
    """
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
    """Train an auto-encoder and its critic in turn, one step of each a batch; return the last epoch's mean loss.

    Args:
        wae: the networks, trained in place.
        pixels: flattened images `(n, 3072)`; values beyond [0, 1], which the cross-entropy cannot reach, are clamped.
        epochs: over all of them.
        generator: of the order and of the prior's draws, on the CPU.
        lr: of the two Adams, which are made here: each training starts without momentum.
        batch_size: a short last batch is left out, unless it is the only one.
        critic_weight: of the critic's part in the auto-encoder's loss, and of the critic's own.
        after_epoch: called after each; nothing by default.

    Example:
        >>> wae, pixels = WassersteinAutoEncoder(hidden=8), torch.zeros(4, 3072)
        >>> before = fit(wae, pixels, epochs=1, generator=torch.Generator())
        >>> fit(wae, pixels, epochs=9, generator=torch.Generator()) < before
        True
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
                _descend(critic, critic_weight * wae.critic_loss(codes, prior))
                loss = wae.loss(batch, prior, critic_weight)
                _descend(auto_encoder, loss)
                total += loss.detach() / len(rows)
            after_epoch()
    wae.zero_grad()
    return total.item() / batches


def _descend(optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def _two_layers(inputs: int, hidden: int, outputs: int) -> nn.Sequential:
    # Without torch's own initialization, which would draw from the global generator.
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
