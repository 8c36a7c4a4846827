"""Tables of images in CSV or JSON Lines: path, label and domain of each."""

import csv
import io
import os
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from asrnorm.core.errors import InputError
from asrnorm.core.reading import parse_json
from asrnorm.data.image import EXTENSIONS
from asrnorm.data.image_set import FileSet
from asrnorm.data.readers import read_bytes

COLUMNS = ("path", "label", "domain")
MAX_BYTES = 1 << 30
_REQUIRED = COLUMNS[:2]
_TABLES = (".csv", ".jsonl", ".ndjson", ".json")


class Sample(NamedTuple):
    """One image; `key` is its path relative to the root, the same on every machine, `label` is spelled as found."""

    path: Path
    key: str
    label: str
    domain: str


def read_table(path: Path) -> list[Sample]:
    """Return the images of a table, in its order; relative paths start at its folder.

    Without the column `domain` all images belong to one domain, named after the file.
    """
    if path.suffix.lower() not in _TABLES:
        kind = "an image" if path.suffix.lower() in EXTENSIONS else "a file"
        raise InputError(f"{path}: {kind}, not a table; give a folder, or a .csv or .jsonl file")
    try:
        text = read_bytes(path, MAX_BYTES).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InputError(f"{path}: not a text file in UTF-8") from None
    rows = _csv_rows(path, text) if path.suffix.lower() == ".csv" else _json_rows(path, text)
    samples = [_to_sample(path, number, row) for number, row in rows]
    if not samples:
        raise InputError(f"{path}: no images in it")
    seen: dict[str, Sample] = {}
    for sample in samples:  # a file under two spellings could be in training and validation
        if seen.setdefault(os.path.realpath(sample.path), sample) is not sample:
            raise InputError(f"{path}: {sample.key} occurs more than once")
    for domain, own in group_by_domain(samples).items():
        check_spelling(f"{path}, domain {domain}", dict.fromkeys(sample.label for sample in own))
    return samples


def group_by_domain(samples: Iterable[Sample]) -> dict[str, list[Sample]]:
    """Return the samples of each domain, both in order of appearance."""
    groups: dict[str, list[Sample]] = {}
    for sample in samples:
        groups.setdefault(sample.domain, []).append(sample)
    return groups


def to_file_set(samples: Sequence[Sample], classes: Sequence[str], image_size: tuple[int, int]) -> FileSet:
    """Return samples as a `FileSet`; labels are indices into `classes`, whatever the Unicode form of either."""
    index = {to_nfc(name): number for number, name in enumerate(classes)}
    labels = np.array([index[to_nfc(sample.label)] for sample in samples], np.int64)
    return FileSet(tuple(sample.path for sample in samples), labels, image_size)


def to_nfc(name: str) -> str:
    """Return a name in Unicode form NFC, in which names are compared; macOS writes folder names in NFD."""
    return unicodedata.normalize("NFC", name)


def check_spelling(where: str, names: Iterable[str]) -> None:
    """Raise `InputError` if two class names differ only in their Unicode form, which nobody sees."""
    seen: dict[str, str] = {}
    for name in names:
        if (other := seen.setdefault(to_nfc(name), name)) != name:
            raise InputError(
                f"{where}: class {to_nfc(name)} is spelled in two Unicode forms, {other!a} and {name!a}; "
                "use one of them"
            )


def _csv_rows(path: Path, text: str) -> Iterator[tuple[int, dict[str, Any]]]:
    reader = csv.DictReader(io.StringIO(text, newline=""))
    try:
        if missing := [column for column in _REQUIRED if column not in (reader.fieldnames or ())]:
            expected = f"the first line must name {', '.join(COLUMNS)}, separated by commas"
            raise InputError(f"{path}: no column {', '.join(missing)}; {expected}")
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
            row = parse_json(line)
        except InputError:
            row = None
        if not isinstance(row, dict):
            raise InputError(f"{path}, line {number}: expected a JSON object with {', '.join(COLUMNS)}")
        rows.append((number, row))
    default = None if any("domain" in row for _, row in rows) else path.stem  # if one line has it, all must
    for number, row in rows:
        yield number, {"domain": row.get("domain", default)} | {key: row.get(key) for key in _REQUIRED}


def _to_sample(table: Path, number: int, row: dict[str, Any]) -> Sample:
    values = {}
    for column, value in row.items():
        if type(value) is int and column == "label":
            value = str(value) if abs(value) < 10**18 else None
        # JSON may hold unpaired surrogates, which no file name has.
        if not isinstance(value, str) or not value.strip() or re.search("[\0\ud800-\udfff]", value):
            raise InputError(f"{table}, line {number}: {column} is missing or unusable")
        values[column] = value.strip()
    return Sample(table.parent / values["path"], values["path"], values["label"], values["domain"])
