"""RDA, RSDA and ESDA: transformation tuples that are random, or found by random or evolutionary search.

Volpi and Murino, *Addressing Model Vulnerability to Distributional Shifts over Image Transformation Sets*, ICCV 2019,
algorithms 1 and 2.
"""

from dataclasses import dataclass
from math import inf
from typing import ClassVar

import torch
from torch import Tensor

from asrnorm.core.errors import InputError
from asrnorm.data.augment import draw_tuples
from asrnorm.methods.base import METHODS
from asrnorm.methods.transformations import CountWrong, Found, TransformationPool, TransformedBatches


@METHODS.register("rda")
@dataclass(kw_only=True, eq=False)
class RDA(TransformedBatches):
    """RDA: every batch under a fresh random tuple of transformations.

    Args:
        tuple_length: operations in a tuple.
    """

    ranges: ClassVar = {"tuple_length": (1, inf)}

    tuple_length: int = 3

    def draw(self, step: int, size: int) -> dict[str, Tensor]:  # noqa: ARG002
        """Return the tuple of a step."""
        ops, levels = draw_tuples(1, self.generator(step, "tuple"), self.tuple_length)
        return {"ops": ops[0], "levels": levels[0]}


@METHODS.register("rsda")
@dataclass(kw_only=True, eq=False)
class RSDA(TransformationPool):
    """RSDA: batches under tuples of transformations, the worst of many random ones added at intervals.

    Args:
        candidates: tuples that a search tries.

    The other options are those of `TransformationPool`.

    Example:
        >>> method = RSDA(interval=500)
        >>> [step for step in range(0, 1501, 250) if method.is_growing(step)]
        [500, 1000, 1500]
    """

    ranges: ClassVar = {"candidates": (1, inf)}

    candidates: int = 100

    @property
    def num_candidates(self) -> int:
        """Number of tuples that a search judges."""
        return self.candidates

    def search(self, count_wrong: CountWrong, step: int) -> Found:
        """Return the worst of `candidates` random tuples, the first of equally bad ones."""
        ops, levels = draw_tuples(self.candidates, self.generator(step, "search"), self.tuple_length)
        return worst_of(ops, levels, count_wrong(ops, levels))


@METHODS.register("esda")
@dataclass(kw_only=True, eq=False)
class ESDA(TransformationPool):
    """ESDA: as RSDA, with a genetic algorithm in place of the random search.

    Args:
        population: tuples in a generation, an even number.
        generations: generations bred after the first, random one.
        mutation: chance of each gene, an operation with its level, to be drawn again.

    The other options are those of `TransformationPool`.

    Example:
        >>> method = ESDA(generations=30)
        >>> found = method.search(lambda ops, levels: (ops == 6).sum(1), step=0)  # as if grayscale were the worst
        >>> found.ops.tolist(), found.wrong
        ([6, 6, 6], 3)
    """

    ranges: ClassVar = {"population": (1, inf), "generations": (0, inf), "mutation": (0, 1)}

    population: int = 10
    generations: int = 10
    mutation: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.population % 2:
            raise InputError(f"esda: population must be even, not {self.population}")

    @property
    def num_candidates(self) -> int:
        """Number of tuples that a search judges, in all generations together."""
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


def worst_of(ops: Tensor, levels: Tensor, wrong: Tensor) -> Found:
    """Return the tuple under which the model misses most images, the first of equals."""
    index = int(wrong.argmax())
    return Found(ops[index], levels[index], int(wrong[index]))


def breed(
    ops: Tensor, levels: Tensor, wrong: Tensor, mutation: float, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Return the next generation: parents drawn in proportion to their errors, crossed at one point, mutated.

    A pair is cut at 0 .. length - 1; one child has the head of the first parent and the tail of the second, the other
    the reverse. Cut at 0, the children are the parents.

    Example:
        >>> ops, levels = torch.tensor([[0, 1], [2, 3]]), torch.zeros(2, 2, dtype=torch.int64)
        >>> wrong = torch.tensor([0, 9])  # only the second has children
        >>> breed(ops, levels, wrong, 0.0, torch.Generator())[0].tolist()
        [[2, 3], [2, 3]]
    """
    population, length = ops.shape
    # If the model misses nothing, all are equally fit.
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
