"""Error classes. A message is one line that says what is wrong and how to fix it.

Every error raised on purpose derives from `AsrnormError`: the command line prints those as one line, and any other
exception with its traceback.
"""

import difflib
import re
from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import Any

# Characters that move the cursor, change colors or reverse text: controls, line separators, bidirectional overrides.
_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
_LONGEST = 300  # characters quoted of another error, whose text may hold a whole file


class AsrnormError(Exception):
    """Base of all errors this package raises on purpose."""


class UnknownNameError(AsrnormError, KeyError):
    """Unknown name in a registry, or unknown option of a constructor."""

    def __str__(self) -> str:
        return str(self.args[0])  # KeyError would show the repr, with quotes around the sentence


class InputError(AsrnormError, ValueError):
    """Tensor, file or argument with an invalid value."""


class WrongCallError(InputError):
    """Invalid argument on the command line."""


class InputTypeError(AsrnormError, TypeError):
    """Argument of the wrong type or dtype."""


class StorageError(AsrnormError, OSError):
    """File or folder that cannot be written: full disk, read-only folder."""


class ConversionError(AsrnormError, ValueError):
    """Model whose norm layers cannot be converted or reverted as asked."""


class StateMismatchError(ConversionError, RuntimeError):
    """State dict of a network that was converted in another way; `load_state_dict` raises a `RuntimeError` too."""


class FetchError(AsrnormError, OSError):
    """Failed download: no mirror answers, the disk is full, or the file is not the published one."""


class DivergenceError(AsrnormError, ArithmeticError):
    """Run whose loss or weights are no longer finite."""


class InterruptedRunError(AsrnormError):
    """Run that stopped on request; the same command resumes it."""


class DeviceMemoryError(AsrnormError, MemoryError):
    """Batch for which the device has not enough memory."""


class MissingDependencyError(AsrnormError, ImportError):
    """Optional library that the call needs and this machine lacks."""


def first_line(error: object) -> str:
    r"""Return the first line of an error's text, shortened, or the name of its class if it has no text."""
    lines = str(error).strip().splitlines()
    return lines[0].rstrip()[:_LONGEST] if lines else type(error).__name__


def printable(text: str) -> str:
    r"""Return text that is safe to print on a terminal: control characters are escaped."""
    return _CONTROLS.sub(lambda match: match.group().encode("unicode_escape").decode(), text)


def install_command(extra: str) -> str:
    """Return the command that installs an extra of this package; it also works in a checkout."""
    return f"pip install 'asrnorm[{extra}]'"


def missing_extra(purpose: str, library: str, extra: str) -> MissingDependencyError:
    """Return the error for an optional library that `purpose` needs and that an extra of this package installs.

    Example:
        >>> str(missing_extra("--ray", "Ray", "ray"))
        "--ray needs Ray: pip install 'asrnorm[ray]'"
    """
    return MissingDependencyError(f"{purpose} needs {library}: {install_command(extra)}")


def import_extra(module: str, purpose: str, library: str, extra: str) -> Any:
    """Import an optional library, or raise the `MissingDependencyError` that says what to install or repair."""
    try:
        return import_module(module)
    except ImportError:
        raise missing_extra(purpose, library, extra) from None
    except Exception as error:  # a build for another torch fails in any way
        raise MissingDependencyError(
            f"{purpose} needs {library}, which fails here ({first_line(error)}); see asrnorm doctor"
        ) from error


def count_of(number: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun.

    Example:
        >>> count_of(1, "image"), count_of(2_000, "image"), count_of(0, "class", "classes")
        ('1 image', '2,000 images', '0 classes')
    """
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def shorten_list(names: Sequence[str], most: int = 8) -> str:
    """Return the first names, and how many more there are."""
    return ", ".join(names[:most]) + (f" and {len(names) - most:,} more" if len(names) > most else "")


_MOST_SHOWN = 100  # names in a line of help


def describe_unknown(kind: str, name: str, known: Iterable[str]) -> str:
    """Return one line for an unknown `name`: the closest known name, and all known ones if they fit."""
    names = sorted(map(str, known))  # a hostile file may have a list among them, or as the name
    if not names:
        return f"unknown {kind} {name!r}; there is none"
    close = difflib.get_close_matches(str(name), names, n=1)
    known = f"there are {len(names)}" if len(names) > _MOST_SHOWN else f"known: {', '.join(names)}"
    hint = f"did you mean {close[0]!r}? {known[0].upper()}{known[1:]}" if close else known
    return f"unknown {kind} {name!r}; {hint}"
