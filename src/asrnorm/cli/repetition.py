"""Options that are given twice where one value counts: the last would be taken in silence."""

from collections.abc import Mapping, Sequence
from typing import Any

import typer


def find_repeated(app: Any, words: Sequence[str]) -> str | None:
    """Return the first option of a command line that is given again and takes one value; `None` where there is none.

    Args:
        app: the application that the words are for; of its commands, the one that they name is looked at.
        words: as typed, without the program.

    Example:
        >>> app = typer.Typer()
        >>> @app.command()
        ... def look(seed: int = 0, names: list[str] = []) -> None: ...
        >>> find_repeated(app, ["--seed", "1", "--names", "a", "--names", "b", "--seed=2"])
        '--seed'
    """
    command: Any = typer.main.get_command(app) if isinstance(app, typer.Typer) else None
    rest = list(words)
    while commands := getattr(command, "commands", None):
        name = next((word for word in rest if not word.startswith("-")), None)
        if name is None or name not in commands:
            return None
        rest, command = rest[rest.index(name) + 1 :], commands[name]
    return _find(_options(command), rest) if command is not None else None


def _options(command: Any) -> Mapping[str, Any]:
    options = (parameter for parameter in command.params if parameter.param_type_name == "option")
    return {word: option for option in options for word in (*option.opts, *option.secondary_opts)}


def _find(options: Mapping[str, Any], words: Sequence[str]) -> str | None:
    seen: set[str] = set()
    values_left = 0
    for word in words:
        if values_left:
            values_left -= 1
            continue
        if word == "--":
            return None
        name, equals, _ = word.partition("=")
        option = options.get(name)
        if option is None or option.is_flag:
            continue
        values_left = 0 if equals else option.nargs
        if option.name in seen and not option.multiple:
            return str(option.opts[0])
        seen.add(option.name)
    return None
