"""Time of whole trainings through the trainer: Digits RSDA, CIFAR-10 ADA and PACS RSC with ASR-Norm.

A long training is measured over part of its steps and scaled; every row says so and gives the measured steps. Without
the real data the images are generated, which costs the same.
"""

import itertools
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import torch

from asrnorm.bench.data import natural_like
from asrnorm.bench.device import environment, on_backend, require
from asrnorm.bench.harness import Row, rates
from asrnorm.conversion import convert
from asrnorm.core.config import Choice, RunConfig
from asrnorm.core.distributed import ALONE
from asrnorm.core.errors import UnknownNameError, describe_unknown
from asrnorm.core.settings import data_folder
from asrnorm.data import ImageSet, create_suite
from asrnorm.data.pool import Pool
from asrnorm.data.suites.base import Data
from asrnorm.launch.mps import share_gpus, visible_gpu
from asrnorm.models import Classifier
from asrnorm.norms.dispatch import Backend
from asrnorm.recipes import recipe
from asrnorm.training.assembly import build_method, build_model
from asrnorm.training.checkpoint import CheckpointStore
from asrnorm.training.log import RunLog
from asrnorm.training.trainer import Trainer


class Mark(NamedTuple):
    """Step and time of a row of the log."""

    step: int
    seconds: float


class MarkingLog(RunLog):
    """Log that only records the time of every row; the trainer has synchronized with the device by then."""

    def __init__(self, marks: list[Mark], step: int) -> None:
        super().__init__(None, None, step)
        self._marks = marks

    def write(self, row: Mapping[str, Any]) -> None:
        """Record the time of a row."""
        self._marks.append(Mark(row["step"], time.perf_counter()))


def make_images(count: int, size: tuple[int, int], num_classes: int) -> ImageSet:
    """Return generated images with labels in turn; a training loop takes as long on them as on real ones."""
    images = natural_like(min(count, 512), max(size))[:, :, : size[0], : size[1]]
    images_nhwc = images.permute(0, 2, 3, 1).contiguous().numpy()
    tiled = np.resize(images_nhwc, (count, *size, 3))
    return ImageSet(tiled, np.arange(count, dtype=np.int64) % num_classes)


def find_images(config: RunConfig, count: int, made: bool) -> tuple[Data, str]:
    """Return up to `count` images, and `real`, or `made` if they are generated, as asked or for lack of real ones."""
    suite = create_suite(config.suite.name, **config.suite.args)
    if not made and not any(part.role == "source" for part in suite.missing):
        train = suite.train
        return train.take(slice(0, count)) if isinstance(train, ImageSet) else train, "real"
    return make_images(count, suite.image_size, len(suite.classes)), "made"


def time_loop(config: RunConfig, data: Data, device: torch.device, *, captured: bool = True) -> list[Mark]:
    """Train as `asrnorm train` does and return the times of its log rows; the first mark is the start.

    The baseline, which is not `captured`, runs every step eagerly with the reference layers.
    """
    config = config if captured else replace(config, capture=False)
    backend: Backend = "auto" if captured else "reference"
    with tempfile.TemporaryDirectory(prefix="asrnorm-bench-") as folder, on_backend(backend):
        model, method = _model(config, device), build_method(config, device, ALONE)
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
    # Without the pretrained file, random weights in the same network cost the same.
    plain = replace(config, weights=None, norm=Choice(name="bn"))
    model = build_model(plain, suite, len(suite.classes), device)
    if config.norm.name != "bn":
        convert(model, config.norm.name, layers=config.layers, **config.norm.args)
    return model.to(device)


TRAINER, EAGER = "trainer", "eager loop, reference layers"
_SMALL_NET = Choice(name="digits_convnet", args={"channels": [4, 4], "hidden": 8})


class Settings(NamedTuple):
    """Options of a measurement; `seeds` are trained side by side."""

    device: torch.device
    quick: bool
    seeds: int
    made: bool


class Measured(NamedTuple):
    """One way to train: seconds per step and per grow phase, over how many of each, and what was trained."""

    path: str
    step_seconds: list[float]
    measured_steps: int
    config: RunConfig
    images: str
    measured_grows: int = 0
    grow_seconds: float = 0.0
    extra: Mapping[str, Any] = MappingProxyType({})


def run(
    device: str | None = "cpu", *, quick: bool = False, only: Sequence[str] = (), processes: int = 1, made: bool = False
) -> Iterator[list[Row]]:
    """Measure the trainings named by `only`, all by default, and yield the rows of each.

    Also train seeds of Digits in this many processes side by side; `made` generates images though there are real ones.
    """
    settings = Settings(require(device), quick, processes, made)
    for name in only or WORKS:
        if name not in WORKS:
            raise UnknownNameError(describe_unknown("training to measure,", name, WORKS))
        yield WORKS[name](settings)


def windows(marks: Sequence[Mark], every: int, skip: int) -> list[float]:
    """Return the seconds between marks `every` steps apart, without the first `skip` intervals."""
    # The end of the loop is marked again after its last checkpoint; the first mark of a step counts.
    times = {mark.step: mark.seconds for mark in reversed(marks) if mark.step % every == 0}
    return [after - before for before, after in itertools.pairwise(sorted(times.values()))][skip:]


def _digits(settings: Settings) -> list[Row]:
    whole = recipe("digits.rsda_asr")
    interval = 2 if settings.quick else whole.method.args["interval"]
    warm, count = (1, 2) if settings.quick else (2, 50)
    config = replace(whole, steps=(warm + count) * interval, log_every=min(interval, whole.log_every))
    if settings.quick:
        config = _shrink(config, interval=2, candidates=2, search_images=8)

    def measure(path: str, stretches: int, skip: int, captured: bool) -> Measured:
        part = replace(config, seed=0, steps=(skip + stretches) * interval)
        data, kind = _find_digits(part, settings)
        marks = time_loop(part, data, settings.device, captured=captured)
        seconds = [window / interval for window in windows(marks, interval, skip)]
        return Measured(path, seconds, stretches * interval, config, kind, stretches)

    measured = [measure(EAGER, 1, 1, False), measure(TRAINER, count, warm, True)]
    if settings.seeds > 1:
        seconds, sharing = _side_by_side(config, settings, warm * interval)
        path = f"{TRAINER}, {settings.seeds} seeds side by side"
        extra = {"seeds": settings.seeds, **({"sharing": sharing} if settings.device.type == "cuda" else {})}
        measured.append(Measured(path, [seconds], count * interval, config, measured[1].images, count, extra=extra))
    return _rows(f"Digits RSDA+ASR, {whole.steps:,} steps", measured, whole.steps)


def _side_by_side(config: RunConfig, settings: Settings, warm: int) -> tuple[float, str]:
    """Train the seeds in separate processes; return the seconds per step and how they shared the GPU."""
    context = multiprocessing.get_context("spawn")
    gpus = [visible_gpu(settings.device.index or 0)] if settings.device.type == "cuda" else []
    with share_gpus(gpus, settings.seeds) as sharing:
        variables = sharing.variables.get(gpus[0], {}) if gpus else {}
        if variables:  # they name one GPU, which the processes see as the first
            settings = settings._replace(device=torch.device("cuda"))
        with environment(variables), context.Pool(settings.seeds) as pool:
            tasks = [(replace(config, seed=seed), settings) for seed in range(settings.seeds)]
            all_marks = pool.starmap(_child, tasks, chunksize=1)
            pool.close()
            pool.join()  # clients killed while they work leave the MPS server in disorder
    return joint_step(all_marks, warm), sharing.way


def _child(config: RunConfig, settings: Settings) -> list[Mark]:
    data, _ = _find_digits(config, settings)
    return time_loop(config, data, settings.device)


def _find_digits(config: RunConfig, settings: Settings) -> tuple[Data, str]:
    return find_images(config, 64 if settings.quick else 55_000, settings.made)


def joint_step(all_marks: Sequence[Sequence[Mark]], warm: int) -> float:
    """Return seconds per step of each process over the time in which all of them ran."""
    start = max(next(mark.seconds for mark in marks if mark.step >= warm) for marks in all_marks)
    stop = min(marks[-1].seconds for marks in all_marks)
    if stop <= start:  # too short to overlap
        return max((marks[-1].seconds - marks[0].seconds) / marks[-1].step for marks in all_marks)
    steps = []
    for marks in all_marks:
        first, last = np.interp((start, stop), [mark.seconds for mark in marks], [mark.step for mark in marks])
        steps.append(float(last - first))
    return (stop - start) / statistics.mean(steps)


def _cifar(settings: Settings) -> list[Row]:
    every = 1 if settings.quick else 100
    images = 8 if settings.quick else 6_400
    measured = []
    for norm in ("bn", "asr"):
        whole = _fit_precision(recipe(f"cifar10c.ada_{norm}"), settings)
        # Two rounds, because the first includes compilation and capture.
        method = replace(whole.method, args={**whole.method.args, "rounds": 2, "interval": 2 * every})
        config = replace(whole, method=method, steps=6 * every, log_every=every, adversarial=False)
        if settings.quick:
            config = replace(_shrink(config, ascent_steps=1, ascent_batch=8), model=Choice(name="wrn_16_4"))
        data, kind = find_images(config, images, settings.made)
        seconds = windows(time_loop(config, data, settings.device), every, skip=1)
        # Intervals 2 to 6; the first ascent is in the third, the second in the fifth.
        quiet = [seconds[0], seconds[2], seconds[4]]
        ascent = max(0.0, seconds[3] - statistics.median(quiet)) * 50_000 / images
        per_step = [value / every for value in quiet]
        extra = {"ascent_images": images}
        measured.append(Measured(f"ADA+{norm.upper()}", per_step, 3 * every, config, kind, 1, ascent, extra))
    return _rows("CIFAR-10 ADA, 78,200 steps", measured, whole.steps, grows=3)


def _pacs(source: str, settings: Settings) -> list[Row]:
    measured = []
    for norm in ("bn", "asr"):
        config = _fit_precision(recipe(f"pacs.rsc_{norm}", source=source), settings)
        config = replace(config, selection="last", evaluate_every=0)
        if settings.quick:
            config = replace(config, steps=2, batch_size=2, log_every=1)
        count = 4 if settings.quick else {"photo": 1_499, "sketch": 3_531}[source]
        data, kind = find_images(config, count, settings.made or settings.quick)
        # Compiling the kernels of a network takes longer than this loop and happens once per machine.
        time_loop(replace(config, steps=2), data, settings.device)
        marks = time_loop(config, data, settings.device)
        # The loop is short enough to be measured whole.
        per_step = (marks[-1].seconds - marks[0].seconds) / config.steps
        measured.append(Measured(f"RSC+{norm.upper()}", [per_step], config.steps, config, kind))
    return _rows(f"PACS {source} RSC, loop only", measured, config.steps)


def _fit_precision(config: RunConfig, settings: Settings) -> RunConfig:
    return config if settings.device.type == "cuda" else replace(config, precision="float32")


def _shrink(config: RunConfig, **options: Any) -> RunConfig:
    method = replace(config.method, args={**config.method.args, **options})
    model = _SMALL_NET if config.model.name == "digits_convnet" else config.model
    return replace(config, method=method, model=model, batch_size=4)


def _rows(work: str, measured: Sequence[Measured], steps: int, grows: int = 0) -> list[Row]:
    """Return the rows of a training of `steps` steps and `grows` grow phases; the first is the baseline."""
    totals = [statistics.median(one.step_seconds) * steps + one.grow_seconds * grows for one in measured]
    rows = []
    for one, total in zip(measured, totals, strict=True):
        slow, median, fast = rates(one.step_seconds)
        precision: str = one.config.precision
        if torch.backends.cudnn.allow_tf32 and precision == "float32" and torch.cuda.is_available():
            precision += ", TF32 in convolutions"
        extra = {
            "seconds": total,
            "times_baseline": total / totals[0],
            "steps": steps,
            "measured_steps": one.measured_steps,
            "measured_grows": one.measured_grows,
            "grow_seconds": one.grow_seconds,
            "scaled": one.measured_steps != steps,
            "precision": precision,
            "images": one.images,
            **one.extra,
        }
        ratio, count = totals[0] / total, len(one.step_seconds)
        rows.append(Row(work, one.path, median, slow, fast, ratio, measured[0].path, count, extra))
    return rows


WORKS: dict[str, Callable[[Settings], list[Row]]] = {
    "digits": _digits,
    "cifar": _cifar,
    "pacs-photo": partial(_pacs, "photo"),
    "pacs-sketch": partial(_pacs, "sketch"),
}
