"""Names of classes, which folders may spell in several Unicode forms.

A table of images in CSV or JSON Lines: path, label and domain of each.
"""

import csv
import io
import json
import os
import unicodedata
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from asrnorm.core.errors import InputError
from asrnorm.data.image import ENDINGS
from asrnorm.data.readers import read_bytes


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


COLUMNS = ("path", "label", "domain")
_NEEDED = COLUMNS[:2]
MOST_BYTES = 1 << 30
_TABLES = (".csv", ".jsonl", ".ndjson", ".json")


class Sample(NamedTuple):
    """One image; `key` is its path relative to the root, the same on every machine, `label` is spelled as found."""

    path: Path
    key: str
    label: str
    domain: str


def read_table(path: Path) -> list[Sample]:
    r"""Return the images that a table names, in its order; relative paths start at its folder.

    A table without domains is one, called by the name of the file.

    Raises:
        InputError: no table, no images in it, a line that cannot be understood, an image that is named twice,
            or a class in two spellings.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     path = Path(folder) / "images.csv"
        ...     _ = path.write_text("path,label,domain\na.png,dog,photo\n")
        ...     [(sample.key, sample.label, sample.domain) for sample in read_table(path)]
        [('a.png', 'dog', 'photo')]
    """
    if path.suffix.lower() not in _TABLES:
        what = "an image" if path.suffix.lower() in ENDINGS else "a file"
        raise InputError(f"{path}: {what}, and no table; give a folder, or a .csv or .jsonl file")
    try:
        text = read_bytes(path, MOST_BYTES).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InputError(f"{path}: not a text file in UTF-8") from None
    rows = _csv_rows(path, text) if path.suffix.lower() == ".csv" else _json_rows(path, text)
    samples = [_to_sample(path, number, row) for number, row in rows]
    if not samples:
        raise InputError(f"{path}: no images in it")
    seen: set[str] = set()
    for sample in samples:
        place = os.path.realpath(sample.path)  # whatever the spelling: a copy could be trained on and chosen by
        if place in seen:
            raise InputError(f"{path}: {sample.key} is named more than once")
        seen.add(place)
    for domain, labels in _labels_by_domain(samples).items():
        refuse_two_spellings(f"{path}, domain {domain}", labels)
    return samples


def _labels_by_domain(samples: list[Sample]) -> dict[str, list[str]]:
    labels: dict[str, list[str]] = {}
    for domain, label in dict.fromkeys((sample.domain, sample.label) for sample in samples):
        labels.setdefault(domain, []).append(label)
    return labels


def _csv_rows(path: Path, text: str) -> Iterator[tuple[int, dict[str, Any]]]:
    reader = csv.DictReader(io.StringIO(text, newline=""))
    try:
        missing = [column for column in _NEEDED if column not in (reader.fieldnames or ())]
        if missing:
            raise InputError(
                f"{path}: no column {', '.join(missing)}; the first line must name {', '.join(COLUMNS)}, "
                "with commas between"
            )
        for row in reader:
            yield reader.line_num, {"domain": path.stem} | {key: row[key] for key in COLUMNS if key in row}
    except csv.Error as error:
        raise InputError(f"{path}, line {reader.line_num}: {error}") from None


def _json_rows(path: Path, text: str) -> Iterator[tuple[int, dict[str, Any]]]:
    rows: list[tuple[int, dict[str, Any]]] = []
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            raise InputError(
                f"{path}, line {number}: not JSON; expected one object with {', '.join(COLUMNS)}"
            ) from None
        if not isinstance(row, dict):
            raise InputError(f"{path}, line {number}: expected an object with {', '.join(COLUMNS)}")
        rows.append((number, row))
    default = None if any("domain" in row for _, row in rows) else path.stem  # where one line has it, all must
    for number, row in rows:
        yield number, {"domain": row.get("domain", default)} | {key: row.get(key) for key in _NEEDED}


def _to_sample(table: Path, number: int, row: dict[str, Any]) -> Sample:
    values = {}
    for column, value in row.items():
        if type(value) is int and column == "label":
            value = str(value) if abs(value) < 10**18 else None
        if not isinstance(value, str) or not value.strip() or "\0" in value or not _is_text(value):
            raise InputError(f"{table}, line {number}: no usable {column}")
        values[column] = value.strip()
    return Sample(table.parent / values["path"], values["path"], values["label"], values["domain"])


def _is_text(value: str) -> bool:
    """Tell whether text can be written: JSON may hold halves of characters."""
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
