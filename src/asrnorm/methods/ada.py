"""ADA: adversarial data augmentation, a min-max over a growing training set.

Volpi et al., *Generalizing to Unseen Domains via Adversarial Data Augmentation*, NeurIPS 2018; appendix B of the
ASR-Norm paper.
"""

from typing import get_args

import torch
from torch import Tensor

from asrnorm.core.errors import DivergenceError, InputError, UnknownNameError, describe_unknown
from asrnorm.methods.ascent import Ascent, Bonus, Distance, Growth, Optimizer, Reduction, choose_rows
from asrnorm.methods.base import METHODS, Images, Method
from asrnorm.models import Classifier

_HALF_A_LEVEL = 0.5 / 255


@METHODS.register("ada")
class ADA(Method):
    """ADA: every so often, images that the model finds hard are made from those it has and appended with their labels.

    Args:
        penalty: on the distance to the original image in the semantic space.
        rounds: how many domains are grown.
        interval: steps between them; the first is grown before step `interval`.
        growth: which images a round starts from: `volpi` a fixed number of the current pool, `me_ada` all of it,
            `m_ada` fewer each round, `source` the source images; see `choose_rows`.
        count: how many, under `volpi`.
        ascent_steps: steps of the ascent.
        ascent_lr: its step size.
        ascent_batch: images climbed at a time; divides the step under `reduction="batch"`.
        ascent_optimizer: `sgd` or `adam`.
        distance: `mean` or `half`, see `Ascent`.
        reduction: `batch` or `sample`, see `Ascent`.
        clip: keep grown images in [0, 1].
        quantize: keep them as uint8.

    Example:
        >>> method = ADA(rounds=2, interval=100)
        >>> [step for step in range(1000) if method.is_growing(step)]
        [100, 200]
    """

    def __init__(
        self,
        *,
        penalty: float = 1.0,
        rounds: int = 6,
        interval: int = 100,
        growth: Growth = "volpi",
        count: int = 10_000,
        ascent_steps: int = 15,
        ascent_lr: float = 1.0,
        ascent_batch: int = 32,
        ascent_optimizer: Optimizer = "sgd",
        distance: Distance = "mean",
        reduction: Reduction = "batch",
        clip: bool = False,
        quantize: bool = False,
    ) -> None:
        super().__init__()
        if growth not in get_args(Growth):
            raise UnknownNameError(describe_unknown("growth", str(growth), get_args(Growth)))
        for name, value, least in (("rounds", rounds, 0), ("interval", interval, 1), ("count", count, 1)):
            if value < least:
                raise InputError(f"{name} must be at least {least}, not {value}")
        self.rounds, self.interval, self.growth, self.count = rounds, interval, growth, count
        self.ascent = Ascent(
            penalty=penalty,
            steps=ascent_steps,
            lr=ascent_lr,
            batch=ascent_batch,
            optimizer=ascent_optimizer,
            distance=distance,
            reduction=reduction,
            clip=clip,
            quantize=quantize,
        )

    def is_growing(self, step: int) -> bool:
        """Tell whether a domain is due: at `interval`, twice that, and so on, `rounds` times."""
        return step % self.interval == 0 and 0 < step <= self.rounds * self.interval

    def grow(self, model: Classifier, pool: Images, step: int) -> dict[str, float]:
        """Append a domain; return its size, the pool's, how far pixels moved, and the share of images that did not.

        The first is the root mean square over all pixels; an image counts as unmoved where none moved by half a level.
        """
        return self.append_climbed(model, pool, self.starting_rows(pool, step))

    def starting_rows(self, pool: Images, step: int) -> Tensor:
        """Return the rows of the pool that the round of a step starts from; drawn ones are keyed by seed and step."""
        return choose_rows(
            self.growth,
            num_source=pool.num_source,
            size=len(pool),
            round_number=max(1, step // self.interval),
            count=self.count,
            generator=self.generator(step, "ada.rows"),
        )

    def append_climbed(
        self, model: Classifier, pool: Images, rows: Tensor, bonus: Bonus | None = None
    ) -> dict[str, float]:
        """Climb from these rows of the pool and append what is reached.

        Processes share whole batches of the ascent, so that each batch is the same however many there are: a norm that
        takes the batch's statistics in evaluation too then gives the same images.

        Raises:
            DivergenceError: an ascent ended at images that are not finite; nothing is appended.
        """
        rows = rows.to(pool.labels.device)
        batches = rows.split(self.ascent.piece(model, pool.images(rows[:1])))
        parts = []
        squares, unmoved = torch.zeros((2,), dtype=torch.float64, device=rows.device)
        lost = torch.zeros((), dtype=torch.bool, device=rows.device)
        climb = self.ascent.climber(model, bonus, captured=self.capture, lost=lost)
        own = batches[self.world.share(len(batches))] or (rows[:0],)
        for done, batch in enumerate(own, 1):
            images = pool.images(batch)
            parts.append(climb(images, pool.labels[batch]))
            moves = (_as_float(parts[-1]) - images).double()
            squares += moves.square().sum()
            unmoved += (moves.abs() < _HALF_A_LEVEL).flatten(1).all(1).sum()
            self.watch(done / len(own))
        if self.world.sum(lost.to(torch.int64)).item():
            raise DivergenceError("the ascent went to images that are not finite; try a lower method.ascent_lr")
        grown = self.world.gather(torch.cat(parts))
        pool.append(grown, pool.labels[rows])
        change = (self.world.sum(squares) / max(1, grown.numel())).sqrt().item()
        share = self.world.sum(unmoved).item() / max(1, len(grown))
        return {"grown": len(grown), "pool": len(pool), "change": change, "unmoved": share}


def _as_float(images: Tensor) -> Tensor:
    return images / 255 if images.dtype == torch.uint8 else images
