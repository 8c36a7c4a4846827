"""The errors users meet: one line that says what is wrong and how to put it right.

Every error raised on purpose derives from `AsrnormError`, so that the command line can tell a mistake of the user's
(one line, no traceback) from a defect of ours.
"""

import difflib
import re
from collections.abc import Iterable

# What moves the cursor, changes colors or reverses text: control characters, line separators, bidirectional overrides.
_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
_LONGEST = 300  # of a line that quotes another error, whose text may hold a whole file


class AsrnormError(Exception):
    """Base of all errors that this package raises on purpose."""


class UnknownNameError(AsrnormError, KeyError):
    """A name that no registry holds, or an option that no constructor takes."""

    def __str__(self) -> str:
        return str(self.args[0])  # KeyError would show the repr, with quotes around the sentence


class InputError(AsrnormError, ValueError):
    """A tensor, file or argument whose value cannot be worked with."""


class WrongCallError(InputError):
    """An argument on the command line whose value no run could use."""


class InputTypeError(AsrnormError, TypeError):
    """An argument of the wrong type or dtype."""


class StorageError(AsrnormError, OSError):
    """A file or folder that cannot be written: the disk is full, or the place is read-only."""


class ConversionError(AsrnormError, ValueError):
    """A model whose norm layers cannot be converted or reverted as asked."""


class FetchError(AsrnormError, OSError):
    """A file that could not be had: no mirror answers, the disk is full, or what came is not the published file."""


class DivergenceError(AsrnormError, ArithmeticError):
    """A run whose loss or weights are no longer finite."""


class InterruptedRunError(AsrnormError):
    """A run that was told to stop, and has: started again, it goes on."""


class MissingDependencyError(AsrnormError, ImportError):
    """An optional library that the call needs and this machine lacks."""


def first_line(error: object) -> str:
    r"""Return the first line of an error's text, cut where it is very long; its class where it says nothing.

    Example:
        >>> first_line(ValueError("no kernel\nand many more lines")), first_line(EOFError())
        ('no kernel', 'EOFError')
    """
    lines = str(error).strip().splitlines()
    return lines[0].rstrip()[:_LONGEST] if lines else type(error).__name__


def printable(text: str) -> str:
    r"""Return text that is safe to print: control characters, such as those that a terminal obeys, are written out.

    Example:
        >>> printable("svhn\x1b[2J")
        'svhn\\x1b[2J'
    """
    return _CONTROLS.sub(lambda match: match.group().encode("unicode_escape").decode(), text)


_MOST_SHOWN = 100  # names in a line of help


def describe_unknown(kind: str, name: str, known: Iterable[str]) -> str:
    """One line for an unknown `name`: the nearest known one, and all of them where they are not too many to read.

    Example:
        >>> describe_unknown("norm", "asrr", ["asr", "bn"])
        "unknown norm 'asrr'; did you mean 'asr'? Known: asr, bn"
    """
    names = sorted(known)
    if not names:
        return f"unknown {kind} {name!r}; there is none"
    close = difflib.get_close_matches(name, names, n=1)
    if len(names) > _MOST_SHOWN:
        hint = f"did you mean {close[0]!r}? There are" if close else "there are"
        return f"unknown {kind} {name!r}; {hint} {len(names)}"
    hint = f"did you mean {close[0]!r}? Known" if close else "known"
    return f"unknown {kind} {name!r}; {hint}: {', '.join(names)}"
