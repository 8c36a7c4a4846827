"""Text of the command line and plain values of a YAML file to the typed fields of dataclasses, or one line why not."""

import dataclasses
import math
import operator
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from asrnorm.errors import InputError, InputTypeError, UnknownNameError, describe_unknown

NAMES = ("source", "target", "root")
"""Options of suites that name domains and folders, which may be called 01, 1e3 or on."""

_MOST_BRACKETS = 1000  # that PyYAML is given: its time grows with the square of their depth

# YAML 1.1 takes 1e-4 for text, since it has no point.
_EXPONENT = re.compile(r"[+-]?\d+(\.\d*)?[eE][+-]?\d+")


def parse(text: str) -> Any:
    """Return what YAML reads in a scalar or a list in brackets, and numbers as `1e-4` besides.

    Example:
        >>> parse("1e-4"), parse("[8, 16]"), parse("null"), parse("photo"), parse("C:/images")
        (0.0001, [8, 16], None, 'photo', 'C:/images')
    """
    import yaml

    if _EXPONENT.fullmatch(text):
        return float(text)
    if is_bracketed_beyond_reason(text):
        return text
    if ":" in text and not text.startswith(("{", "[", '"', "'")):
        return text  # a path or a domain, which YAML would read as a mapping or as minutes and seconds
    try:
        value = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError):  # of a date that is none, or of hundreds of brackets
        return text
    return value if value is None or isinstance(value, bool | int | float | str | list | dict) else text


def is_bracketed_beyond_reason(text: str) -> bool:
    """Tell whether a text has more brackets than any config, so that reading it as YAML could take hours.

    Example:
        >>> is_bracketed_beyond_reason("[8, 16]"), is_bracketed_beyond_reason("[" * 20_000)
        (False, True)
    """
    return text.count("[") + text.count("{") > _MOST_BRACKETS


def as_whole_number(value: Any, what: str) -> int:
    """Return an integer of any library as one of Python's, so that equal ones are written alike.

    Raises:
        InputTypeError: something else; a float too, though it be whole.

    Example:
        >>> import numpy as np
        >>> as_whole_number(np.int64(7), "the seed")
        7
    """
    try:
        return operator.index(value)
    except TypeError:
        raise InputTypeError(f"{what} must be a whole number, not {value!r}") from None


def match_number(current: Any, value: Any) -> Any:
    """Return a number in the type of the one it replaces: `1e3` for an int, `1` for a float.

    Example:
        >>> match_number(1000, 2e3), match_number(1.0, 5), match_number(None, 5)
        (2000, 5.0, 5)
    """
    if isinstance(value, bool) or isinstance(current, bool):
        return value
    if isinstance(current, float) and isinstance(value, int):
        return float(value)
    if isinstance(current, int) and isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def build(kind: Any, values: Mapping[str, Any], where: str) -> Any:
    """Return a dataclass from plain values, each checked against the type of its field.

    Args:
        kind: the dataclass; its fields may be dataclasses too.
        values: by field.
        where: what the values come from, for messages.

    Raises:
        UnknownNameError: a field that does not exist, or a word that is none of those allowed.
        InputError: a value of the wrong type, or a field that is missing.
    """
    hints = _hints(kind)
    for name in values:
        if name not in hints:
            raise UnknownNameError(f"{where}: " + describe_unknown("field", str(name), hints))
    try:
        return kind(**{name: _convert(hints[name], value, f"{where}: {name}") for name, value in values.items()})
    except TypeError as error:
        raise InputError(f"{where}: {error}".replace(f"{kind.__name__}.__init__() ", "")) from error


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)


def _convert(hint: Any, value: Any, where: str) -> Any:
    if dataclasses.is_dataclass(hint):
        if not isinstance(value, Mapping):
            raise InputError(f"{where} must be a mapping, not {value!r}")
        return build(hint, value, where)
    if get_origin(hint) is Literal:
        if value not in get_args(hint):
            raise UnknownNameError(f"{where}: " + describe_unknown("value", str(value), map(str, get_args(hint))))
        return value
    if hint == str | None:
        if value is not None and not isinstance(value, str | Path):
            raise InputError(f"{where} must be text or null, not {value!r}")
        return None if value is None else str(value)
    if get_origin(hint) is tuple:
        if not isinstance(value, list | tuple):
            raise InputError(f"{where} must be a list, not {value!r}")
        return tuple(_convert(get_args(hint)[0], part, where) for part in value)
    if get_origin(hint) is dict:
        if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
            raise InputError(f"{where} must be a mapping of names to values, not {value!r}")
        return {key: _convert_option(part, f"{where}.{key}") for key, part in value.items()}
    if hint is float and isinstance(value, str) and _EXPONENT.fullmatch(value):
        return float(value)
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if hint is int and isinstance(value, float) and value.is_integer():
        return int(value)
    if hint is int and not isinstance(value, int) and hasattr(value, "__index__"):
        return as_whole_number(value, where)  # of NumPy
    if not isinstance(value, hint) or (hint is not bool and isinstance(value, bool)):
        raise InputError(f"{where} must be {hint.__name__}, not {value!r}")
    return value


def _convert_option(value: Any, where: str) -> Any:
    """Return an option of a choice, whose type only its registry knows, if it can be stored and hashed."""
    is_name = where.rpartition(".")[2] in NAMES
    if is_name and isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    if isinstance(value, str):
        return float(value) if _EXPONENT.fullmatch(value) and not is_name else value
    if isinstance(value, list | tuple):
        return [_convert_option(part, where) for part in value]
    if isinstance(value, Mapping):
        return {str(key): _convert_option(part, f"{where}.{key}") for key, part in value.items()}
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, float) and not math.isfinite(value):
        raise InputError(f"{where} must be a finite number, not {value}")
    if value is None or isinstance(value, bool | int | float):
        return value
    raise InputError(f"{where} must be text, a number, a list or null, not {value!r}; quote it if it is text")
