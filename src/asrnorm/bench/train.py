"""Whole trainings by the clock: Digits RSDA, CIFAR-10 ADA and PACS RSC with ASR-Norm, through the trainer itself.

A training of hours is measured over a stretch of it and scaled to its length; `scaled` and the measured steps stand in
every row. Where the data are not at hand the images are made, which costs the same.
"""

import itertools
import multiprocessing
import os
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

import torch

from asrnorm.bench import device as place
from asrnorm.bench.harness import Row, quantile
from asrnorm.bench.loop import Mark, find_images, time_loop
from asrnorm.config import Choice, RunConfig
from asrnorm.errors import UnknownNameError, describe_unknown
from asrnorm.recipes import recipe
from asrnorm.sharing import share_gpus, visible_gpu

TRAINER, EAGER = "trainer", "eager loop, reference layers"
_SMALL_NET = Choice(name="digits_convnet", args={"channels": [4, 4], "hidden": 8})


class Plan(NamedTuple):
    """What one way of training costs: seconds of a step, of a grow phase, and how that was found."""

    step_seconds: list[float]
    grow_seconds: float
    measured_steps: int
    measured_grows: int


class Settings(NamedTuple):
    """How long to measure; `seeds` are trained side by side."""

    device: torch.device
    quick: bool
    seeds: int
    made: bool


def run(
    device: str = "cpu", *, quick: bool = False, only: Sequence[str] = (), processes: int = 1, made: bool = False
) -> Iterator[list[Row]]:
    """Measure the trainings and yield the rows of each.

    Args:
        device: `cpu` or `cuda`.
        quick: a few steps of small networks, to see that everything runs.
        only: names among `digits`, `cifar`, `pacs-photo`, `pacs-sketch`; all where empty.
        processes: also train so many seeds of Digits side by side, a process each.
        made: make the images even where the real ones are at hand.
    """
    settings = Settings(place.require(device), quick, processes, made)
    for name in only or WORKS:
        if name not in WORKS:
            raise UnknownNameError(describe_unknown("training to measure,", name, WORKS))
        yield WORKS[name](settings)


def windows(marks: Sequence[Mark], every: int, skip: int) -> list[float]:
    """Return the seconds between marks that lie `every` steps apart, the first `skip` such stretches left out.

    Example:
        >>> marks = [Mark(step, seconds) for step, seconds in ((0, 0.0), (2, 5.0), (4, 6.0), (5, 6.5), (6, 7.5))]
        >>> windows(marks, 2, skip=1)
        [1.0, 1.5]
    """
    times: dict[int, float] = {}
    for mark in marks:
        if mark.step % every == 0:
            times.setdefault(mark.step, mark.seconds)  # the end of the loop comes again, after its last checkpoint
    steps = sorted(times)
    return [times[b] - times[a] for a, b in itertools.pairwise(steps)][skip:]


def _digits(settings: Settings) -> list[Row]:
    whole = recipe("digits.rsda_asr")
    interval = 2 if settings.quick else whole.method.args["interval"]
    warm, count = (1, 2) if settings.quick else (2, 50)
    config = replace(whole, steps=(warm + count) * interval, log_every=min(interval, whole.log_every))
    if settings.quick:
        config = _shrink(config, interval=2, candidates=2, search_images=8)
    work = f"Digits RSDA+ASR, {whole.steps:,} steps"

    def plan(seed: int, stretches: int, captured: bool) -> tuple[Plan, list[Mark], str]:
        skip = warm if captured else 1
        part = replace(config, seed=seed, steps=(skip + stretches) * interval)
        data, kind = find_images(part, 64 if settings.quick else 55_000, settings.made)
        marks = time_loop(part, data, settings.device, captured=captured)
        seconds = [window / interval for window in windows(marks, interval, skip)]
        return Plan(seconds, 0.0, stretches * interval, stretches), marks, kind

    base, _, kind = plan(0, 1, False)
    rows = [_row(work, EAGER, EAGER, base, None, whole.steps, 0, config, kind)]
    alone, _, kind = plan(0, count, True)
    rows.append(_row(work, TRAINER, EAGER, alone, base, whole.steps, 0, config, kind))
    if settings.seeds > 1:
        many, sharing = _side_by_side(config, settings, warm * interval, interval)
        path = f"{TRAINER}, {settings.seeds} seeds side by side"
        rows.append(_row(work, path, EAGER, many, base, whole.steps, 0, config, kind))
        rows[-1].extra["seeds"] = settings.seeds
        if settings.device.type == "cuda":
            rows[-1].extra["sharing"] = sharing
    return rows


def _side_by_side(config: RunConfig, settings: Settings, warm: int, interval: int) -> tuple[Plan, str]:
    """Train the seeds in processes of their own; count only the time in which all of them were at it."""
    context = multiprocessing.get_context("spawn")
    gpus = [visible_gpu(settings.device.index or 0)] if settings.device.type == "cuda" else []
    with share_gpus(gpus, settings.seeds) as sharing:
        variables = sharing.variables.get(gpus[0], {}) if gpus else {}
        if variables:  # they name one GPU, which is the first for those who see no other
            settings = settings._replace(device=torch.device("cuda"))
        with _environment(variables), context.Pool(settings.seeds) as pool:
            tasks = [(replace(config, seed=seed), settings) for seed in range(settings.seeds)]
            all_marks = pool.starmap(_child, tasks, chunksize=1)
            pool.close()
            pool.join()  # killed in the midst of their work, clients leave an MPS server in disorder
    plan = Plan([joint_step(all_marks, warm)], 0.0, config.steps - warm, (config.steps - warm) // interval)
    return plan, sharing.way


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set variables of this process, which those that it starts inherit, and put them back."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _child(config: RunConfig, settings: Settings) -> list[Mark]:
    data, _ = find_images(config, 64 if settings.quick else 55_000, settings.made)
    return time_loop(config, data, settings.device)


def joint_step(all_marks: Sequence[Sequence[Mark]], warm: int) -> float:
    """Return seconds a step of each process, over the time in which all of them ran, on the clock they share.

    Example:
        >>> one = [Mark(0, 0.0), Mark(10, 10.0), Mark(20, 20.0)]
        >>> two = [Mark(0, 5.0), Mark(10, 25.0), Mark(20, 45.0)]
        >>> round(joint_step([one, two], warm=0), 3)  # 15 s in which one did 15 steps and the other 7.5
        1.333
    """
    start = max(next(mark.seconds for mark in marks if mark.step >= warm) for marks in all_marks)
    stop = min(marks[-1].seconds for marks in all_marks)
    if stop <= start:  # too short a run to have any common time
        return max((marks[-1].seconds - marks[0].seconds) / marks[-1].step for marks in all_marks)
    steps = [_steps_at(marks, stop) - _steps_at(marks, start) for marks in all_marks]
    return (stop - start) / statistics.mean(steps)


def _steps_at(marks: Sequence[Mark], seconds: float) -> float:
    for before, after in itertools.pairwise(marks):
        if before.seconds <= seconds <= after.seconds and after.seconds > before.seconds:
            share = (seconds - before.seconds) / (after.seconds - before.seconds)
            return before.step + share * (after.step - before.step)
    return float(marks[-1].step)


def _cifar(settings: Settings) -> list[Row]:
    whole = recipe("cifar10c.ada_asr")
    every = 1 if settings.quick else 100
    images = 8 if settings.quick else 6_400
    rows: list[Row] = []
    base: Plan | None = None
    for norm in ("bn", "asr"):
        config = recipe(f"cifar10c.ada_{norm}")
        if settings.device.type == "cpu":
            config = replace(config, precision="float32")
        # Two rounds: the first also pays for what is compiled and captured.
        options = {**config.method.args, "rounds": 2, "interval": 2 * every}
        method = replace(config.method, args=options)
        config = replace(config, method=method, steps=6 * every, log_every=every, adversarial=False)
        if settings.quick:
            config = replace(_shrink(config, ascent_steps=1, ascent_batch=8), model=Choice(name="wrn_16_4"))
        data, kind = find_images(config, images, settings.made)
        seconds = windows(time_loop(config, data, settings.device), every, skip=1)
        # Stretches 2 to 6; the second ascent lies in the fifth, the first in the third.
        quiet = [seconds[0], seconds[2], seconds[4]]
        ascent = max(0.0, seconds[3] - statistics.median(quiet)) * 50_000 / images
        plan = Plan([value / every for value in quiet], ascent, 3 * every, 1)
        base = base or plan
        name = f"ADA+{norm.upper()}"
        rows.append(_row("CIFAR-10 ADA, 78,200 steps", name, "ADA+BN", plan, base, whole.steps, 3, config, kind))
        rows[-1].extra["ascent_images"] = images
    return rows


def _pacs(source: str) -> Callable[[Settings], list[Row]]:
    def measure(settings: Settings) -> list[Row]:
        rows: list[Row] = []
        base: Plan | None = None
        for norm in ("bn", "asr"):
            config = recipe(f"pacs.rsc_{norm}", source=source)
            if settings.device.type == "cpu":
                config = replace(config, precision="float32")
            config = replace(config, selection="last", evaluate_every=0)
            if settings.quick:
                config = replace(config, steps=2, batch_size=2, log_every=1)
            count = 4 if settings.quick else {"photo": 1_499, "sketch": 3_531}[source]
            data, kind = find_images(config, count, settings.made or settings.quick)
            # A machine compiles the kernels of a network once, which takes longer than this loop.
            time_loop(replace(config, steps=2), data, settings.device)
            marks = time_loop(config, data, settings.device)
            # The whole loop, first steps and all: it is short enough to be measured as it is.
            total = marks[-1].seconds - marks[0].seconds
            plan = Plan([total / config.steps], 0.0, config.steps, 0)
            base = base or plan
            work = f"PACS {source} RSC, loop only"
            rows.append(_row(work, f"RSC+{norm.upper()}", "RSC+BN", plan, base, config.steps, 0, config, kind))
        return rows

    return measure


def _shrink(config: RunConfig, **options: Any) -> RunConfig:
    method = replace(config.method, args={**config.method.args, **options})
    model = _SMALL_NET if config.model.name == "digits_convnet" else config.model
    return replace(config, method=method, model=model, batch_size=4)


def _row(
    work: str,
    path: str,
    baseline: str,
    plan: Plan,
    base: Plan | None,
    steps: int,
    grows: int,
    config: RunConfig,
    images: str,
) -> Row:
    own, other = _seconds(plan, steps, grows), _seconds(base or plan, steps, grows)
    slow, median, fast = (1 / quantile(plan.step_seconds, share) for share in (0.8, 0.5, 0.2))
    tf32 = torch.backends.cudnn.allow_tf32 and config.precision == "float32" and torch.cuda.is_available()
    extra = {
        "seconds": own,
        "times_baseline": own / other,
        "steps": steps,
        "measured_steps": plan.measured_steps,
        "measured_grows": plan.measured_grows,
        "grow_seconds": plan.grow_seconds,
        "scaled": plan.measured_steps != steps,
        "precision": f"{config.precision}, TF32 in convolutions" if tf32 else config.precision,
        "images": images,
    }
    return Row(work, path, median, slow, fast, other / own, baseline, len(plan.step_seconds), extra)


def _seconds(plan: Plan, steps: int, grows: int) -> float:
    return statistics.median(plan.step_seconds) * steps + plan.grow_seconds * grows


WORKS: dict[str, Callable[[Settings], list[Row]]] = {
    "digits": _digits,
    "cifar": _cifar,
    "pacs-photo": _pacs("photo"),
    "pacs-sketch": _pacs("sketch"),
}
