"""What the commands on finished runs share: opening a folder, kept results, `--set` options, a place for `--json`."""

import os
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from asrnorm.errors import InputError, StorageError, UnknownNameError, WrongCallError, describe_unknown
from asrnorm.storage import describe_failure

if TYPE_CHECKING:
    from asrnorm.training import LoadedRun

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
