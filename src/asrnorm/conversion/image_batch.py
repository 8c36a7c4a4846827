"""Batches of images from whatever a user's loader gives, as calibration and reestimation take them."""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from torch import Tensor, nn

from asrnorm.conversion.kind import default_factory
from asrnorm.errors import InputError, InputTypeError

Images = Tensor | tuple[Tensor, Any] | list[Any]
"""Images `(n, 3, h, w)`, or a pair of them and something else, as loaders give."""


def place_images(model: nn.Module, batches: Iterable[Images], num_batches: int | None) -> Iterator[Tensor]:
    """Yield images on the device and in the dtype of a model, batch by batch.

    Raises:
        InputError: there were none, or a negative number was asked for.
        InputTypeError: a tensor in place of batches, or a batch that is no tensor and does not start with one.
    """
    if isinstance(batches, Tensor):
        raise InputTypeError(
            "batches takes several, as a data loader gives them; of one tensor of images make [images]"
        )
    if num_batches is not None and num_batches < 0:
        raise InputError(f"num_batches must be at least 0, not {num_batches}")
    like = default_factory(model)
    empty = True
    for batch in islice(batches, num_batches):
        images = batch[0] if isinstance(batch, list | tuple) and batch else batch
        if not isinstance(images, Tensor):
            raise InputTypeError(
                f"a batch is a tensor of images, or a tuple that starts with one, not {type(batch).__name__}"
            )
        if not images.is_floating_point():
            raise InputTypeError(
                f"images must be what the model takes, floating-point, not {images.dtype}; of bytes make "
                "[batch[0] / 255 for batch in batches]"
            )
        if len(images):
            empty = False
            yield images.to(**like)
    if empty:
        raise InputError("no images to take statistics of: give a batch or more")
