"""Random data augmentation over RSDA's transformation set, without a search (Volpi and Murino, ICCV 2019)."""

from torch import Tensor

from asrnorm.data.augment import draw_tuples
from asrnorm.methods.base import METHODS, Batch, Method
from asrnorm.methods.transformation import transform
from asrnorm.methods.transformation_pool import require_positive
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
