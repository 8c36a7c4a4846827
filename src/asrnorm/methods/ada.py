"""ADA and ME-ADA: adversarial data augmentation, a min-max over a growing training set.

Volpi et al., *Generalizing to Unseen Domains via Adversarial Data Augmentation*, NeurIPS 2018; appendix B of the
ASR-Norm paper. Zhao et al., *Maximum-Entropy Adversarial Data Augmentation for Improved Generalization and Robustness*,
NeurIPS 2020.
"""

from dataclasses import dataclass, replace
from math import inf
from typing import ClassVar, Literal

import torch
from torch import Tensor

from asrnorm.core.errors import DivergenceError
from asrnorm.data.augment import to_float
from asrnorm.methods.ascent import Ascent, Bonus, Distance, Optimizer, Reduction, check_choice
from asrnorm.methods.base import METHODS, Images, Method
from asrnorm.models import Classifier

Growth = Literal["volpi", "me_ada", "m_ada", "source"]

_HALF_A_LEVEL = 0.5 / 255


@METHODS.register("ada")
@dataclass(kw_only=True, eq=False)
class ADA(Method):
    """ADA: every so often, images that the model finds hard are made from those it has and appended with their labels.

    Args:
        penalty: on the distance to the original image in the semantic space.
        rounds: number of domains that are generated.
        interval: steps between them; the first is generated before step `interval`.
        growth: which images a round starts from: `volpi` a fixed number of the current pool, `me_ada` all of it,
            `m_ada` fewer each round, `source` the source images; see `choose_rows`.
        count: how many, under `volpi`.
        ascent_steps: steps of the ascent.
        ascent_lr: its step size.
        ascent_batch: images per batch of the ascent; divides the step under `reduction="batch"`.
        ascent_optimizer: `sgd` or `adam`.
        distance: `mean` or `half`, see `Ascent`.
        reduction: `batch` or `sample`, see `Ascent`.
        clip: keep generated images in [0, 1].
        quantize: keep them as uint8.

    Raises:
        UnknownNameError: a word that is none of the choices.
        InputError: a number out of range.

    Example:
        >>> method = ADA(rounds=2, interval=100)
        >>> [step for step in range(1000) if method.is_growing(step)]
        [100, 200]
    """

    ranges: ClassVar = {"rounds": (0, inf), "interval": (1, inf), "count": (1, inf)}

    penalty: float = 1.0
    rounds: int = 6
    interval: int = 100
    growth: Growth = "volpi"
    count: int = 10_000
    ascent_steps: int = 15
    ascent_lr: float = 1.0
    ascent_batch: int = 32
    ascent_optimizer: Optimizer = "sgd"
    distance: Distance = "mean"
    reduction: Reduction = "batch"
    clip: bool = False
    quantize: bool = False

    def __post_init__(self) -> None:
        check_choice("growth", self.growth, Growth)
        super().__post_init__()
        own = {name: getattr(self, name) for name in ("penalty", "distance", "reduction", "clip", "quantize")}
        prefixed = {name: getattr(self, f"ascent_{name}") for name in ("steps", "lr", "batch", "optimizer")}
        self.ascent = Ascent(**own, **prefixed)

    def is_growing(self, step: int) -> bool:
        """Tell whether a domain is due: at `interval`, twice that, and so on, `rounds` times."""
        return step % self.interval == 0 and 0 < step <= self.rounds * self.interval

    def grow(self, model: Classifier, pool: Images, step: int) -> dict[str, float]:
        """Append a domain; return its size, the pool's, how far pixels moved, and the share of images that did not.

        The change is the root mean square over all pixels; an image is unmoved if no pixel moved by half a level.
        """
        return self.append_domain(model, pool, self.starting_rows(pool, step))

    def starting_rows(self, pool: Images, step: int) -> Tensor:
        """Return the rows of the pool that the round of a step starts from; draws are keyed by seed and step."""
        return choose_rows(
            self.growth,
            num_source=pool.num_source,
            size=len(pool),
            round_number=max(1, step // self.interval),
            count=self.count,
            generator=self.generator(step, "ada.rows"),
        )

    def append_domain(
        self, model: Classifier, pool: Images, rows: Tensor, bonus: Bonus | None = None
    ) -> dict[str, float]:
        """Run the ascent from these rows of the pool and append the images it ends at.

        Processes share whole batches of the ascent, so that each batch is the same however many there are: a norm that
        uses batch statistics in evaluation mode then gives the same images.

        Raises:
            DivergenceError: the ascent ended at images that are not finite; nothing is appended.
        """
        rows = rows.to(pool.labels.device)
        batches = rows.split(self.ascent.chunk_size(model, pool.images(rows[:1])))
        parts = []
        squares, unmoved = torch.zeros((2,), dtype=torch.float64, device=rows.device)
        diverged = torch.zeros((), dtype=torch.bool, device=rows.device)
        ascend = self.ascent.prepare(model, bonus, captured=self.capture, diverged=diverged)
        own = batches[self.world.share(len(batches))] or (rows[:0],)
        for done, batch in enumerate(own, 1):
            images = pool.images(batch)
            parts.append(ascend(images, pool.labels[batch]))
            moves = (to_float(parts[-1]) - images).double()
            squares += moves.square().sum()
            unmoved += (moves.abs() < _HALF_A_LEVEL).flatten(1).all(1).sum()
            self.on_progress(done / len(own))
        if self.world.sum(diverged.to(torch.int64)).item():
            raise DivergenceError("the ascent went to images that are not finite; try a lower method.ascent_lr")
        generated = self.world.gather(torch.cat(parts))
        pool.append(generated, pool.labels[rows])
        change = (self.world.sum(squares) / max(1, generated.numel())).sqrt().item()
        share = self.world.sum(unmoved).item() / max(1, len(generated))
        return {"grown": len(generated), "pool": len(pool), "change": change, "unmoved": share}


@METHODS.register("me_ada")
@dataclass(kw_only=True, eq=False)
class MEADA(ADA):
    """ME-ADA: ADA with the entropy of the prediction added to what the ascent climbs.

    Args:
        entropy_weight: weight of the entropy.

    The other options are those of `ADA`; with `growth="me_ada"`, the default, the pool doubles in every round.
    """

    entropy_weight: float = 10.0
    rounds: int = 3
    growth: Growth = "me_ada"
    clip: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self.ascent = replace(self.ascent, entropy_weight=self.entropy_weight)


def choose_rows(
    growth: Growth, *, num_source: int, size: int, round_number: int, count: int, generator: torch.Generator
) -> Tensor:
    """Return the rows of a pool that a round starts from, int64, by the rule of one of the public codes.

    - `volpi`: `count` rows of the current pool: the first ones in the first round, drawn without replacement later. The
      original shuffles its array after each round and takes the first rows of it, which is equivalent.
    - `me_ada`: the whole current pool, which doubles.
    - `m_ada`: in round r, 1/r of the source's number of images; 1/r of these are source images and the others generated
      ones, each drawn without replacement.
    - `source`: the source images, which come first in the pool.

    Rounds are counted from one. The generator is on the CPU, so that rows do not depend on the device of the run.

    Example:
        >>> rows = choose_rows("m_ada", num_source=8, size=16, round_number=2, count=0, generator=torch.Generator())
        >>> len(rows), int((rows < 8).sum())
        (4, 2)
    """
    if growth == "me_ada":
        return torch.arange(size)
    if growth == "source" or (growth == "m_ada" and size == num_source):
        return torch.arange(num_source)
    if growth == "volpi":
        if size == num_source:
            return torch.arange(min(count, size))
        return torch.randperm(size, generator=generator)[:count]
    number = num_source // round_number
    from_source = number // round_number
    source = torch.randperm(num_source, generator=generator)[:from_source]
    generated = torch.randperm(size - num_source, generator=generator)[: number - from_source]
    return torch.cat([source, num_source + generated])
