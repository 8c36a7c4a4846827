"""Random search data augmentation (Volpi and Murino, ICCV 2019, algorithms 1 and 3)."""

from typing import Literal

from asrnorm.data.augment import draw_tuples
from asrnorm.methods.base import METHODS
from asrnorm.methods.transformation_pool import CountWrong, Found, TransformationPool, require_positive, worst_of


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
