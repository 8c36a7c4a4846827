"""Registry: a dict from names to classes or functions that rejects duplicates and suggests near names."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from numbers import Integral, Real
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Generic, TypeVar, get_args, get_origin, get_type_hints

from asrnorm.core.errors import InputError, InputTypeError, UnknownNameError, describe_unknown
from asrnorm.core.reading import check_int

T = TypeVar("T", bound=Callable[..., Any])

_PLAIN: dict[Any, Any] = {bool: bool, int: Integral, float: Real, str: str, Path: Path, NoneType: NoneType}


class Registry(Generic[T]):
    """Maps names in configs and on the command line to classes or functions; `kind` is their noun in error messages."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._entries: dict[str, T] = {}

    def register(self, name: str) -> Callable[[T], T]:
        """Return a decorator that adds its target under `name`; raise `ValueError` if the name is taken."""

        def add(entry: T) -> T:
            if name in self._entries:
                raise ValueError(f"{self.kind} {name!r} is registered already, as {self._entries[name]!r}")
            self._entries[name] = entry
            return entry

        return add

    def __getitem__(self, name: str) -> T:
        if not isinstance(name, str):
            raise InputTypeError(f"the name of a {self.kind} must be a string, not {name!r}")
        try:
            return self._entries[name]
        except KeyError:
            raise UnknownNameError(describe_unknown(self.kind, name, self._entries)) from None

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def __len__(self) -> int:
        return len(self._entries)

    def names(self) -> tuple[str, ...]:
        """Return all names in alphabetical order."""
        return tuple(sorted(self._entries))

    def options(self, name: str) -> dict[str, inspect.Parameter]:
        """Return the keyword-only parameters of an entry: its hyper-parameters."""
        parameters = inspect.signature(self[name]).parameters.values()
        return {p.name: p for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY}

    def summary(self, name: str) -> str:
        """Return the first line of the entry's docstring."""
        return (inspect.getdoc(self[name]) or "").split("\n", 1)[0]

    def check(self, name: str, options: Mapping[str, object]) -> None:
        """Raise `UnknownNameError` for an unknown name or option, `InputError` for an option of the wrong type."""
        known, kinds = self.options(name), self._kinds(name)
        for option, value in options.items():
            is_own = not str(getattr(self[name], "__module__", "")).startswith("asrnorm.")
            if option not in known and is_own and option in inspect.signature(self[name]).parameters:
                raise UnknownNameError(
                    f"option {option!r} of {self.kind} {name!r} must be keyword-only: put * before it in the signature"
                )
            if option not in known:
                raise UnknownNameError(describe_unknown(f"option of {self.kind} {name!r},", option, known))
            wanted = kinds.get(option, ())
            if wanted and not any(_is_a(value, kind) for kind in wanted):
                words = " or ".join(_name(kind) for kind in wanted)
                raise InputError(f"option {option!r} of {self.kind} {name!r} must be {words}, not {value!r}")
            if isinstance(value, int):
                check_int(value, f"option {option!r} of {self.kind} {name!r}")
            if isinstance(value, float) and 3e38 < abs(value) < float("inf"):
                raise InputError(f"option {option!r} of {self.kind} {name!r} is too large for float32: {value}")

    def _kinds(self, name: str) -> dict[str, tuple[Any, ...]]:
        """Return the accepted types of each option that takes numbers, text, null or fixed tuples of these."""
        entry = self[name]
        try:
            hints = get_type_hints(entry.__init__ if inspect.isclass(entry) else entry)
        except NameError:  # a type imported for type checkers only
            return {}
        kinds = {option: get_args(hint) if isinstance(hint, UnionType) else (hint,) for option, hint in hints.items()}
        return {option: found for option, found in kinds.items() if all(_is_checked(kind) for kind in found)}


def _is_checked(kind: Any) -> bool:
    if get_origin(kind) is tuple:
        return all(part in _PLAIN for part in get_args(kind))  # `tuple[int, ...]` is left to the entry itself
    return kind in _PLAIN


def _name(kind: Any) -> str:
    if get_origin(kind) is tuple:
        return f"[{', '.join(_name(part) for part in get_args(kind))}]"
    return "null" if kind is NoneType else str(kind.__name__)


def _is_a(value: object, kind: Any) -> bool:
    if get_origin(kind) is tuple:
        parts = get_args(kind)
        if not isinstance(value, list | tuple) or len(value) != len(parts):
            return False
        return all(_is_a(one, part) for one, part in zip(value, parts, strict=True))
    return isinstance(value, _PLAIN[kind]) and (kind is bool or not isinstance(value, bool))
