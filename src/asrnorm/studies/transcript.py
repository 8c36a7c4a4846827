"""Lines of the paper's tables as text, so that they can be read beside it."""

from collections.abc import Mapping, Sequence

from asrnorm.studies.spec import Printed


def transcribe(
    columns: Sequence[str],
    line: str,
    *,
    copied_from: str | None = None,
    notes: Mapping[str, str] | str | None = None,
) -> dict[str, Printed]:
    """Return the numbers of a line by column.

    Args:
        columns: one for each word.
        line: numbers as the paper prints them: `47.4±4.8`, `<.001`, and `-` where there is none.
        copied_from: the work that the paper took the line from.
        notes: by column, or one for the whole line.

    Raises:
        ValueError: the line has another number of words than there are columns.

    Example:
        >>> numbers = transcribe(["A", "B", "C"], "47.4±4.8 - <.001")
        >>> numbers["A"].deviation, "B" in numbers, numbers["C"].below
        (4.8, False, True)
    """
    numbers = {}
    for column, word in zip(columns, line.split(), strict=True):
        if word == "-":
            continue
        value, _, deviation = word.removeprefix("<").partition("±")
        numbers[column] = Printed(
            value=float(value),
            deviation=float(deviation) if deviation else None,
            copied_from=copied_from,
            note=notes if isinstance(notes, str) else (notes or {}).get(column),
            below=word.startswith("<"),
        )
    return numbers
