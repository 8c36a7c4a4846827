"""M-ADA: ADA with a relaxation that lets images leave their domain, and a meta-learning step.

Qiao et al., *Learning to Learn Single Domain Generalization*, CVPR 2020.
"""

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from asrnorm.errors import InputError
from asrnorm.methods.ada import ADA
from asrnorm.methods.ascent import Distance, Optimizer, Reduction
from asrnorm.methods.base import METHODS, Batch, Images
from asrnorm.methods.growth import Growth
from asrnorm.methods.m_ada_wae import WassersteinAutoEncoder, fit, flatten
from asrnorm.methods.meta_step import meta_loss
from asrnorm.models import Classifier

_READ_ROWS = 512  # images read at a time, so that a pool of large ones is shrunk piece by piece


@METHODS.register("m_ada")
class MADA(ADA):
    """M-ADA: ADA that rewards leaving the newest domain, and learns grown domains through a step on the source.

    In each round a Wasserstein auto-encoder is trained from scratch on the newest domain (in the first round the
    source), and `relaxation` times the change of an image's reconstruction is added to what the ascent climbs.
    From then on a batch is split by `Batch.rows` into source and grown images for the meta step.

    Args:
        penalty: on the distance to the original image in the semantic space.
        relaxation: weight of the change of the reconstruction.
        inner_lr: step size of the inner step on the source images.
        rounds: how many domains are grown.
        interval: steps between them.
        growth: which images a round starts from, see `choose_rows`.
        count: how many, under `volpi`.
        ascent_steps: steps of the ascent.
        ascent_lr: its step size.
        ascent_batch: images climbed at a time; divides the step under `reduction="batch"`.
        ascent_optimizer: `sgd` or `adam`.
        distance: `mean` or `half`, see `Ascent`.
        reduction: `batch` or `sample`, see `Ascent`.
        clip: keep grown images in [0, 1].
        quantize: keep them as uint8.
        wae_epochs: of the auto-encoder's training.

    Example:
        >>> MADA().ascent.steps, MADA().relaxation
        (25, 2000.0)
    """

    differentiates_twice = True

    def __init__(
        self,
        *,
        penalty: float = 1.0,
        relaxation: float = 2000.0,
        inner_lr: float = 1e-4,
        rounds: int = 3,
        interval: int = 100,
        growth: Growth = "m_ada",
        count: int = 10_000,
        ascent_steps: int = 25,
        ascent_lr: float = 1.0,
        ascent_batch: int = 32,
        ascent_optimizer: Optimizer = "sgd",
        distance: Distance = "mean",
        reduction: Reduction = "batch",
        clip: bool = False,
        quantize: bool = False,
        wae_epochs: int = 20,
    ) -> None:
        super().__init__(
            penalty=penalty,
            rounds=rounds,
            interval=interval,
            growth=growth,
            count=count,
            ascent_steps=ascent_steps,
            ascent_lr=ascent_lr,
            ascent_batch=ascent_batch,
            ascent_optimizer=ascent_optimizer,
            distance=distance,
            reduction=reduction,
            clip=clip,
            quantize=quantize,
        )
        self.relaxation, self.inner_lr, self.wae_epochs = relaxation, inner_lr, wae_epochs
        self.wae = WassersteinAutoEncoder()
        self.num_source = 0  # known from the first round on
        self.newest = 0  # row at which the newest domain starts

    def loss(self, model: Classifier, batch: Batch) -> Tensor:
        """Return the cross-entropy, from the first round on that of the meta step.

        Raises:
            InputError: images were grown, and the batch does not say which of its own they are.
        """
        if not self.num_source:
            return super().loss(model, batch)
        if batch.rows is None:
            raise InputError(
                "m_ada cannot tell source from grown images: give the batch its rows=, as the pool has them"
            )
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
        log = self.append_climbed(model, pool, rows, self._relax)
        self.num_source, self.newest = pool.num_source, newest
        return {**log, "wae_loss": wae_loss}

    def _relax(self, images: Tensor, originals: Tensor) -> Tensor:
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
            after_epoch=partial(self.watch, 0.0),  # the ascent, which takes longer, is yet to come
        )
        # All processes train the same; where a GPU does not repeat its sums exactly, the first one's weights hold.
        with torch.no_grad():
            for value in self.wae.parameters():
                value.copy_(self.world.sum(value if self.world.rank == 0 else torch.zeros_like(value)))
        return loss

    def modules(self) -> dict[str, nn.Module]:
        """Return the auto-encoder with its critic."""
        return {"wae": self.wae}

    def state_dict(self) -> dict[str, Any]:
        """Return where the domains lie, and the auto-encoder; its optimizers last no longer than a round."""
        return {"num_source": self.num_source, "newest": self.newest, "wae": self.wae.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take up what `state_dict` returned."""
        self.num_source, self.newest = state["num_source"], state["newest"]
        self.wae.to(next(iter(state["wae"].values())).dtype).load_state_dict(state["wae"])
