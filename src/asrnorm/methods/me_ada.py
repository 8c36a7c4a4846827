"""ME-ADA: ADA whose ascent also raises the entropy of the prediction.

Zhao et al., *Maximum-Entropy Adversarial Data Augmentation for Improved Generalization and Robustness*, NeurIPS 2020.
"""

from dataclasses import replace

from asrnorm.methods.ada import ADA
from asrnorm.methods.ascent import Distance, Growth, Optimizer, Reduction
from asrnorm.methods.base import METHODS


@METHODS.register("me_ada")
class MEADA(ADA):
    """ME-ADA: ADA with the entropy of the prediction added to what the ascent climbs.

    Args:
        entropy_weight: of the entropy.
        penalty: on the distance to the original image in the semantic space.
        rounds: how many domains are grown.
        interval: steps between them.
        growth: which images a round starts from, see `choose_rows`; `me_ada` takes all, and the pool doubles.
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
        >>> MEADA().ascent.entropy_weight, MEADA().growth
        (10.0, 'me_ada')
    """

    def __init__(
        self,
        *,
        entropy_weight: float = 10.0,
        penalty: float = 1.0,
        rounds: int = 3,
        interval: int = 100,
        growth: Growth = "me_ada",
        count: int = 10_000,
        ascent_steps: int = 15,
        ascent_lr: float = 1.0,
        ascent_batch: int = 32,
        ascent_optimizer: Optimizer = "sgd",
        distance: Distance = "mean",
        reduction: Reduction = "batch",
        clip: bool = True,
        quantize: bool = False,
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
        self.ascent = replace(self.ascent, entropy_weight=entropy_weight)
