"""Random data augmentation over RSDA's transformation set, without a search (Volpi and Murino, ICCV 2019).

Random search data augmentation (Volpi and Murino, ICCV 2019, algorithms 1 and 3).

Evolution search data augmentation (Volpi and Murino, ICCV 2019, algorithms 2 and 3).
"""

from typing import Literal

import torch
from torch import Tensor

from asrnorm.core.errors import InputError
from asrnorm.data.augment import draw_tuples
from asrnorm.methods.base import METHODS, Batch, Method
from asrnorm.methods.transformations import CountWrong, Found, TransformationPool, require_positive, transform, worst_of
from asrnorm.models import Classifier


@METHODS.register("rda")
class RDA(Method):
    """RDA: every batch under a fresh random tuple of transformations.

    Args:
        tuple_length: operations in a tuple.

    Example:
        >>> RDA(tuple_length=2).is_growing(1000)
        False
    """

    capturable = True

    unit_range = True

    def __init__(self, *, tuple_length: int = 3) -> None:
        super().__init__()
        require_positive("RDA", {"tuple_length": tuple_length})
        self.tuple_length = tuple_length

    def loss(self, model: Classifier, batch: Batch) -> Tensor:
        """Return the cross-entropy of the batch under a tuple drawn for it."""
        drawn = self.drawn(batch)
        return super().loss(model, batch._replace(images=transform(batch.images, drawn["ops"], drawn["levels"])))

    def draw(self, step: int, size: int) -> dict[str, Tensor]:  # noqa: ARG002
        """Return the tuple of a step."""
        ops, levels = draw_tuples(1, self.generator(step, "tuple"), self.tuple_length)
        return {"ops": ops[0], "levels": levels[0]}


@METHODS.register("rsda")
class RSDA(TransformationPool):
    """RSDA: batches under tuples of transformations, the worst of many random ones added at intervals.

    Args:
        interval: steps between searches; 10,000 in the authors' released run, 1,000 in the ASR-Norm paper.
        candidates: tuples that a search tries.
        tuple_length: operations in a tuple.
        search_images: source images that a tuple is judged by, the same in every search.
        search_batch: images the model sees at a time in a search.
        search_rows: which images: the `first` ones, as published, or `even`ly spaced ones, for sets sorted by class.

    Example:
        >>> method = RSDA(interval=500)
        >>> [step for step in range(0, 1501, 250) if method.is_growing(step)]
        [500, 1000, 1500]
    """

    def __init__(
        self,
        *,
        interval: int = 10_000,
        candidates: int = 100,
        tuple_length: int = 3,
        search_images: int = 1000,
        search_batch: int = 500,
        search_rows: Literal["first", "even"] = "first",
    ) -> None:
        super().__init__(
            interval=interval,
            tuple_length=tuple_length,
            search_images=search_images,
            search_batch=search_batch,
            search_rows=search_rows,
        )
        require_positive("RSDA", {"candidates": candidates})
        self.candidates = candidates

    @property
    def num_candidates(self) -> int:
        """Tuples that a search judges."""
        return self.candidates

    def search(self, count_wrong: CountWrong, step: int) -> Found:
        """Return the worst of `candidates` random tuples, the first of equally bad ones."""
        ops, levels = draw_tuples(self.candidates, self.generator(step, "search"), self.tuple_length)
        return worst_of(ops, levels, count_wrong(ops, levels))


@METHODS.register("esda")
class ESDA(TransformationPool):
    """ESDA: as RSDA, with a genetic algorithm in place of the random search.

    Args:
        interval: steps between searches.
        population: tuples in a generation, an even number.
        generations: generations bred after the first, random one.
        mutation: chance of each gene, an operation with its level, to be drawn anew.
        tuple_length: operations in a tuple.
        search_images: source images that a tuple is judged by, the same in every search.
        search_batch: images the model sees at a time in a search.
        search_rows: which images: the `first` ones, as published, or `even`ly spaced ones, for sets sorted by class.

    Example:
        >>> method = ESDA(generations=30)
        >>> found = method.search(lambda ops, levels: (ops == 6).sum(1), step=0)  # as if grayscale were the worst
        >>> found.ops.tolist(), found.wrong
        ([6, 6, 6], 3)
    """

    def __init__(
        self,
        *,
        interval: int = 10_000,
        population: int = 10,
        generations: int = 10,
        mutation: float = 0.1,
        tuple_length: int = 3,
        search_images: int = 1000,
        search_batch: int = 500,
        search_rows: Literal["first", "even"] = "first",
    ) -> None:
        super().__init__(
            interval=interval,
            tuple_length=tuple_length,
            search_images=search_images,
            search_batch=search_batch,
            search_rows=search_rows,
        )
        require_positive("ESDA", {"population": population})
        if population % 2 or generations < 0 or not 0 <= mutation <= 1:
            raise InputError(
                "ESDA: population must be even, generations at least 0 and mutation in 0..1, "
                f"not {population}, {generations} and {mutation}"
            )
        self.population = population
        self.generations = generations
        self.mutation = mutation

    @property
    def num_candidates(self) -> int:
        """Tuples that a search judges, in all generations together."""
        return self.population * (self.generations + 1)

    def search(self, count_wrong: CountWrong, step: int) -> Found:
        """Return the worst tuple of all generations, the first of equally bad ones."""
        generator = self.generator(step, "search")
        ops, levels = draw_tuples(self.population, generator, self.tuple_length)
        wrong = count_wrong(ops, levels)
        worst = worst_of(ops, levels, wrong)
        for _ in range(self.generations):
            ops, levels = breed(ops, levels, wrong, self.mutation, generator)
            wrong = count_wrong(ops, levels)
            worst = max(worst, worst_of(ops, levels, wrong), key=lambda found: found.wrong)
        return worst


def breed(
    ops: Tensor, levels: Tensor, wrong: Tensor, mutation: float, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Return the next generation: parents drawn in proportion to their errors, crossed at one point, mutated.

    A pair is cut at 0 .. length - 1; one child has the head of the first parent and the tail of the second, the other
    the reverse. Cut at 0, the children are the parents.

    Args:
        ops: tuples of this generation, `(population, length)`.
        levels: likewise.
        wrong: images that each of them makes the model miss.
        mutation: chance of each gene to be drawn anew.
        generator: where the randomness comes from.

    Example:
        >>> ops, levels = torch.tensor([[0, 1], [2, 3]]), torch.zeros(2, 2, dtype=torch.int64)
        >>> wrong = torch.tensor([0, 9])  # only the second has children
        >>> breed(ops, levels, wrong, 0.0, torch.Generator())[0].tolist()
        [[2, 3], [2, 3]]
    """
    population, length = ops.shape
    # Where the model misses nothing, all are equally fit.
    fitness = wrong.double() if bool(wrong.any()) else torch.ones(population, dtype=torch.float64)
    first, second = torch.multinomial(fitness, population, replacement=True, generator=generator).view(2, -1)
    cut = torch.randint(length, (population // 2, 1), generator=generator)
    is_head = torch.arange(length) < cut
    mutates = torch.rand((population, length), generator=generator) < mutation
    fresh_ops, fresh_levels = draw_tuples(population, generator, length)

    def cross(genes: Tensor) -> Tensor:
        one, other = genes[first], genes[second]
        return torch.cat([torch.where(is_head, one, other), torch.where(is_head, other, one)])

    return torch.where(mutates, fresh_ops, cross(ops)), torch.where(mutates, fresh_levels, cross(levels))
