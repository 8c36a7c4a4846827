"""What `asrnorm evaluate` leaves in the folder of the run itself: further results, and analyses of single images.

`asrnorm evaluate`: what a finished run is worth on every domain of a suite.
"""

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

from asrnorm.cli.evaluation_inputs import (
    change_limits,
    change_norm,
    choose_suite,
    describe_device,
    find_own_suite,
    score_places,
    validate_limits,
)
from asrnorm.cli.options import Modules, import_modules, json_output, open_run, read_assignments
from asrnorm.cli.score_table import print_attacks, print_places, print_scores, print_validation
from asrnorm.core.commit import find_commit, shorten_commit
from asrnorm.core.config import RunConfig, content_hash, override
from asrnorm.core.errors import InputError, StorageError, WrongCallError
from asrnorm.core.files import describe_failure, replacing
from asrnorm.core.results import read_result, write_result

if TYPE_CHECKING:
    from asrnorm.core.precision import Precision
    from asrnorm.core.results import DomainScore
    from asrnorm.data import Suite
    from asrnorm.evaluation import SuiteScore
    from asrnorm.training import LoadedRun


def check_name(name: str) -> str:
    """Return the name of an evaluation, which becomes that of a file.

    Raises:
        typer.BadParameter: it could not be one.

    Example:
        >>> check_name("bn_test-16")
        'bn_test-16'
    """
    if not re.fullmatch(r"\w[\w.-]*", name):
        raise typer.BadParameter(f"{name!r}: letters, digits, '-', '_' and '.' only", param_hint="--as")
    return name


def check_free(run: Path, name: str, config: RunConfig) -> None:
    """Refuse a name under which a run's folder holds an evaluation with other settings; a damaged one may be replaced.

    Args:
        run: the folder of a finished run.
        name: of the evaluation.
        config: the run's, with what is to be changed.

    Raises:
        WrongCallError: it holds one.
    """
    path = _path_of(run, name)
    try:
        kept = read_result(path).config_hash
    except InputError:
        return
    if kept != content_hash(config):
        raise WrongCallError(f"--as {name}: {path} was made with other settings; choose another name, or --renew it")


def keep_result(
    run: Path,
    name: str,
    config: RunConfig,
    scores: "SuiteScore",
    attacks: Mapping[str, float],
    seconds: float,
    *,
    edition: str = "",
    validation: Mapping[str, float] | None = None,
    device: str = "",
) -> Path:
    """Write scores as `<run>/evaluations/<name>.json`, a result under the hash of the config they were made with.

    Args:
        run: the folder of a finished run.
        name: of the evaluation.
        config: the run's, with what was changed.
        scores: what came out.
        attacks: accuracy under each, where asked for.
        seconds: that it took.
        edition: of the test images, as their suite tells it.
        validation: accuracy on validation images of the source, where it was measured again.
        device: on which it was scored.

    Raises:
        InputError: the run is not done.
        StorageError: the file cannot be written.
    """
    # What is not measured again is the run's: recipe, seed, commit, parameters, steps, selection.
    result = dataclasses.replace(
        read_result(run / "result.json"),
        config_hash=content_hash(config),
        source=scores.source,
        domains=tuple(scores.domains),
        missing=tuple(scores.missing),
        average_accuracy=scores.average_accuracy,
        adversarial=dict(attacks),
        validation=dict(validation or {}),  # the run's is of the model as it was trained
        wall_seconds=round(seconds, 3),
        # The commit above is that of the training; what scored it may be another.
        origin={"scored": " on ".join(filter(None, (shorten_commit(find_commit()), device)))}
        | ({"edition": edition} if edition else {}),
    )
    path = _path_of(run, name)
    with _folder_of(path):
        write_result(path, result)
    return path


def _path_of(run: Path, name: str) -> Path:
    return run / "evaluations" / f"{name}.json"


def keep_statistics(run: Path, arrays: Mapping[str, Any]) -> Path:
    """Write arrays as `<run>/analyses/statistics.npz`, which numpy reads without unpickling anything.

    Raises:
        StorageError: the file cannot be written.
    """
    import numpy as np

    path = run / "analyses" / "statistics.npz"
    with _folder_of(path), replacing(path) as temporary:
        np.savez_compressed(temporary, **arrays)
    return path


@contextmanager
def _folder_of(path: Path) -> Iterator[None]:
    """Make the folder of a file, free of what a killed process left of that file."""
    try:
        path.parent.mkdir(exist_ok=True)
        for leftover in path.parent.glob(f".{path.name}.*"):
            leftover.unlink(missing_ok=True)
        yield
    except StorageError:
        raise
    except OSError as error:
        raise StorageError(describe_failure(error, path)) from None


SCHEMA = 1
# What may differ from training without making it another network.
_CHANGEABLE = ("adversarial", "confine", "device", "evaluate_batch", "evaluate_limit", "norm", "precision", "suite")


def evaluate(
    run: Annotated[Path, typer.Argument(help="The folder of a finished run.", show_default=False)],
    suite: Annotated[
        str | None, typer.Option(help="Another suite with the same classes.", show_default="the run's")
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            help="Score labelled images of new places instead: `CLASS/IMAGE` or `PLACE/CLASS/IMAGE`, or a table.",
            show_default=False,
        ),
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help=f"name=value; one of {', '.join(_CHANGEABLE)} or a part of it.")
    ] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Also write all numbers to this file; - prints them alone.")
    ] = None,
    name: Annotated[
        str | None, typer.Option("--as", help="Also keep them in the run's folder, as evaluations/NAME.json.")
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
    _refuse_mixtures(assignments, data, name, statistics)
    if statistics and json_file is not None:
        raise typer.BadParameter("--statistics writes analyses/statistics.npz and no scores: leave out --json")
    if name is not None:
        check_name(name)
    elif renew:
        raise typer.BadParameter("--renew says how to keep an evaluation: give --as too")
    with json_output(json_file) as write_numbers:
        import_modules(modules)
        _evaluate(run, assignments, data, name, renew, statistics, write_numbers)


def _evaluate(
    run: Path,
    assignments: dict[str, str],
    data: Path | None,
    name: str | None,
    renew: bool,
    statistics: bool,
    write_numbers: Callable[[str], None],
) -> None:
    loaded = open_run(run)
    if name is not None:
        read_result(run / "result.json")  # of which what is kept takes what it does not measure again
    config = _change_config(loaded.config, assignments)
    if name is not None and not renew:
        check_free(run, name, config)
    chosen = loaded.suite if data is not None else choose_suite(run, loaded, config)
    own = _change_network(run, loaded, config, of_suite=data is None, move="device" in assignments)
    if statistics:
        _analyze(run, loaded, config, chosen)
        return

    started = time.monotonic()
    limit = config.evaluate_limit if name is not None or "evaluate_limit" in assignments else 0
    if data is None and loaded.config.evaluate_limit and not limit:
        typer.echo(f"all images are scored; result.json has at most {loaded.config.evaluate_limit} a domain", err=True)
    form: dict[str, Any] = {
        "batch_size": config.evaluate_batch,
        "precision": config.precision,
        "resize": loaded.input_size,  # whatever the other suite's is
    }
    if data is not None:
        places = score_places(loaded, data, limit, form, _progress)
        if places.scores:
            print_places(places.scores)
        described = _describe(run, loaded.config, config, places.scores, {}, data)
        write_numbers(json.dumps(described | places.gaps(), indent=2))
        places.refuse_gaps()
        return
    scores = _score_suite(loaded, chosen, limit, form)
    attacks = _attack(loaded, chosen, scores.source, config.seed, limit, form) if config.adversarial else {}
    validation = {} if own is None else validate_limits(loaded, config, own, limit)
    print_validation(validation)
    described = _describe(run, loaded.config, config, scores, attacks) | {"validation": validation}
    write_numbers(json.dumps(described, indent=2))
    if name is not None:
        seconds = time.monotonic() - started
        device = describe_device(loaded.model)
        facts: dict[str, Any] = {"edition": chosen.edition, "validation": validation, "device": device}
        keep_result(run, name, config, scores, attacks, seconds, **facts)


def _change_network(run: Path, loaded: "LoadedRun", config: RunConfig, *, of_suite: bool, move: bool) -> "Suite | None":
    """Let the network be what is to be scored; return the suite of its training where limits were set or lifted."""
    change_norm(loaded, config)
    if config.precision != loaded.config.precision:
        _cast(loaded, config.precision)
    if move:
        _move(loaded, config.device)
    if config.confine == loaded.config.confine:
        return None
    # Limits are lifted without any image; what that does on the source is told where it is scored too.
    is_told = config.confine or (of_suite and config.suite.name == loaded.config.suite.name)
    own = find_own_suite(run, loaded, config) if is_told else None
    change_limits(loaded, config, own)
    return own


def _refuse_mixtures(assignments: Mapping[str, object], data: Path | None, name: str | None, statistics: bool) -> None:
    if statistics and (name is not None or set(assignments) - {"device"}):
        raise typer.BadParameter("--statistics is of the run as it was scored: leave out --as, --suite and --set")
    refused = {"adversarial", "suite"} & {word.partition(".")[0] for word in assignments}
    if data is not None and (statistics or name is not None or refused):
        raise typer.BadParameter("--data scores images alone: leave out --as, --statistics, --suite and adversarial")


def _change_config(trained: RunConfig, assignments: Mapping[str, object]) -> RunConfig:
    try:
        return override(trained, assignments)
    except InputError as error:
        raise WrongCallError(str(error)) from error


def _analyze(run: Path, loaded: "LoadedRun", config: RunConfig, suite: "Suite") -> None:
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
    path = keep_statistics(run, arrays)
    typer.echo(f"{path}: learned statistics of {len(arrays['domain']):,} images")


def _score_suite(loaded: "LoadedRun", suite: "Suite", limit: int, form: dict[str, Any]) -> "SuiteScore":
    from asrnorm.evaluation import score_suite

    with _progress(1 + len(suite.target_names)) as report:
        scores: SuiteScore = score_suite(loaded.model, suite, report=report, limit=limit, **form)
    print_scores(scores)
    return scores


def _attack(
    loaded: "LoadedRun", suite: "Suite", clean: "DomainScore", seed: int, limit: int, form: dict[str, Any]
) -> dict[str, float]:
    from asrnorm.evaluation import ATTACKS, score_attacks
    from asrnorm.evaluation.score import subsample

    typer.echo(f"attacking {clean.num_samples:,} images in {len(ATTACKS)} ways", err=True)
    attacks: dict[str, float] = score_attacks(
        loaded.model, subsample(suite.source_test, limit), name=clean.name, seed=seed, **form
    )
    print_attacks(attacks, clean)
    return attacks


def _cast(loaded: "LoadedRun", precision: "Precision") -> None:
    from asrnorm.core.precision import weight_dtype

    loaded.model.to(weight_dtype(precision))


def _move(loaded: "LoadedRun", device: str) -> None:
    from asrnorm.training.distributed import choose_device

    if device != "auto":
        loaded.model.to(choose_device(device))


@contextmanager
def _progress(total: int) -> Iterator[Callable[["DomainScore"], None]]:
    """Give a function to be told of each score: a bar on a terminal, a line a domain elsewhere."""
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
    run: Path,
    trained: RunConfig,
    config: RunConfig,
    scores: "SuiteScore | Sequence[DomainScore]",
    attacks: dict[str, float],
    data: Path | None = None,
) -> dict[str, Any]:
    """Return what `--json` writes; scores of new places are a list, which has no source."""
    source = None if isinstance(scores, Sequence) else scores.source
    domains = scores if isinstance(scores, Sequence) else scores.domains
    average = sum(domain.accuracy for domain in domains) / len(domains) if domains else None
    return {
        "schema": SCHEMA,
        "run": str(run),
        "recipe": trained.recipe,
        "seed": trained.seed,
        "config_hash": content_hash(trained),
        "suite": None if data else config.suite.name,
        "data": str(data) if data else None,
        "norm": config.norm.name,
        "evaluate_batch": config.evaluate_batch,
        "precision": config.precision,
        "confine": config.confine,
        "source": None if source is None else asdict(source),
        "domains": [asdict(domain) for domain in domains],
        "missing": [] if isinstance(scores, Sequence) else list(scores.missing),
        "average_accuracy": average,
        "adversarial": attacks,
    }
