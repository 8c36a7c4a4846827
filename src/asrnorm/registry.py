"""Names to things: a dict that refuses clashes and answers a wrong name with the right one."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Generic, TypeVar

from asrnorm.errors import UnknownNameError, describe_unknown

T = TypeVar("T", bound=Callable[..., Any])


class Registry(Generic[T]):
    """Maps the words of the command line to classes or functions.

    Args:
        kind: what the entries are, in the singular; it appears in error messages.

    Example:
        >>> shapes = Registry("shape")
        >>> @shapes.register("square")
        ... def square(*, side: float = 1.0) -> float: return side**2
        >>> shapes["square"](side=3.0), shapes.names()
        (9.0, ('square',))
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._entries: dict[str, T] = {}

    def register(self, name: str) -> Callable[[T], T]:
        """Return a decorator that adds its target under `name`.

        Raises:
            ValueError: the name is taken by something else.
        """

        def add(entry: T) -> T:
            if name in self._entries:
                raise ValueError(f"{self.kind} {name!r} is registered already, as {self._entries[name]!r}")
            self._entries[name] = entry
            return entry

        return add

    def __getitem__(self, name: str) -> T:
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
        """Refuse options that the entry does not take, before any work is done.

        Raises:
            UnknownNameError: the name or one of the options is unknown.
        """
        known = self.options(name)
        for option in options:
            if option not in known:
                raise UnknownNameError(describe_unknown(f"option of {self.kind} {name!r},", option, known))
