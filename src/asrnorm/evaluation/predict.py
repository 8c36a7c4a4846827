"""Class and probability of single images, from arrays or from files of any format."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from asrnorm.core.errors import InputError
from asrnorm.core.precision import Precision
from asrnorm.data.image import read_image
from asrnorm.evaluation.inference import Inference
from asrnorm.methods.frozen_eval import evaluating


class Prediction(NamedTuple):
    """The most probable class of an image, and its probability."""

    label: str
    probability: float


def predict(
    model: nn.Module,
    images: NDArray[np.uint8],
    classes: Sequence[str],
    *,
    device: torch.device | str | None = None,
    precision: Precision = "float32",
    resize: tuple[int, int] | None = None,
) -> list[Prediction]:
    """Return the prediction for each image, the one that `score` counts.

    Args:
        model: takes float images in [0, 1], returns logits.
        images: uint8 `(n, h, w, 3)`, one batch.
        classes: names in the order of the logits.
        device: of the model; `None` takes that of its parameters.
        precision: `bfloat16` computes under autocast.
        resize: height and width to which images are resized first.

    Raises:
        InputError: the numbers of logits and classes differ, or logits are not finite.

    Example:
        >>> model = nn.Sequential(nn.Flatten(), nn.Linear(12, 2))
        >>> _ = model[1].bias.data.copy_(torch.tensor([0.0, 9.0]))
        >>> predict(model, np.zeros((1, 2, 2, 3), np.uint8), ("cat", "dog"))
        [Prediction(label='dog', probability=0.999876605...)]
    """
    if len(images) == 0:
        return []
    inference = Inference.of(model, device=device, precision=precision, size=resize)
    with evaluating(model), torch.inference_mode():
        logits_nk = inference.logits(inference.to_input(images)).cpu().double()
    if logits_nk.shape[1:] != (len(classes),):
        raise InputError(f"the model returns logits {tuple(logits_nk.shape)} for {len(classes)} classes")
    bad = (~logits_nk.isfinite().all(1)).nonzero().flatten().tolist()
    if bad:
        raise InputError(f"image {bad[0]} gives non-finite logits; check the weights file and the image")
    probability_n, label_n = logits_nk.softmax(1).max(1)
    return [Prediction(classes[k], p) for k, p in zip(label_n.tolist(), probability_n.tolist(), strict=True)]


def predict_files(
    model: nn.Module,
    paths: Sequence[Path],
    classes: Sequence[str],
    *,
    image_size: tuple[int, int],
    batch_size: int = 100,
    device: torch.device | str | None = None,
    precision: Precision = "float32",
    resize: tuple[int, int] | None = None,
) -> Iterator[tuple[Path, Prediction | InputError]]:
    """Yield each file with its prediction, in order; a file that is not an image comes with its error.

    Files are read at `image_size`, the height and width of the suite's images, `batch_size` at a time; the other
    arguments and errors are those of `predict`.
    """
    for start in range(0, len(paths), batch_size):
        batch = paths[start : start + batch_size]
        read = [_read(path, image_size) for path in batch]
        images = [image for image in read if not isinstance(image, InputError)]
        stacked = np.stack(images) if images else np.zeros((0, *image_size, 3), np.uint8)
        predictions = iter(predict(model, stacked, classes, device=device, precision=precision, resize=resize))
        for path, image in zip(batch, read, strict=True):
            yield path, image if isinstance(image, InputError) else next(predictions)


def _read(path: Path, image_size: tuple[int, int]) -> NDArray[np.uint8] | InputError:
    try:
        return read_image(path, size=image_size)
    except InputError as error:
        return error
