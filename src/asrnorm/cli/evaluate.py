"""`asrnorm evaluate`: score a finished run on every domain of a suite, or on other labelled images."""

import dataclasses
import io
import json
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
from typer import Option

from asrnorm.cli.evaluation_inputs import FOLDER_FIELDS, change_network, choose_suite, score_folders
from asrnorm.cli.options import JsonFile, Modules, RunFolder, import_modules, json_output, open_run, read_assignments
from asrnorm.cli.table import print_attacks, print_domains, print_scores
from asrnorm.core.config import RunConfig, content_hash, override
from asrnorm.core.errors import InputError, WrongCallError, count_of
from asrnorm.core.files import write_whole
from asrnorm.core.progress import Progress
from asrnorm.core.results import read_result, seal, write_result
from asrnorm.core.settings import find_commit, shorten_commit

if TYPE_CHECKING:
    from asrnorm.core.results import DomainScore
    from asrnorm.data import Suite
    from asrnorm.training import LoadedRun

SCHEMA = 1
# Fields that may differ from training: the network stays the same.
_CHANGEABLE = (
    "adapt",
    "adversarial",
    "confine",
    "device",
    "evaluate_batch",
    "evaluate_limit",
    "norm",
    "precision",
    "suite",
)


def evaluate(
    run: RunFolder,
    suite: Annotated[str | None, Option(help="Another suite with the same classes.", show_default="the run's")] = None,
    data: Annotated[
        Path | None,
        Option(help="Score labelled images of new domains instead: `CLASS/IMAGE` or `DOMAIN/CLASS/IMAGE`, or a table."),
    ] = None,
    settings: Annotated[
        list[str] | None,
        Option("--set", metavar="FIELD=VALUE", help=f"A field, or part of one, of: {', '.join(_CHANGEABLE)}."),
    ] = None,
    json_file: JsonFile = None,
    name: Annotated[
        str | None, Option("--as", metavar="NAME", help="Also save them in the run's folder, as evaluations/NAME.json.")
    ] = None,
    renew: Annotated[bool, Option("--renew", help="Let --as replace an evaluation made with other settings.")] = False,
    statistics: Annotated[bool, Option("--statistics", help="Only write ASR-Norm's analyses/statistics.npz.")] = False,
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
    saved = None if name is None else run / "evaluations" / f"{name}.json"
    with json_output(json_file) as write_json:
        import_modules(modules)
        if saved is not None and (run / "result.json").is_file():
            read_result(run / "result.json")  # the evaluation copies from it
        loaded = open_run(run)
        try:
            config = override(loaded.config, assignments)
        except InputError as error:
            raise WrongCallError(str(error)) from error
        if saved is not None and not renew:
            check_free(saved, config)
        scored = loaded.suite if data is not None else choose_suite(run, loaded, config)
        own = change_network(run, loaded, config, move="device" in assignments, scores_suite=data is None)
        limit = config.evaluate_limit if saved is not None or "evaluate_limit" in assignments else 0
        if statistics:
            _write_statistics(run, loaded, config, scored)
        elif data is not None:
            found = score_folders(loaded, data, limit, config.suite.args, _input_options(loaded, config), _progress)
            if found.scores:
                print_domains(found.scores)
            described = _describe(run, loaded.config, config, None, found.scores)
            write_json(json.dumps(described | {"suite": None, "data": str(data)} | found.gaps(), indent=2))
            found.require_all()
        else:
            _score_suite(run, loaded, config, scored, own, limit, saved, write_json)


def _check_options(
    assignments: Mapping[str, object],
    data: Path | None,
    json_file: Path | None,
    name: str | None,
    renew: bool,
    statistics: bool,
) -> None:
    """Raise `typer.BadParameter` for options that exclude each other, or a name that cannot be that of a file."""
    if statistics and (name is not None or set(assignments) - {"device"}):
        raise typer.BadParameter("--statistics uses the run as it was scored: leave out --as, --suite and --set")
    of_suites = {"adversarial", "suite"} & {word.partition(".")[0] for word in set(assignments) - FOLDER_FIELDS}
    if data is not None and (statistics or name is not None or of_suites):
        raise typer.BadParameter(
            "--data only scores images: leave out --as, --statistics, --suite, adversarial, and suite fields other "
            "than aliases and unknown"
        )
    if statistics and json_file is not None:
        raise typer.BadParameter("--statistics writes analyses/statistics.npz and no scores: leave out --json")
    if name is not None and not re.fullmatch(r"\w[\w.-]*", name):
        raise typer.BadParameter(f"{name!r}: letters, digits, '-', '_' and '.' only", param_hint="--as")
    if renew and name is None:
        raise typer.BadParameter("--renew needs --as, the evaluation to replace")


def check_free(saved: Path, config: RunConfig) -> None:
    """Raise `WrongCallError` if a saved evaluation was made with other settings; a damaged one is ignored."""
    try:
        made_with = read_result(saved).config_hash
    except InputError:
        return
    if made_with != content_hash(config):
        raise WrongCallError(
            f"--as {saved.stem}: {saved} was made with other settings; choose another name, or --renew it"
        )


def _score_suite(
    run: Path,
    loaded: "LoadedRun",
    config: RunConfig,
    suite: "Suite",
    own: "Suite | None",
    limit: int,
    saved: Path | None,
    write_json: Callable[[str], None],
) -> None:
    from asrnorm.core.distributed import ALONE
    from asrnorm.evaluation import ATTACKS, score_attacks, score_suite
    from asrnorm.evaluation.score import subsample
    from asrnorm.training.selection import validate

    started = time.monotonic()
    device = next(loaded.model.parameters()).device
    if loaded.config.evaluate_limit and not limit:
        typer.echo(f"scoring all images; result.json has at most {loaded.config.evaluate_limit} per domain", err=True)
    options = _input_options(loaded, config)
    with _progress(1 + len(suite.target_names)) as report:
        adaptation: Any = {"adapt": config.adapt, "seed": config.seed}
        scores = score_suite(loaded.model, suite, report=report, limit=limit, **adaptation, **options)
    print_scores(scores)
    attacks: dict[str, float] = {}
    if config.adversarial:
        typer.echo(f"attacking {count_of(scores.source.num_samples, 'image')} in {len(ATTACKS)} ways", err=True)
        images = subsample(suite.source_test, limit)
        attacks = score_attacks(loaded.model, images, name=scores.source.name, seed=config.seed, **options)
        print_attacks(attacks, scores.source)
    validation: dict[str, float] = {}
    if own is not None:  # to choose a confinement without target images
        validation = validate(loaded.model, own, dataclasses.replace(config, evaluate_limit=limit), device, ALONE)
    for rule, accuracy in validation.items():
        typer.echo(f"{rule} accuracy, on held-out images of the source: {100 * accuracy:.2f} %")
    described = _describe(run, loaded.config, config, scores.source, scores.domains)
    described |= {"missing": list(scores.missing), "adversarial": attacks, "validation": validation}
    write_json(json.dumps(described, indent=2))
    if saved is None:
        return
    from torch.cuda import get_device_name

    device_name = get_device_name(device) if device.type == "cuda" else device.type
    origin = {"scored": " on ".join(filter(None, (shorten_commit(find_commit()), device_name)))}
    if suite.edition:
        origin["edition"] = suite.edition
    # What is not measured again is copied from the run: recipe, seed, commit of the training, steps, ...
    result = dataclasses.replace(
        read_result(run / "result.json"),
        config_sha256="",
        config_hash=content_hash(config),
        source=scores.source,
        domains=scores.domains,
        missing=scores.missing,
        average_accuracy=scores.average_accuracy,
        adversarial=attacks,
        validation=validation,
        wall_seconds=round(time.monotonic() - started, 3),
        origin=origin,
    )
    write_result(saved, seal(result))


def _input_options(loaded: "LoadedRun", config: RunConfig) -> dict[str, Any]:
    """Return the options of `score_suite` and its neighbours; images of another suite get the run's size."""
    return {"batch_size": config.evaluate_batch, "precision": config.precision, "resize": loaded.input_size}


@contextmanager
def _progress(total: int) -> Iterator[Callable[["DomainScore"], None]]:
    """Yield a callback for each score, which advances a bar on a terminal and prints a line elsewhere."""
    columns = (TextColumn("{task.description:<20}"), BarColumn(), MofNCompleteColumn())
    with Progress(total, "domains", *columns, digits=1) as bar:

        def report(domain: "DomainScore") -> None:
            bar.show(description=domain.name, advance=1)
            if not bar.console.is_terminal:
                bar.say(f"{domain.name}: accuracy {100 * domain.accuracy:.2f} %")

        yield report


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
        "adapt": config.adapt,
        "source": None if source is None else asdict(source),
        "domains": [asdict(domain) for domain in domains],
        "missing": [],
        "average_accuracy": sum(domain.accuracy for domain in domains) / len(domains) if domains else None,
        "adversarial": {},
    }


def _write_statistics(run: Path, loaded: "LoadedRun", config: RunConfig, suite: "Suite") -> None:
    import numpy as np

    from asrnorm.evaluation import learned_statistics
    from asrnorm.evaluation.learned_statistics import PER_DOMAIN

    arrays: dict[str, Any] = learned_statistics(
        loaded.model,
        suite,
        per_domain=min(config.evaluate_limit or PER_DOMAIN, PER_DOMAIN),
        batch_size=min(config.evaluate_batch, 100),
        precision=config.precision,
        resize=loaded.input_size,
    )
    path = run / "analyses" / "statistics.npz"
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)
    write_whole(path, buffer.getvalue(), follow_links=False)
    typer.echo(f"{path}: learned statistics of {count_of(len(arrays['domain']), 'image')}")
