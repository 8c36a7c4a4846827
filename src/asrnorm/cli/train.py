"""`asrnorm train`: one run, from a recipe to its result; started again, it goes on."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from asrnorm.cli.options import Modules, import_modules
from asrnorm.core.config import RunConfig, Scale, content_hash, dump_config, load_config, override, run_name
from asrnorm.core.errors import AsrnormError, ConversionError, InputError, WrongCallError

if TYPE_CHECKING:
    from asrnorm.core.results import RunResult

# What `--set` does not take, and what says it instead.
_ELSEWHERE = {
    "seed": "--seed",
    "scale": "--scale",
    "source": "--source",
    "target": "--target",
    "recipe": "the first argument",
    "name": "the first argument",
}


def train(
    recipe: Annotated[
        str | None, typer.Argument(help="Name of a recipe; see `asrnorm list recipes`.", show_default=False)
    ] = None,
    scale: Annotated[
        str | None, typer.Option("--scale", help="Size of the run: paper, short or smoke.", show_default="paper")
    ] = None,
    assignments: Annotated[
        list[str] | None, typer.Option("--set", help="Change a field: a.b=value; may be given again, the last counts.")
    ] = None,
    config_file: Annotated[
        Path | None, typer.Option("--config", help="A config.yaml instead of a recipe.", show_default=False)
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="The run's folder.", show_default="runs/<recipe>--s<seed>--<hash>"),
    ] = None,
    seed: Annotated[int | None, typer.Option("--seed", min=0, help="Seed of the run.", show_default="0")] = None,
    source: Annotated[
        list[str] | None,
        typer.Option("--source", help="Domains to train on, as A,B; may be given again.", show_default=False),
    ] = None,
    target: Annotated[
        list[str] | None, typer.Option("--target", help="Domains to test on, as A,B; may be given again.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the config and its hash, and stop.")] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Start over instead of resuming.")] = False,
    modules: Modules = None,
) -> None:
    """Train one run and evaluate it on every domain; started again, it resumes where it stopped.

    Example: `asrnorm train digits.rsda_asr --scale short --set optim.lr=1e-4 --seed 3`. Your own images, in
    `photos/DOMAIN/CLASS/`: `asrnorm train folder.rsda_asr --set suite.root=photos --source day`
    """
    import_modules(modules)
    changes = dict(map(_split, assignments or ()))  # of a field that is set twice, the last counts
    from asrnorm.training.assembly import check_config, rehearse

    try:
        config = _resolve(recipe, scale, config_file, seed, source, target, changes)
        check_config(config)
        if dry_run:
            rehearse(config)
    except (InputError, ConversionError) as error:
        raise WrongCallError(str(error)) from error
    if dry_run:
        typer.echo(f"{dump_config(config)}# hash {content_hash(config)}")
        _tell_missing_data(config)
        return
    from asrnorm.training import run

    folder = out or Path("runs", run_name(config))
    before = _time_of(folder / "result.json")
    result = run(config, out, fresh)
    if os.environ.get("RANK", "0") == "0":
        _print(result)
        typer.echo(f"run: {folder}")
        if before == _time_of(folder / "result.json"):
            typer.echo("it was done already, nothing was trained; --fresh starts over", err=True)


def _time_of(file: Path) -> int | None:
    return file.stat().st_mtime_ns if file.exists() else None


def _tell_missing_data(config: RunConfig) -> None:
    """Say on the side what a run would be refused for; a config may be looked at where its data is not."""
    from asrnorm.data import create_suite
    from asrnorm.data.download.verify import find_weights

    try:
        create_suite(config.suite.name, **config.suite.args).require_source()
        if config.weights is not None:
            find_weights(config.weights)
    except AsrnormError as error:
        typer.echo(f"note: here the run would not start: {error}", err=True)


def _resolve(
    recipe: str | None,
    scale: str | None,
    config_file: Path | None,
    seed: int | None,
    source: list[str] | None,
    target: list[str] | None,
    changes: dict[str, str],
) -> RunConfig:
    from asrnorm.recipes.base import join_names

    sources, targets = join_names(source), join_names(target)
    for name, place in _ELSEWHERE.items():
        if name in changes:
            raise typer.BadParameter(f"--set {name}={changes[name]}: {place} says that")
    if config_file is None:
        if recipe is None:
            raise typer.BadParameter("give a recipe, such as digits.rsda_asr, or --config FILE")
        from asrnorm.recipes import recipe as make

        # Through the recipe, so that what follows from a change, as PACS's steps from its source, follows.
        return make(
            recipe, scale=cast(Scale, scale or "paper"), seed=seed or 0, source=sources, target=targets, **changes
        )
    if config_file.is_dir():
        raise typer.BadParameter(f"--config {config_file}: a folder; give {config_file / 'config.yaml'}")
    loaded = load_config(config_file)
    if scale not in (None, loaded.scale) or recipe not in (None, loaded.recipe):
        raise typer.BadParameter(
            f"--config takes the place of a recipe and its scale, and {config_file} has {loaded.recipe} at scale "
            f"{loaded.scale}: leave those out"
        )
    given = {"seed": seed, "suite.source": sources, "suite.target": targets}
    options = {name: value for name, value in given.items() if value is not None}
    for name in options.keys() & changes.keys():
        raise typer.BadParameter(f"--set {name}={changes[name]}: --{name.removeprefix('suite.')} says that too")
    return override(loaded, {**options, **changes})


def _split(assignment: str) -> tuple[str, str]:
    name, equals, value = assignment.partition("=")
    if not equals or not name:
        raise typer.BadParameter(f"--set {assignment}: write it as a.b=value")
    return name, value


def _print(result: "RunResult") -> None:
    from asrnorm.cli.score_table import print_attacks, print_scores

    print_scores(result)
    if result.adversarial:
        print_attacks(result.adversarial, result.source)
    if result.selection != "last":
        typer.echo(f"chosen by {result.selection} at step {result.steps:,}")
