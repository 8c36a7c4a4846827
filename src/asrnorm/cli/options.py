"""`--import MODULE`: what the user's own modules register is known before a command goes to work.

`--json FILE`: numbers for programs, in a file or on the standard output.

What the commands on finished runs share: opening a folder, kept results, `--set` options, a place for `--json`.
"""

import os
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from asrnorm.core.errors import InputError, StorageError, UnknownNameError, WrongCallError, describe_unknown
from asrnorm.core.files import describe_failure, write_whole

if TYPE_CHECKING:
    from asrnorm.training import LoadedRun

Modules = Annotated[
    list[str] | None,
    typer.Option("--import", metavar="MODULE", help="A module that registers your own norm, method, suite, ..."),
]


def import_modules(names: Iterable[str] | None) -> None:
    """Import modules from the current folder or wherever Python looks.

    Args:
        names: with dots, as in an import statement.

    Raises:
        UnknownNameError: there is no such module.
        InputError: it needs another that is not installed.

    Example:
        >>> import_modules(["json"])
    """
    for name in names or ():
        _import(name)


def _import(name: str) -> None:
    if not all(part.isidentifier() for part in name.split(".")) or name.endswith(".py"):
        raise UnknownNameError(
            f"--import {name}: a module is named as in an import statement, my_norm for my_norm.py; its folder is the "
            "current one or in PYTHONPATH"
        )
    if str(Path.cwd()) not in sys.path:  # the installed command, unlike `python -m`, does not look here
        sys.path.insert(0, str(Path.cwd()))
    try:
        import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise InputError(f"--import {name}: it needs {error.name}, which is not installed") from error
        raise UnknownNameError(f"--import {name}: no such module here or in PYTHONPATH") from error


_STANDARD_OUTPUT = Path("-")


@contextmanager
def json_output(file: Path | None) -> Iterator[Callable[[str], None]]:
    """Give a function that writes text where `--json` says: to no place, to a file, or to the standard output.

    With `-`, what is printed meanwhile goes to the error output, and the last text written is printed at the end, also
    of work that fails then: `asrnorm ... --json - | jq` sees the numbers alone.

    Args:
        file: as typed; `None` where the option is not given.

    Raises:
        InputError: a folder.
        StorageError: a place where nothing can be written.
    """
    if file is None:
        yield lambda _text: None
        return
    if file != _STANDARD_OUTPUT:
        check_place(file)
        yield lambda text: write_whole(file, text)
        return
    texts: list[str] = []
    try:
        with redirect_stdout(sys.stderr):
            yield texts.append
    finally:
        if texts:
            sys.stdout.write(texts[-1].rstrip("\n") + "\n")


KEPT = Path("results")


def open_run(folder: Path) -> "LoadedRun":
    """Return the run in a folder.

    Raises:
        WrongCallError: no such folder, or not a run's.
        InputError: of a run that is not done.
        UnknownNameError: the run has a norm, method, ... that no registry holds.
    """
    if folder.is_file():
        raise WrongCallError(f"{folder}: a file, not the folder of a run")
    if not folder.is_dir():
        raise WrongCallError(f"{folder}: no such run folder; asrnorm train makes one, as a rule under runs/")
    if not (folder / "config.yaml").is_file():
        raise WrongCallError(f"{folder}: not the folder of a run, it has no config.yaml")
    if not (folder / "model.safetensors").is_file():
        if (folder / "divergence.json").is_file():
            raise InputError(f"{folder}: the run diverged, as divergence.json says, and has no model")
        raise InputError(f"{folder}: the run is not done, it has no model.safetensors; asrnorm train goes on with it")
    from asrnorm.training import load_run

    try:
        return load_run(folder)
    except UnknownNameError as error:
        raise UnknownNameError(f"{folder / 'config.yaml'}: {error}; what is your own needs --import MODULE") from error


def read_assignments(words: Sequence[str], known: Collection[str]) -> dict[str, str]:
    """Return `--set a.b=value` words as a mapping of dotted names to text.

    Args:
        words: as typed.
        known: first parts that the command can change.

    Raises:
        typer.BadParameter: no equals sign.
        UnknownNameError: a name that the command cannot change.

    Example:
        >>> read_assignments(["suite.root=data"], known=["suite"])
        {'suite.root': 'data'}
    """
    assignments = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name:
            raise typer.BadParameter(f"{word!r} is not of the form name=value", param_hint="--set")
        head = name.partition(".")[0]
        if head not in known:
            raise UnknownNameError(describe_unknown("setting of this command", head, known))
        assignments[name] = value
    return assignments


def find_kept() -> Path | None:
    """Return the folder of kept results, `results/` of the working directory; `None` where there is none."""
    return KEPT if KEPT.is_dir() else None


def check_place(file: Path) -> None:
    """Make the folder of a file, and refuse a place where it could not be written, before the work is done."""
    if file.is_dir():
        raise InputError(f"{file}: a folder; give --json a file, such as {file / 'scores.json'}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(describe_failure(error, file)) from None
    if not os.access(file.parent, os.W_OK | os.X_OK):
        raise StorageError(f"{file}: nothing can be written in its folder; give --json another place")


def check_folder(folder: Path, option: str) -> None:
    """Refuse a file where a folder is to be, before the work is done.

    Raises:
        WrongCallError: it is a file.
    """
    if folder.exists() and not folder.is_dir():
        raise WrongCallError(f"{option} {folder}: a file; give a folder")
