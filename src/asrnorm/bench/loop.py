"""A real training loop under a clock: the trainer of a run, its checkpoints and log, on real images or made ones."""

import tempfile
import time
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from asrnorm.bench.data import natural_like
from asrnorm.bench.device import on_backend
from asrnorm.config import Choice, RunConfig
from asrnorm.conversion import convert
from asrnorm.data import ImageSet, create_suite
from asrnorm.data.base import Data
from asrnorm.data.pool import Pool
from asrnorm.diagnosis import data_folder
from asrnorm.models import Classifier
from asrnorm.training.assembly import build_method, build_model
from asrnorm.training.checkpoint import CheckpointStore
from asrnorm.training.log import RunLog
from asrnorm.training.trainer import Trainer
from asrnorm.world import ALONE


class Mark(NamedTuple):
    """When a row of the log was written: the step and the clock."""

    step: int
    seconds: float


class MarkingLog(RunLog):
    """A log that writes nothing and notes the time of every row: by then the device has been waited for."""

    def __init__(self, marks: list[Mark], step: int) -> None:
        super().__init__(None, None, step)
        self._marks = marks

    def write(self, row: Mapping[str, Any]) -> None:
        """Note when a row came."""
        self._marks.append(Mark(row["step"], time.perf_counter()))


def make_images(count: int, size: tuple[int, int], num_classes: int) -> ImageSet:
    """Return made images with labels in turn, where a data set is not at hand: a loop takes as long on them.

    Example:
        >>> make_images(3, (8, 8), 2).labels.tolist()
        [0, 1, 0]
    """
    images = natural_like(min(count, 512), max(size))[:, :, : size[0], : size[1]]
    images_nhwc = images.permute(0, 2, 3, 1).contiguous().numpy()
    tiled = np.resize(images_nhwc, (count, *size, 3))
    return ImageSet(tiled, np.arange(count, dtype=np.int64) % num_classes)


def find_images(config: RunConfig, count: int | None, made: bool) -> tuple[Data, str]:
    """Return images to train on, and whether they are `real` or `made`.

    Args:
        config: names the suite.
        count: how many; all where `None`, and then as many as the published set has where they are made.
        made: make them even where the real ones are at hand.
    """
    suite = create_suite(config.suite.name, **config.suite.args)
    if not made and not any(part.role == "source" for part in suite.missing):
        train = suite.train
        if count is not None and count < len(train) and isinstance(train, ImageSet):
            return train.take(slice(0, count)), "real"
        return train, "real"
    return make_images(count or 1_000, suite.image_size, len(suite.classes)), "made"


def time_loop(config: RunConfig, data: Data, device: torch.device, *, captured: bool = True) -> list[Mark]:
    """Train as `asrnorm train` does, and return when the rows of its log came; the first mark is the start.

    Args:
        config: of the run; its steps are all done.
        data: to train on.
        device: where.
        captured: off runs every step eagerly and the norm layers by the reference, as a baseline.
    """
    if not captured:
        config = _uncaptured(config)
    with (
        tempfile.TemporaryDirectory(prefix="asrnorm-bench-") as folder,
        on_backend("auto" if captured else "reference"),
    ):
        model = _model(config, device)
        method = build_method(config, device, ALONE)
        trainer = Trainer(config, model, method, Pool(data, device), world=ALONE, stop=config.steps)
        marks = [Mark(0, time.perf_counter())]
        store = CheckpointStore(Path(folder) / "checkpoints", Path(folder) / "pool", config)
        trainer.fit(store, partial(MarkingLog, marks), config.recipe if captured else f"{config.recipe}, eager")
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        marks.append(Mark(config.steps, time.perf_counter()))
    return marks


def _model(config: RunConfig, device: torch.device) -> Classifier:
    suite = create_suite(config.suite.name, **config.suite.args)
    if config.weights is None or (data_folder() / config.weights).is_file():
        return build_model(config, suite, len(suite.classes), device)
    # Without the pretrained file: random weights in the same network, which cost the same.
    plain = replace(config, weights=None, norm=Choice(name="bn"))
    model = build_model(plain, suite, len(suite.classes), device)
    if config.norm.name != "bn":
        convert(model, config.norm.name, layers=config.layers, **config.norm.args)
    return model.to(device)


def _uncaptured(config: RunConfig) -> RunConfig:
    """Switch whole-step capture off in the config."""
    return replace(config, capture=False)
