"""Class and probability of single images, from arrays or from files of any format."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from asrnorm.core.errors import InputError
from asrnorm.core.frozen_eval import evaluating
from asrnorm.core.precision import Precision
from asrnorm.data.image import read_image
from asrnorm.evaluation.inference import Inference


class Prediction(NamedTuple):
    """The most probable class of an image, its probability, and the classes that come next with theirs."""

    label: str
    probability: float
    runners_up: tuple[tuple[str, float], ...] = ()


def predict(
    model: nn.Module,
    images: NDArray[np.uint8],
    classes: Sequence[str],
    *,
    precision: Precision = "float32",
    resize: tuple[int, int] | None = None,
    top: int = 1,
) -> list[Prediction]:
    """Return the prediction for each of the images, uint8 `(n, h, w, 3)`, the one that `score` counts.

    The names of the classes are in the order of the logits; `top` of them, the most probable, are returned for each
    image. All images are one batch. The other arguments are those of `score`.

    Example:
        >>> model = nn.Sequential(nn.Flatten(), nn.Linear(12, 2))
        >>> _ = model[1].bias.data.copy_(torch.tensor([0.0, 9.0]))
        >>> predict(model, np.zeros((1, 2, 2, 3), np.uint8), ("cat", "dog"))
        [Prediction(label='dog', probability=0.999876605..., runners_up=())]
    """
    if len(images) == 0:
        return []
    inference = Inference.of(model, precision=precision, size=resize)
    with evaluating(model), torch.inference_mode():
        logits_nk = inference.logits(inference.to_input(images)).cpu().double()
    if logits_nk.shape[1:] != (len(classes),):
        raise InputError(f"the model returns logits {tuple(logits_nk.shape)} for {len(classes)} classes")
    bad = (~logits_nk.isfinite().all(1)).nonzero().flatten().tolist()
    if bad:
        raise InputError(f"image {bad[0]} gives non-finite logits; check the weights file and the image")
    probability_nk = logits_nk.softmax(1)
    order_nk = probability_nk.argsort(dim=1, descending=True, stable=True)  # of equal ones the first, as in `score`
    found = zip(probability_nk.tolist(), order_nk[:, :top].tolist(), strict=True)
    ranked = ([(classes[k], probability[k]) for k in order] for probability, order in found)
    return [Prediction(*first, tuple(others)) for first, *others in ranked]


def predict_files(
    model: nn.Module,
    paths: Sequence[Path],
    classes: Sequence[str],
    *,
    image_size: tuple[int, int],
    batch_size: int = 100,
    precision: Precision = "float32",
    resize: tuple[int, int] | None = None,
    top: int = 1,
) -> Iterator[tuple[Path, Prediction | InputError]]:
    """Yield each file with its prediction, in order; a file that is not an image comes with its error.

    Files are read at `image_size`, the height and width of the suite's images, `batch_size` at a time; the other
    arguments are those of `predict`.
    """
    for start in range(0, len(paths), batch_size):
        batch = paths[start : start + batch_size]
        read = [_read(path, image_size) for path in batch]
        images = [image for image in read if not isinstance(image, InputError)]
        stacked = np.stack(images) if images else np.zeros((0, *image_size, 3), np.uint8)
        predictions = iter(predict(model, stacked, classes, precision=precision, resize=resize, top=top))
        for path, image in zip(batch, read, strict=True):
            yield path, image if isinstance(image, InputError) else next(predictions)


def _read(path: Path, image_size: tuple[int, int]) -> NDArray[np.uint8] | InputError:
    try:
        return read_image(path, size=image_size)
    except InputError as error:
        return error
