"""Names of classes, which folders may spell in several Unicode forms."""

import unicodedata
from collections.abc import Iterable

from asrnorm.errors import InputError


def to_nfc(name: str) -> str:
    r"""Return a name in the one Unicode form that names are compared in: folders of a Mac spell letters in parts.

    Example:
        >>> to_nfc("A\u0308pfel") == "\u00c4pfel"
        True
    """
    return unicodedata.normalize("NFC", name)


def refuse_two_spellings(where: str, names: Iterable[str]) -> None:
    """Refuse names of classes that differ in their Unicode form alone: they look the same, and may be a mistake.

    Raises:
        InputError: with both spellings.
    """
    seen: dict[str, str] = {}
    for name in names:
        if (other := seen.setdefault(to_nfc(name), name)) != name:
            raise InputError(
                f"{where}: class {to_nfc(name)} is spelled in two Unicode forms, {other!a} and {name!a}; "
                "use one of them"
            )
