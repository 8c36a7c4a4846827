"""`asrnorm train`: train one run, or resume it, and evaluate it on every domain."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from asrnorm.cli.completion import complete_recipe
from asrnorm.cli.options import (
    JsonFile,
    Modules,
    Settings,
    import_modules,
    json_output,
    note_missing_data,
    read_assignments,
)
from asrnorm.cli.table import print_attacks, print_scores
from asrnorm.core.config import RunConfig, Scale, content_hash, dump_config, load_config, override, run_name, to_mapping
from asrnorm.core.errors import ConversionError, InputError, WrongCallError
from asrnorm.core.results import RunResult, to_plain

# Fields that `--set` does not change, and the option that does.
_OTHER_OPTIONS = {name: f"--{name}" for name in ("seed", "scale", "source", "target")}
_OTHER_OPTIONS |= dict.fromkeys(("recipe", "name"), "the first argument")


def train(
    recipe: Annotated[
        str | None, typer.Argument(help="Name of a recipe; see `asrnorm list recipes`.", autocompletion=complete_recipe)
    ] = None,
    scale: Annotated[
        str | None, typer.Option(help="Size of the run: paper, short or smoke.", show_default="paper")
    ] = None,
    data: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder of the images.", show_default="ASRNORM_DATA")
    ] = None,
    steps: Annotated[int | None, typer.Option(help="Number of training steps.", show_default="the recipe's")] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu, cuda, cuda:1, ...", show_default="auto")] = None,
    assignments: Settings = None,
    config_file: Annotated[
        Path | None, typer.Option("--config", metavar="FILE", help="A config.yaml instead of a recipe.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="The run's folder.", show_default="runs/<recipe>--s<seed>--<hash>")
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Seed of the run.", show_default="0")] = None,
    source: Annotated[list[str] | None, typer.Option(help="Domains to train on, as A,B; may be given again.")] = None,
    target: Annotated[list[str] | None, typer.Option(help="Domains to test on, as A,B; may be given again.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the config and its hash, and stop.")] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Start over instead of resuming.")] = False,
    json_file: JsonFile = None,
    track: Annotated[
        list[str] | None, typer.Option(help="tensorboard, csv, mlflow or wandb; may be given again.")
    ] = None,
    modules: Modules = None,
) -> None:
    """Train one run and evaluate it on every domain; started again, it resumes where it stopped.

    Example: `asrnorm train digits.rsda_asr --scale short --set optim.lr=1e-4 --seed 3`. Your own images, in
    `photos/DOMAIN/CLASS/`: `asrnorm train folder.best --data photos --source day`
    """
    with json_output(json_file) as write_json:
        import_modules(modules)
        changes = read_assignments(assignments or ())
        from asrnorm.training.assembly import check_config, rehearse

        try:
            options = {"steps": steps, "device": device, "suite.root": None if data is None else str(data)}
            changes |= _exclude_repeated(options, changes)
            config = _resolve(recipe, scale, config_file, seed, source, target, changes)
            check_config(config)
            if dry_run:
                rehearse(config)
        except (InputError, ConversionError) as error:
            raise WrongCallError(str(error)) from error
        if dry_run:
            typer.echo(f"{dump_config(config)}# hash {content_hash(config)}")
            write_json(json.dumps({"hash": content_hash(config), "config": to_mapping(config)}, indent=2))
            note_missing_data([config], "the run", targets=False)
            return
        from asrnorm.training import run

        folder = out or Path("runs", run_name(config))
        before = _read_time(folder / "result.json")
        result = run(config, out, fresh, track=track)
        if os.environ.get("RANK", "0") == "0":
            print_result(result)
            write_json(json.dumps({"run": str(folder), **to_plain(result)}, indent=2))
            typer.echo(f"run: {folder}")
            if before == _read_time(folder / "result.json"):
                typer.echo("the run was done already, nothing was trained; --fresh starts over", err=True)


def _read_time(file: Path) -> int | None:
    return file.stat().st_mtime_ns if file.exists() else None


def _resolve(
    recipe: str | None,
    scale: str | None,
    config_file: Path | None,
    seed: int | None,
    source: list[str] | None,
    target: list[str] | None,
    changes: dict[str, Any],
) -> RunConfig:
    """Return the config of the recipe or the file, with the changes of the options."""
    from asrnorm.recipes.base import join_names

    sources, targets = join_names(source), join_names(target)
    for name, option in _OTHER_OPTIONS.items():
        if name in changes:
            raise typer.BadParameter(f"--set {name}={changes[name]}: use {option} instead")
    if config_file is None:
        if recipe is None:
            raise typer.BadParameter("give a recipe, such as digits.rsda_asr, or --config FILE")
        from asrnorm.recipes import recipe as make

        # The recipe applies the changes, because other values follow from them, as PACS's steps from its source.
        return make(
            recipe, scale=cast(Scale, scale or "paper"), seed=seed or 0, source=sources, target=targets, **changes
        )
    if config_file.is_dir():
        raise typer.BadParameter(f"--config {config_file}: a folder; give {config_file / 'config.yaml'}")
    loaded = load_config(config_file)
    if scale not in (None, loaded.scale) or recipe not in (None, loaded.recipe):
        raise typer.BadParameter(
            f"--config replaces a recipe and its scale, and {config_file} has {loaded.recipe} at scale "
            f"{loaded.scale}: leave those out"
        )
    options = _exclude_repeated({"seed": seed, "suite.source": sources, "suite.target": targets}, changes)
    return override(loaded, {**options, **changes})


def _exclude_repeated(options: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that are given, by field, or raise if `--set` has one of them too."""
    given = {name: value for name, value in options.items() if value is not None}
    for name in given.keys() & changes.keys():
        option = "data" if name == "suite.root" else name.removeprefix("suite.")
        raise typer.BadParameter(f"--set {name}={changes[name]} contradicts --{option}: leave one out")
    return given


def print_result(result: RunResult) -> None:
    """Print the scores of a run and the step that model selection chose."""
    print_scores(result)
    if result.adversarial:
        print_attacks(result.adversarial, result.source)
    if result.selection != "last":
        typer.echo(f"chosen by {result.selection} at step {result.steps:,}")
    if not result.domains and result.validation:  # a run with a `fold`, or without targets
        typer.echo("; ".join(f"{rule} {100 * value:.1f} %" for rule, value in result.validation.items()))
