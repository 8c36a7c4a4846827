"""Class and probability of single images: arrays, or files of any format."""

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
    """The likeliest class of an image and how likely the model holds it."""

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
    """Return the prediction for each image, as `score` would count it.

    Args:
        model: takes float images in [0, 1], returns logits.
        images: uint8 `(n, h, w, 3)`, one batch.
        classes: names in the order of the logits.
        device: where the model lies; found from its parameters where `None`.
        precision: `bfloat16` computes under autocast.
        resize: height and width to which images are resized first.

    Raises:
        InputError: another number of logits than of classes, or NaN logits.

    Example:
        >>> model = nn.Sequential(nn.Flatten(), nn.Linear(12, 2))
        >>> _ = model[1].bias.data.copy_(torch.tensor([0.0, 9.0]))
        >>> predict(model, np.zeros((1, 2, 2, 3), np.uint8), ("cat", "dog"))
        [Prediction(label='dog', probability=0.999876605...)]
    """
    if len(images) == 0:
        return []
    inference = Inference.of(model, device=device, precision=precision, size=resize)
    with evaluating(model):
        images_nchw = inference.to_input(images)
        with torch.inference_mode():
            logits_nk = inference.logits(images_nchw).cpu().double()
    if logits_nk.shape[1:] != (len(classes),):
        raise InputError(f"the model returns logits {tuple(logits_nk.shape)} for {len(classes)} classes")
    bad = (~logits_nk.isfinite().all(1)).nonzero().flatten().tolist()
    if bad:
        raise InputError(f"NaN or infinite logits for image {bad[0]}; the weights are damaged, or the image is extreme")
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
    """Yield each file with its prediction, in order; a file that is no image comes with its error, and the rest go on.

    Args:
        model: as for `predict`.
        paths: image files.
        classes: names in the order of the logits.
        image_size: height and width at which the suite of the run keeps its images; files are read at that size.
        batch_size: files decoded and predicted at a time.
        device: where the model lies; found from its parameters where `None`.
        precision: `bfloat16` computes under autocast.
        resize: as for `predict`, after reading.

    Raises:
        InputError: as `predict`.
    """
    for start in range(0, len(paths), batch_size):
        part = paths[start : start + batch_size]
        found = [_read(path, image_size) for path in part]
        images = [image for image in found if not isinstance(image, InputError)]
        predictions = iter(
            predict(model, np.stack(images), classes, device=device, precision=precision, resize=resize)
            if images
            else ()
        )
        for path, image in zip(part, found, strict=True):
            yield path, image if isinstance(image, InputError) else next(predictions)


def _read(path: Path, image_size: tuple[int, int]) -> NDArray[np.uint8] | InputError:
    try:
        return read_image(path, size=image_size)
    except InputError as error:
        return error
