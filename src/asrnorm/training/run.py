"""One run, from config to result: the only place that wires everything together."""

import json
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch

from asrnorm.core.config import RunConfig, content_hash, load_config, run_name
from asrnorm.core.distributed import World
from asrnorm.core.errors import DivergenceError, InputError, InputTypeError, InterruptedRunError
from asrnorm.core.results import RunResult, format_result, read_result
from asrnorm.data import Suite, create_suite
from asrnorm.data.pool import Pool
from asrnorm.data.suites.base import Data
from asrnorm.models import Classifier
from asrnorm.models.weights import pack_state, read_state
from asrnorm.training.assembly import (
    build_like,
    build_method,
    build_model,
    check_config,
    check_names,
    compile_parts,
    confine_to_source,
    prepare_model,
)
from asrnorm.training.checkpoint import CheckpointStore
from asrnorm.training.distributed import choose_device, from_first, join_world
from asrnorm.training.log import RunLog, describe_environment, record_environment
from asrnorm.training.run_folder import RunFolder, refuse_changed_images, refuse_other_start, write_run_file
from asrnorm.training.selection import Selector, create_measure, hold_out, needs_hold_out, validate
from asrnorm.training.trainer import Trainer

logger = logging.getLogger(__name__)

_CHOICE = "choice.json"


@dataclass(frozen=True)
class LoadedRun:
    """A finished run, ready to be used: `model` is in evaluation mode on `device`."""

    config: RunConfig
    model: Classifier
    suite: Suite
    device: torch.device
    classes: tuple[str, ...]

    @property
    def input_size(self) -> tuple[int, int]:
        """Height and width at which the model was trained and takes images."""
        from asrnorm.evaluation.score import evaluation_size

        return evaluation_size(self.suite, self.config.augment)


class _Site(NamedTuple):
    """Where a run takes place."""

    folder: RunFolder
    device: torch.device
    world: World


def run(config: RunConfig, out: str | Path | None = None, fresh: bool = False, world: World | None = None) -> RunResult:
    """Train, evaluate and return the result; started again after anything, go on; when it is done, return at once.

    Args:
        config: everything the run depends on.
        out: its folder; `runs/<recipe>--s<seed>--<hash>` where `None`.
        fresh: start over, whatever the folder holds of an earlier try.
        world: the processes; by default those that `torchrun` started, or this one alone.

    Raises:
        UnknownNameError: the config names what no registry holds.
        InputError: data that is missing, or a folder that holds another run.
        DivergenceError: a loss that is not finite.
        InterruptedRunError: Ctrl-C or SIGTERM, after a checkpoint.
        StorageError: the disk is full, or the folder cannot be written.
    """
    if not isinstance(config, RunConfig):
        raise InputTypeError(f"train takes a config, such as asrnorm.recipe('digits.rsda_asr'), not {config!r:.80}")
    check_config(config)
    device = choose_device(config.device)
    if device.type == "mps":
        raise InputError("device 'mps': training sums in float64, which Apple's GPUs do not have; set device=cpu")
    folder = RunFolder(Path("runs") / run_name(config) if out is None else Path(out))
    with (
        nullcontext(world) if world is not None else join_world(device) as processes,
        folder.open(config, fresh=fresh) if processes.rank == 0 else nullcontext(),
        _own_generators(device),
    ):
        if from_first(processes.rank == 0 and folder.is_done(), processes):
            result = read_result(folder.result)
            if processes.rank == 0:
                refuse_changed_images(folder.environment, config)
                folder.drop_pool()
            return result
        try:
            return _work(config, _Site(folder, device, processes))
        except DivergenceError as error:  # kept, since for some ablations it is the outcome
            if processes.rank == 0:
                write_run_file(folder.divergence, json.dumps({"schema": 1, "message": str(error)}).encode())
            raise


def load_run(folder: str | Path, device: str = "auto") -> LoadedRun:
    """Return config, model and suite of a finished run; of the data, nothing is touched.

    Args:
        folder: of the run.
        device: where to put the model.

    Raises:
        InputError: no run folder, or the run is not done.
    """
    place = RunFolder(Path(folder))
    config = load_config(place.config)
    check_names(config)
    if not place.model.is_file():
        raise InputError(f"{place.path}: the run is not done, it has no {place.model.name}; asrnorm train goes on")
    chosen = choose_device(device)
    suite = create_suite(config.suite.name, **config.suite.args)
    try:
        classes = tuple(map(str, json.loads(place.environment.read_text())["classes"]))
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        classes = _read_classes(suite, place.environment)
    state = read_state(place.model)
    try:
        model = build_like(config, suite, len(classes), chosen, state)
    except RuntimeError as error:  # load_state_dict lists every key
        raise InputError(f"{place.model}: not the weights of {place.config}") from error
    return LoadedRun(config, model.eval(), suite, chosen, classes)


def _read_classes(suite: Suite, environment: Path) -> tuple[str, ...]:
    try:
        return suite.classes
    except InputError as error:
        raise InputError(f"{environment}: names the classes of the run, and cannot be read; nor {error}") from error


def _work(config: RunConfig, site: _Site) -> RunResult:
    suite = create_suite(config.suite.name, **config.suite.args)
    suite.require_source()
    suite.check_files()
    commit = ""
    begun = refuse_other_start(site.folder.environment, suite, config)
    if site.world.rank == 0:
        facts = describe_environment(site.device, site.world) | begun
        facts["edition"] = suite.edition
        commit = record_environment(site.folder.environment, facts)["commit"]
    stop, seconds = config.steps, 0.0
    selector: Selector | None = None
    if needs_hold_out(config, suite):
        stop, seconds = _choose_steps(config, suite, site)
    elif config.selection != "last" and config.evaluate_every:
        images = None if config.selection == "oracle" else suite.validation
        selector = Selector(create_measure(config.selection, suite, images, config, site.device, site.world))
    trainer = _train(config, suite, suite.train, site, RunFolder(site.folder.path), stop, selector)
    started = time.monotonic()
    if selector is not None:
        trainer.model.load_state_dict(selector.weights)
        stop = selector.step
    if config.confine:
        confine_to_source(trainer.model, suite, config, site.world)
    if site.world.rank == 0:
        _save_model(site.folder.model, trainer.model)
    result = _evaluate(config, suite, trainer.model, site, commit=commit, steps=stop)
    wall = seconds + trainer.elapsed + time.monotonic() - started
    result = replace(result, wall_seconds=round(wall, 3))
    if site.world.rank == 0:
        # The test images may have come, or changed, since the start.
        scored = {"edition": suite.edition, "targets": suite.target_listing()}
        record_environment(site.folder.environment, {**facts, **scored})
        _save_result(site.folder.result, result)
        site.folder.divergence.unlink(missing_ok=True)  # of an earlier try
        site.folder.drop_pool()
    return result


def _save_result(path: Path, result: RunResult) -> None:
    """Write what a run came to; a full disk is told as to someone who trains."""
    write_run_file(path, format_result(result).encode())


def _choose_steps(config: RunConfig, suite: Suite, site: _Site) -> tuple[int, float]:
    """Train without some of the images, find at which step the others are classified best, and how long it took."""
    place = RunFolder(site.folder.choice)
    done = place.path / _CHOICE
    known = from_first(_read_choice(done, config.steps) if site.world.rank == 0 else None, site.world)
    if known is not None:
        if site.world.rank == 0:
            place.drop_pool()
        return known
    kept, held = hold_out(suite.train)
    selector = Selector(create_measure(config.selection, suite, held, config, site.device, site.world))
    trainer = _train(config, suite, kept, site, place, config.steps, selector)
    if site.world.rank == 0:
        values = {"step": selector.step, "score": selector.score, "held_out": len(held), "seconds": trainer.elapsed}
        write_run_file(done, json.dumps(values).encode())
        place.drop_pool()
    if trainer.told_to_stop:
        raise InterruptedRunError(f"interrupted when step {selector.step:,} was chosen; started again, the run goes on")
    return selector.step, trainer.elapsed


def _read_choice(path: Path, steps: int) -> tuple[int, float] | None:
    """Return the step that was chosen before and how long it took, `None` where there is no such, or it is damaged."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        step, seconds = values["step"], float(values["seconds"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return (step, seconds) if type(step) is int and 1 <= step <= steps else None


def _train(
    config: RunConfig, suite: Suite, data: Data, site: _Site, place: RunFolder, stop: int, selector: Selector | None
) -> Trainer:
    model = build_model(config, suite, len(suite.classes), site.device)
    pool = Pool(data, site.device)
    if config.batch_size > len(pool) and site.world.rank == 0:
        logger.warning(
            "batch_size is %s, the source has %s images: a batch is all of them", config.batch_size, len(pool)
        )
    store = CheckpointStore(place.checkpoints, place.pool, config)
    if from_first(store.is_empty(), site.world):
        prepare_model(model, config, pool, site.world)
    if config.compile:
        compile_parts(model)
    method = build_method(config, site.device, site.world)
    trainer = Trainer(config, model, method, pool, world=site.world, stop=stop, selector=selector)
    writes = site.world.rank == 0
    log = partial(RunLog, place.log if writes else None, place.events if writes else None)
    choosing = "" if place.path == site.folder.path else " (choosing)"
    trainer.fit(store, log, f"{config.recipe}{choosing}")
    return trainer


def _evaluate(config: RunConfig, suite: Suite, model: Classifier, site: _Site, *, commit: str, steps: int) -> RunResult:
    from asrnorm.evaluation.score import evaluation_size, score_suite

    size = evaluation_size(suite, config.augment)
    scores = score_suite(
        model,
        suite,
        batch_size=config.evaluate_batch,
        device=site.device,
        precision=config.precision,
        world=site.world,
        resize=size,
        limit=config.evaluate_limit,
    )
    adversarial: dict[str, float] = {}
    if config.adversarial:
        from asrnorm.evaluation.attacks import score_attacks
        from asrnorm.evaluation.score import subsample

        adversarial = score_attacks(
            model,
            subsample(suite.source_test, config.evaluate_limit),
            batch_size=config.evaluate_batch,
            device=site.device,
            precision=config.precision,
            resize=size,
            seed=config.seed,
            world=site.world,
        )
    return RunResult(
        recipe=config.recipe,
        scale=config.scale,
        seed=config.seed,
        config_hash=content_hash(config),
        commit=commit,
        selection=config.selection,
        num_parameters=sum(parameter.numel() for parameter in model.parameters()),
        source=scores.source,
        domains=tuple(scores.domains),
        missing=tuple(scores.missing),
        average_accuracy=scores.average_accuracy,
        adversarial=adversarial,
        wall_seconds=0.0,
        steps=steps,
        validation=validate(model, suite, config, site.device, site.world),
    )


def _save_model(path: Path, model: Classifier) -> None:
    write_run_file(path, pack_state(model.state_dict()))


@contextmanager
def _own_generators(device: torch.device) -> Iterator[None]:
    """Leave the caller's global generators as they were."""
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        yield
