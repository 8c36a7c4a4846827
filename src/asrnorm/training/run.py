"""One run, from config to result: the only module that wires everything together."""

import json
import logging
import time
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch

from asrnorm.core.config import RunConfig, content_hash, load_config, run_name
from asrnorm.core.distributed import World
from asrnorm.core.errors import DivergenceError, InputError, InputTypeError, InterruptedRunError
from asrnorm.core.files import file_sha256
from asrnorm.core.reading import read_json
from asrnorm.core.results import RunResult, format_result, read_environment, read_result, seal
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
    choose_device,
    compile_parts,
    confine_to_source,
    from_first,
    join_world,
    prepare_model,
)
from asrnorm.training.average import create_average
from asrnorm.training.checkpoint import CheckpointStore
from asrnorm.training.environment import check_finished, check_start, describe_environment, record_environment
from asrnorm.training.log import RunLog
from asrnorm.training.run_folder import RunFolder, write_run_file
from asrnorm.training.selection import (
    Selector,
    create_loss_measure,
    create_measure,
    hold_out,
    needs_hold_out,
    score_settings,
    validate,
)
from asrnorm.training.track import Trackers
from asrnorm.training.trackers import Tracked, create_trackers
from asrnorm.training.trainer import Trainer

logger = logging.getLogger("asrnorm")

_CHOICE = "choice.json"


@dataclass(frozen=True)
class LoadedRun:
    """A finished run, ready to use: `model` is in evaluation mode on `device`."""

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
    """Folder, device, processes and trackers of a run."""

    folder: RunFolder
    device: torch.device
    world: World
    trackers: Trackers

    @property
    def is_first(self) -> bool:
        """Whether this process writes the files."""
        return self.world.rank == 0


def run(
    config: RunConfig,
    out: str | Path | None = None,
    fresh: bool = False,
    world: World | None = None,
    track: Tracked = None,
) -> RunResult:
    """Do what `asrnorm.train` does; `world` has the processes, by default those of `torchrun`, or this one."""
    if not isinstance(config, RunConfig):
        raise InputTypeError(f"train takes a config, such as asrnorm.recipe('digits.rsda_asr'), not {config!r:.80}")
    check_config(config)
    create_trackers(() if track is None else track)  # raises before anything is written
    device = choose_device(config.device)
    if device.type == "mps":
        raise InputError("device 'mps': training sums in float64, which Apple's GPUs do not have; set device=cpu")
    folder = RunFolder(Path("runs") / run_name(config) if out is None else Path(out))
    with (
        nullcontext(world) if world is not None else join_world(device) as processes,
        folder.open(config, fresh=fresh) if processes.rank == 0 else nullcontext(),
        torch.random.fork_rng(devices=[device] if device.type == "cuda" else []),  # the caller's generators
    ):
        if from_first(processes.rank == 0 and folder.is_done(), processes):
            result = read_result(folder.result)
            if processes.rank == 0:
                check_finished(folder.environment, config)
                folder.drop_pool()
            return result
        try:
            chosen = create_trackers(track) if processes.rank == 0 else []
            with Trackers(chosen, folder.path, config) as trackers:
                return _execute(config, _Site(folder, device, processes, trackers))
        except DivergenceError as error:  # kept, since for some ablations it is the outcome
            if processes.rank == 0:
                write_run_file(folder.divergence, json.dumps({"schema": 1, "message": str(error)}).encode())
            raise


def load_run(folder: str | Path, device: str = "auto") -> LoadedRun:
    """Return config, model and suite of a finished run without reading its data.

    Args:
        folder: of the run.
        device: where to put the model.

    Raises:
        InputError: not the folder of a run, or the run is not done.
    """
    files = RunFolder(Path(folder))
    config = load_config(files.config)
    check_names(config)
    if not files.model.is_file():
        raise InputError(f"{files.path}: the run is not done, it has no {files.model.name}; asrnorm train resumes it")
    if files.result.exists():
        _check_files(files, config)
    chosen = choose_device(device)
    suite = create_suite(config.suite.name, **config.suite.args)
    classes = _read_classes(files.environment, suite)
    state = read_state(files.model)
    try:
        model = build_like(config, suite, len(classes), chosen, state)
    except RuntimeError as error:  # load_state_dict lists every key
        raise InputError(f"{files.model}: not the weights of {files.config}") from error
    return LoadedRun(config, model.eval(), suite, chosen, classes)


def _check_files(files: RunFolder, config: RunConfig) -> None:
    try:
        result = read_result(files.result)
    except InputError as error:  # the model is whole without it, and has a checksum of its own
        logger.warning("%s; asrnorm train makes it again, config and weights are not checked", error)
        return
    files.check_config(config, result)
    try:
        files.check_model(result)
    except InputError as error:
        raise InputError(f"{error}; asrnorm train makes it again from the last checkpoint") from None


def _read_classes(environment: Path, suite: Suite) -> tuple[str, ...]:
    try:
        return tuple(map(str, read_environment(environment)["classes"]))
    except (KeyError, TypeError):
        pass
    try:
        return suite.classes
    except InputError as error:
        raise InputError(f"{environment}: cannot be read for the classes of the run, and {error}") from error


def _execute(config: RunConfig, site: _Site) -> RunResult:
    suite = create_suite(config.suite.name, **config.suite.args)
    suite.require_source()
    suite.check_files()
    if config.fold != "none" and suite.validation is None:
        raise InputError(f"fold={config.fold} measures on validation images, and suite {suite.name!r} holds none out")
    commit = ""
    data = check_start(site.folder.environment, suite, config)
    facts = {**describe_environment(site.device, site.world), **data, "edition": suite.edition}
    if site.is_first:
        commit = record_environment(site.folder.environment, facts)["commit"]
    stop, seconds = config.steps, 0.0
    selector: Selector | None = None
    if needs_hold_out(config, suite):
        stop, seconds = _choose_steps(config, suite, site)
    elif config.selection != "last" and config.evaluate_every:
        images = None if config.selection == "oracle" else suite.validation
        measure = create_measure(config.selection, suite, images, config, site.device, site.world)
        selector = Selector(measure, config.selection_ties)
    trainer = _train(config, suite, suite.train, site, RunFolder(site.folder.path), stop, selector)
    started = time.monotonic()
    if selector is not None:
        trainer.model.load_state_dict(selector.weights)
        stop = selector.step
    else:
        trainer.adopt_average()
    if config.confine:
        confine_to_source(trainer.model, suite, config, site.world)
    if site.is_first:
        write_run_file(site.folder.model, pack_state(trainer.model.state_dict()))
    result = _evaluate(config, suite, trainer.model, site, commit=commit, steps=stop)
    wall = seconds + trainer.elapsed + time.monotonic() - started
    result = replace(result, wall_seconds=round(wall, 3))
    if site.is_first:
        weights, written = file_sha256(site.folder.model), file_sha256(site.folder.config)
        result = seal(replace(result, weights_sha256=weights, config_sha256=written))
        # The test images may have been added, or changed, since the start.
        facts |= {"edition": suite.edition, "targets": suite.target_listing()}
        record_environment(site.folder.environment, facts)
        site.trackers.finish(result)
        write_run_file(site.folder.result, format_result(result).encode())
        site.folder.divergence.unlink(missing_ok=True)  # of an earlier attempt
        site.folder.drop_pool()
    return result


def _choose_steps(config: RunConfig, suite: Suite, site: _Site) -> tuple[int, float]:
    """Train without some images; return the step at which those are classified best, and the seconds it took."""
    files = RunFolder(site.folder.choice)
    path = files.path / _CHOICE
    known = from_first(_read_choice(path, config.steps) if site.is_first else None, site.world)
    if known is not None:
        if site.is_first:
            files.drop_pool()
        return known
    kept, held_out = hold_out(suite.train)
    measure = create_measure(config.selection, suite, held_out, config, site.device, site.world)
    selector = Selector(measure, config.selection_ties)
    with site.trackers.at(files.path) as own:
        trainer = _train(config, suite, kept, site._replace(trackers=own), files, config.steps, selector)
    if site.is_first:
        values = {"step": selector.step, "score": selector.score, "held_out": len(held_out), "seconds": trainer.elapsed}
        write_run_file(path, json.dumps(values).encode())
        files.drop_pool()
    if trainer.stop_requested:
        raise InterruptedRunError(f"interrupted after step {selector.step:,} was chosen; start the run again to resume")
    return selector.step, trainer.elapsed


def _read_choice(path: Path, steps: int) -> tuple[int, float] | None:
    """Return the step chosen by an earlier process and its seconds, `None` if there is no valid file."""
    try:
        values = read_json(path)
        step, seconds = values["step"], float(values["seconds"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return (step, seconds) if type(step) is int and 1 <= step <= steps else None


def _train(
    config: RunConfig, suite: Suite, data: Data, site: _Site, files: RunFolder, stop: int, selector: Selector | None
) -> Trainer:
    model = build_model(config, suite, len(suite.classes), site.device)
    pool = Pool(data, site.device)
    if config.batch_size > len(pool) and site.is_first:
        logger.warning(
            "batch_size is %s, but the source has only %s images: every batch is all of them",
            config.batch_size,
            len(pool),
        )
    store = CheckpointStore(files.checkpoints, files.pool, config)
    if from_first(store.is_empty(), site.world):
        prepare_model(model, config, pool, site.world)
    if config.compile:
        compile_parts(model)
    method = build_method(config, site.device, site.world)
    average = create_average(config, partial(create_loss_measure, suite, config, site.device, site.world))
    trainer = Trainer(config, model, method, pool, world=site.world, stop=stop, selector=selector, average=average)
    log = partial(RunLog, files.log if site.is_first else None, site.trackers)
    choosing = "" if files.path == site.folder.path else " (choosing)"
    trainer.fit(store, log, f"{config.recipe}{choosing}")
    return trainer


def _evaluate(config: RunConfig, suite: Suite, model: Classifier, site: _Site, *, commit: str, steps: int) -> RunResult:
    from asrnorm.evaluation.attacks import score_attacks
    from asrnorm.evaluation.score import score_suite, subsample

    settings = score_settings(config, suite, site.device, site.world)
    # A run with a fold is there to choose settings, which must not see a target.
    own: dict[str, Any] = {"limit": config.evaluate_limit, "adapt": config.adapt, "seed": config.seed}
    scores = score_suite(model, suite, with_targets=config.fold == "none", **own, **settings)
    adversarial: dict[str, float] = {}
    if config.adversarial:
        images = subsample(suite.source_test, config.evaluate_limit)
        adversarial = score_attacks(model, images, seed=config.seed, **settings)
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
