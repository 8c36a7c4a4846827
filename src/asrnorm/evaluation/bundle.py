"""Many small batches in one call, for networks whose norms look at the batch.

Called batch by batch, BN-Test at a batch of 16 leaves a GPU waiting for the host.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn

from asrnorm.evaluation.inference import Inference
from asrnorm.methods.mode import looks_at_batch

_PIXELS = 512 * 32 * 32  # of the images in one call
_DEVICES = ("cuda",)  # a CPU gains nothing by it


def count_together(inference: Inference, batch_size: int, image_size: tuple[int, int]) -> int:
    """Return how many batches a model, in evaluation mode, is to be given at once.

    More than one only where every layer that looks at the batch can keep several apart, as `bn_test` does: one with an
    attribute `batches`.

    Args:
        inference: the model.
        batch_size: images in a batch.
        image_size: their height and width.
    """
    mixing = [module for module in inference.model.modules() if looks_at_batch(module)]
    if inference.device.type not in _DEVICES or not mixing:
        return 1
    if not all(hasattr(module, "batches") for module in mixing):
        return 1
    height, width = image_size
    return max(1, _PIXELS // (batch_size * height * width))


@contextmanager
def keeping_apart(model: nn.Module, batches: int) -> Iterator[None]:
    """Let every layer that can take its input for so many batches, within the block.

    Example:
        >>> from asrnorm.norms import BatchNormTest
        >>> layer = BatchNormTest(3).eval()
        >>> with keeping_apart(layer, 2):
        ...     layer.batches
        2
        >>> layer.batches
        1
    """
    layers = [module for module in model.modules() if looks_at_batch(module)] if batches > 1 else []
    for layer in layers:
        setattr(layer, "batches", batches)  # noqa: B010
    try:
        yield
    finally:
        for layer in layers:
            setattr(layer, "batches", 1)  # noqa: B010
