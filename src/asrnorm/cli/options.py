"""Options and checks that several commands share: `--import`, `--json`, `--set`, run folders and data."""

import io
import os
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast, get_args

import typer
from typer import Argument, Option

from asrnorm.cli.completion import complete_setting
from asrnorm.core import errors
from asrnorm.core.config import RunConfig, Scale
from asrnorm.core.errors import AsrnormError, InputError, StorageError, UnknownNameError, WrongCallError
from asrnorm.core.files import describe_failure, write_whole

if TYPE_CHECKING:
    from asrnorm.training import LoadedRun

KEPT = Path("results")

JsonFile = Annotated[
    Path | None,
    Option("--json", metavar="PATH", help="Write the result as JSON to this file; - prints it and nothing else."),
]
Settings = Annotated[
    list[str] | None,
    Option(
        "--set",
        metavar="FIELD=VALUE",
        help="Change any field of the config, such as optim.lr=0.01; may be given again, the last counts.",
        autocompletion=complete_setting,
    ),
]
RunFolder = Annotated[Path, Argument(help="The folder of a finished run.")]
Modules = Annotated[
    list[str] | None,
    Option("--import", metavar="MODULE", help="A module that registers your own norm, method, suite, ..."),
]


def import_modules(names: Iterable[str] | None) -> None:
    """Import the modules of `--import`, from the current folder or `sys.path`."""
    for name in names or ():
        if not all(part.isidentifier() for part in name.split(".")) or name.endswith(".py"):
            raise UnknownNameError(
                f"--import {name}: write it as in an import statement, my_norm for my_norm.py; its folder must be the "
                "current one or in PYTHONPATH"
            )
        if str(Path.cwd()) not in sys.path:  # unlike `python -m`, the installed command does not search it
            sys.path.insert(0, str(Path.cwd()))
        try:
            import_module(name)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{name}.".startswith(f"{error.name}."):
                raise InputError(f"--import {name}: it needs {error.name}, which is not installed") from error
            raise UnknownNameError(f"--import {name}: no such module here or in PYTHONPATH") from error


@contextmanager
def json_output(file: Path | None, *, quiet: bool = False) -> Iterator[Callable[[str], None]]:
    """Yield a function that writes text to the file of `--json`, or ignores it if `file` is `None`.

    With `-`, all other output goes to standard error, or nowhere if `quiet`, and the last text is printed to standard
    output at the end, even if the command fails then: `asrnorm ... --json - | jq` reads nothing else.
    """
    if file is None:
        yield lambda _text: None
    elif file != Path("-"):
        if file.is_dir():
            raise InputError(f"{file}: a folder; give --json a file, such as {file / 'scores.json'}")
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StorageError(describe_failure(error, file)) from None
        if not os.access(file.parent, os.W_OK | os.X_OK):  # before the work begins
            raise StorageError(f"{file}: its folder is not writable; give --json another file")
        yield lambda text: write_whole(file, text)
    else:
        texts: list[str] = []
        try:
            with redirect_stdout(io.StringIO() if quiet else sys.stderr):
                yield texts.append
        finally:
            if texts:
                sys.stdout.write(texts[-1].rstrip("\n") + "\n")


@contextmanager
def json_lines(file: Path | None) -> Iterator[Callable[[str], None]]:
    """Yield a function that adds a line to the file of `--json`; with `-`, it prints the line at once."""
    stdout, lines = sys.stdout, list[str]()
    with json_output(file, quiet=True) as write:
        try:
            yield (lambda line: typer.echo(line, stdout)) if file == Path("-") else lines.append
        finally:
            if lines:
                write("".join(f"{line}\n" for line in lines))


def read_assignments(
    words: Iterable[str], known: Collection[str] | None = None, option: str = "--set"
) -> dict[str, str]:
    """Return `name=value` words as a mapping of names to text; the last value of a name counts.

    Unless `known` is `None`, the part of a name before its first dot must be in it.
    """
    assignments = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name:
            raise typer.BadParameter(f"{word!r} is not of the form name=value", param_hint=option)
        head = name.partition(".")[0]
        if known is not None and head not in known:
            raise UnknownNameError(errors.describe_unknown("setting of this command", head, known))
        assignments[name.strip()] = value
    return assignments


def open_run(folder: Path) -> "LoadedRun":
    """Return the finished run in a folder."""
    if folder.is_file():
        raise WrongCallError(f"{folder}: a file, not the folder of a run")
    if not folder.is_dir():
        raise WrongCallError(f"{folder}: no such run folder; asrnorm train creates one, by default in runs/")
    if not (folder / "config.yaml").is_file():
        raise WrongCallError(f"{folder}: not the folder of a run, it has no config.yaml")
    if not (folder / "model.safetensors").is_file():
        if (folder / "divergence.json").is_file():
            raise InputError(f"{folder}: the run diverged, see divergence.json, and has no model")
        raise InputError(f"{folder}: the run is not done, it has no model.safetensors; asrnorm train resumes it")
    from asrnorm.training import load_run

    try:
        return load_run(folder)
    except UnknownNameError as error:
        raise UnknownNameError(f"{folder / 'config.yaml'}: {error}; your own code needs --import MODULE") from error


def print_error(message: str) -> None:
    """Print a message on standard error, in one line."""
    typer.echo("asrnorm: " + errors.printable(" ".join(message.split())), err=True)


def check_scale(scale: str) -> Scale:
    """Return a scale, or raise `UnknownNameError` for a word that is none."""
    if scale not in get_args(Scale):
        raise UnknownNameError(errors.describe_unknown("scale", scale, get_args(Scale)))
    return cast(Scale, scale)


def find_kept() -> Path | None:
    """Return the folder of kept results: `results/` here, else those of the installed package or of its checkout."""
    package = Path(__file__).parents[1]
    folders = (KEPT, package / "studies" / "kept", package.parents[1] / "results")
    return next((folder for folder in folders if folder.is_dir()), None)


def check_folder(folder: Path, option: str) -> None:
    """Raise `WrongCallError` if the folder that an option names is a file."""
    if folder.exists() and not folder.is_dir():
        raise WrongCallError(f"{option} {folder}: a file; give a folder")


def check_data(configs: Sequence[RunConfig], *, targets: bool = True) -> None:
    """Raise `InputError` if the source, the weights or, with `targets`, every target of a run is missing."""
    from asrnorm.data import create_suite
    from asrnorm.data.download.verify import find_weights

    for choice in {repr(config.suite): config.suite for config in configs}.values():
        suite = create_suite(choice.name, **choice.args)
        suite.require_source()
        if targets and not suite.target_names and suite.missing:
            part = suite.missing[0]
            raise InputError(f"suite {choice.name!r} has no target, such as {part.name}: {part.detail}")
    for name in {config.weights for config in configs if config.weights}:
        find_weights(name)


def note_missing_data(configs: Sequence[RunConfig], subject: str, *, targets: bool = True) -> None:
    """Print what `check_data` raises as a note; a dry run needs no data."""
    try:
        check_data(configs, targets=targets)
    except AsrnormError as error:
        typer.echo(f"note: here {subject} would not start: {error}", err=True)
