"""`asrnorm evaluate`: score a finished run on every domain of a suite, or on other labelled images."""

import dataclasses
import json
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from asrnorm.cli.evaluation_inputs import change_network, choose_suite, score_folders
from asrnorm.cli.options import Modules, import_modules, json_output, open_run, read_assignments
from asrnorm.cli.table import print_attacks, print_domains, print_scores, print_validation
from asrnorm.core.config import RunConfig, content_hash, override
from asrnorm.core.errors import InputError, StorageError, WrongCallError
from asrnorm.core.files import describe_failure, replacing
from asrnorm.core.results import read_result, write_result
from asrnorm.core.settings import find_commit, shorten_commit

if TYPE_CHECKING:
    from torch import nn

    from asrnorm.core.results import DomainScore
    from asrnorm.data import Suite
    from asrnorm.evaluation import SuiteScore
    from asrnorm.training import LoadedRun

SCHEMA = 1
# Fields that may differ from training: the network stays the same.
_CHANGEABLE = ("adversarial", "confine", "device", "evaluate_batch", "evaluate_limit", "norm", "precision", "suite")


def evaluate(
    run: Annotated[Path, typer.Argument(help="The folder of a finished run.")],
    suite: Annotated[
        str | None, typer.Option(help="Another suite with the same classes.", show_default="the run's")
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            help="Score labelled images of new domains instead: `CLASS/IMAGE` or `DOMAIN/CLASS/IMAGE`, or a table."
        ),
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help=f"name=value; one of {', '.join(_CHANGEABLE)} or a part of it.")
    ] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Also write all numbers to this file; - prints them alone.")
    ] = None,
    name: Annotated[
        str | None, typer.Option("--as", help="Also save them in the run's folder, as evaluations/NAME.json.")
    ] = None,
    renew: Annotated[
        bool, typer.Option("--renew", help="Let --as replace an evaluation of that name made with other settings.")
    ] = False,
    statistics: Annotated[
        bool, typer.Option("--statistics", help="Only write what ASR-Norm learned: analyses/statistics.npz.")
    ] = False,
    modules: Modules = None,
) -> None:
    """Show accuracy, Brier score, NLL and calibration error of a run, domain by domain.

    Example: `asrnorm evaluate runs/digits.erm_asr--s0--0123456789 --json scores.json`. Batch norm with the statistics
    of the test batch: `--set norm=bn_test --set evaluate_batch=16`. ASR-Norm whose learned means stay in the range that
    they have on 2,000 source images: `--set confine=2000`. With `--as`, as many images per domain are scored
    as the run itself scored; without it, all. To score images collected after training: `--data new_site`; the
    training images are not needed.
    """
    assignments = read_assignments(settings or [], _CHANGEABLE)
    if suite is not None:
        assignments = {"suite": suite, **assignments}
    _check_options(assignments, data, json_file, name, renew, statistics)
    with json_output(json_file) as write_json:
        import_modules(modules)
        loaded = open_run(run)
        if name is not None:
            read_result(run / "result.json")  # `save_result` copies from it
        try:
            config = override(loaded.config, assignments)
        except InputError as error:
            raise WrongCallError(str(error)) from error
        if name is not None and not renew:
            check_free(run, name, config)
        scored = loaded.suite if data is not None else choose_suite(run, loaded, config)
        own = change_network(run, loaded, config, move="device" in assignments, scores_suite=data is None)
        limit = config.evaluate_limit if name is not None or "evaluate_limit" in assignments else 0
        if statistics:
            _write_statistics(run, loaded, config, scored)
        elif data is not None:
            _score_data(run, loaded, config, data, limit, write_json)
        else:
            _score_suite(run, loaded, config, scored, own, limit, name, write_json)


def _check_options(
    assignments: Mapping[str, object],
    data: Path | None,
    json_file: Path | None,
    name: str | None,
    renew: bool,
    statistics: bool,
) -> None:
    """Raise `typer.BadParameter` for options that exclude each other."""
    if statistics and (name is not None or set(assignments) - {"device"}):
        raise typer.BadParameter("--statistics uses the run as it was scored: leave out --as, --suite and --set")
    of_suites = {"adversarial", "suite"} & {word.partition(".")[0] for word in assignments}
    if data is not None and (statistics or name is not None or of_suites):
        raise typer.BadParameter("--data only scores images: leave out --as, --statistics, --suite and adversarial")
    if statistics and json_file is not None:
        raise typer.BadParameter("--statistics writes analyses/statistics.npz and no scores: leave out --json")
    if name is not None:
        check_name(name)
    elif renew:
        raise typer.BadParameter("--renew needs --as, the evaluation to replace")


def check_name(name: str) -> None:
    """Raise `typer.BadParameter` if the name of an evaluation cannot be that of a file."""
    if not re.fullmatch(r"\w[\w.-]*", name):
        raise typer.BadParameter(f"{name!r}: letters, digits, '-', '_' and '.' only", param_hint="--as")


def check_free(run: Path, name: str, config: RunConfig) -> None:
    """Raise `WrongCallError` if a run has an evaluation of that name with other settings; a damaged one is ignored."""
    path = _evaluation_path(run, name)
    try:
        saved = read_result(path).config_hash
    except InputError:
        return
    if saved != content_hash(config):
        raise WrongCallError(f"--as {name}: {path} was made with other settings; choose another name, or --renew it")


def _score_data(
    run: Path, loaded: "LoadedRun", config: RunConfig, data: Path, limit: int, write_json: Callable[[str], None]
) -> None:
    found = score_folders(loaded, data, limit, _input_options(loaded, config), _progress)
    if found.scores:
        print_domains(found.scores)
    described = _describe(run, loaded.config, config, None, found.scores) | {"suite": None, "data": str(data)}
    write_json(json.dumps(described | found.gaps(), indent=2))
    found.require_all()


def _score_suite(
    run: Path,
    loaded: "LoadedRun",
    config: RunConfig,
    suite: "Suite",
    own: "Suite | None",
    limit: int,
    name: str | None,
    write_json: Callable[[str], None],
) -> None:
    from asrnorm.evaluation import score_suite

    started = time.monotonic()
    if loaded.config.evaluate_limit and not limit:
        typer.echo(f"scoring all images; result.json has at most {loaded.config.evaluate_limit} per domain", err=True)
    options = _input_options(loaded, config)
    with _progress(1 + len(suite.target_names)) as report:
        scores: SuiteScore = score_suite(loaded.model, suite, report=report, limit=limit, **options)
    print_scores(scores)
    attacks = _attack(loaded, suite, scores.source, config.seed, limit, options) if config.adversarial else {}
    validation = {} if own is None else _validate(loaded, own, dataclasses.replace(config, evaluate_limit=limit))
    print_validation(validation)
    described = _describe(run, loaded.config, config, scores.source, scores.domains)
    described |= {"missing": list(scores.missing), "adversarial": attacks, "validation": validation}
    write_json(json.dumps(described, indent=2))
    if name is not None:
        origin = {"scored": " on ".join(filter(None, (shorten_commit(find_commit()), _name_device(loaded.model))))}
        if suite.edition:
            origin["edition"] = suite.edition
        save_result(run, name, config, scores, attacks, validation, origin=origin, seconds=time.monotonic() - started)


def _input_options(loaded: "LoadedRun", config: RunConfig) -> dict[str, Any]:
    """Return the options of `score_suite` and its neighbours; images of another suite get the run's size."""
    return {"batch_size": config.evaluate_batch, "precision": config.precision, "resize": loaded.input_size}


def _attack(
    loaded: "LoadedRun", suite: "Suite", clean: "DomainScore", seed: int, limit: int, options: dict[str, Any]
) -> dict[str, float]:
    from asrnorm.evaluation import ATTACKS, score_attacks
    from asrnorm.evaluation.score import subsample

    typer.echo(f"attacking {clean.num_samples:,} images in {len(ATTACKS)} ways", err=True)
    images = subsample(suite.source_test, limit)
    attacks: dict[str, float] = score_attacks(loaded.model, images, name=clean.name, seed=seed, **options)
    print_attacks(attacks, clean)
    return attacks


def _validate(loaded: "LoadedRun", own: "Suite", config: RunConfig) -> dict[str, float]:
    """Return the accuracy on validation images of the source, to choose a confinement without target images."""
    from asrnorm.core.distributed import ALONE
    from asrnorm.training.selection import validate

    return validate(loaded.model, own, config, next(loaded.model.parameters()).device, ALONE)


@contextmanager
def _progress(total: int) -> Iterator[Callable[["DomainScore"], None]]:
    """Yield a callback for each score, which advances a bar on a terminal and prints a line elsewhere."""
    console = Console(stderr=True, highlight=False)
    if not console.is_terminal:
        yield lambda domain: console.print(
            f"{domain.name}: accuracy {100 * domain.accuracy:.2f} %", markup=False, soft_wrap=True
        )
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description:<20}"), BarColumn(), MofNCompleteColumn(), TextColumn("domains"))
    with Progress(*columns, TimeRemainingColumn(), console=console, transient=True) as bar:
        task = bar.add_task("", total=total)
        yield lambda domain: bar.update(task, description=domain.name, advance=1)


def _describe(
    run: Path, trained: RunConfig, config: RunConfig, source: "DomainScore | None", domains: Sequence["DomainScore"]
) -> dict[str, Any]:
    """Return the content of the `--json` file, for a suite without missing domains and without attacks."""
    return {
        "schema": SCHEMA,
        "run": str(run),
        "recipe": trained.recipe,
        "seed": trained.seed,
        "config_hash": content_hash(trained),
        "suite": config.suite.name,
        "data": None,
        "norm": config.norm.name,
        "evaluate_batch": config.evaluate_batch,
        "precision": config.precision,
        "confine": config.confine,
        "source": None if source is None else asdict(source),
        "domains": [asdict(domain) for domain in domains],
        "missing": [],
        "average_accuracy": sum(domain.accuracy for domain in domains) / len(domains) if domains else None,
        "adversarial": {},
    }


def save_result(
    run: Path,
    name: str,
    config: RunConfig,
    scores: "SuiteScore",
    attacks: Mapping[str, float],
    validation: Mapping[str, float],
    *,
    origin: dict[str, str],
    seconds: float,
) -> None:
    """Write scores to `<run>/evaluations/<name>.json`, as a result with the hash of the config they were made with.

    What is not measured again is copied from the run: recipe, seed, commit of the training, parameters, steps,
    selection.
    """
    result = dataclasses.replace(
        read_result(run / "result.json"),
        config_hash=content_hash(config),
        source=scores.source,
        domains=tuple(scores.domains),
        missing=tuple(scores.missing),
        average_accuracy=scores.average_accuracy,
        adversarial=dict(attacks),
        validation=dict(validation),
        wall_seconds=round(seconds, 3),
        origin=origin,
    )
    path = _evaluation_path(run, name)
    with _prepared_folder(path):
        write_result(path, result)


def _evaluation_path(run: Path, name: str) -> Path:
    return run / "evaluations" / f"{name}.json"


def _name_device(model: "nn.Module") -> str:
    import torch

    device = next(model.parameters()).device
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def _write_statistics(run: Path, loaded: "LoadedRun", config: RunConfig, suite: "Suite") -> None:
    from asrnorm.evaluation import learned_statistics
    from asrnorm.evaluation.learned_statistics import PER_DOMAIN

    arrays = learned_statistics(
        loaded.model,
        suite,
        per_domain=min(config.evaluate_limit or PER_DOMAIN, PER_DOMAIN),
        batch_size=min(config.evaluate_batch, 100),
        precision=config.precision,
        resize=loaded.input_size,
    )
    path = save_statistics(run, arrays)
    typer.echo(f"{path}: learned statistics of {len(arrays['domain']):,} images")


def save_statistics(run: Path, arrays: Mapping[str, Any]) -> Path:
    """Write arrays to `<run>/analyses/statistics.npz`, which numpy reads without unpickling."""
    import numpy as np

    path = run / "analyses" / "statistics.npz"
    with _prepared_folder(path), replacing(path) as temporary:
        np.savez_compressed(temporary, **arrays)
    return path


@contextmanager
def _prepared_folder(path: Path) -> Iterator[None]:
    """Create the folder of a file without leftovers of killed processes; raise `StorageError` if the file fails."""
    try:
        path.parent.mkdir(exist_ok=True)
        for leftover in path.parent.glob(f".{path.name}.*"):
            leftover.unlink(missing_ok=True)
        yield
    except StorageError:
        raise
    except OSError as error:
        raise StorageError(describe_failure(error, path)) from None
