"""`--import MODULE`: what the user's own modules register is known before a command goes to work."""

import sys
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

from asrnorm.errors import InputError, UnknownNameError

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
