"""The studies, rows and settings that `reproduce` and `report` are called with."""

import dataclasses
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

from asrnorm.core.errors import UnknownNameError, describe_unknown
from asrnorm.core.hashing import UNHASHED

if TYPE_CHECKING:
    from asrnorm.studies import Study

PAPER = "paper"
"""Stands for all tables and figures of the paper."""

_PAPER_PREFIXES = ("table", "fig-")


def expand_names(names: Sequence[str]) -> tuple[str, ...]:
    """Return the names of studies without duplicates, with `PAPER` expanded."""
    from asrnorm.studies import list_studies

    paper = [name for name in list_studies() if name.startswith(_PAPER_PREFIXES)]
    return tuple(dict.fromkeys(study for name in names for study in (paper if name == PAPER else [name])))


def report_folder(name: str, scale: str) -> Path:
    """Return the default folder for the report of a study.

    Example:
        >>> report_folder("table3", "paper").as_posix(), report_folder("table3", "short").as_posix()
        ('reports/table3', 'reports/table3-short')
    """
    return Path("reports", name if scale == "paper" else f"{name}-{scale}")


def choose_rows(studies: Sequence["Study"], patterns: Sequence[str]) -> list["Study"]:
    """Return the studies with only the rows whose labels match, without studies that have none; all if no pattern.

    Raises:
        UnknownNameError: a pattern matches no row.

    Example:
        >>> from asrnorm.studies import get_study
        >>> (chosen,) = choose_rows([get_study("table3"), get_study("table5")], ["rsc*"])
        >>> [row.label for row in chosen.rows]
        ['RSC', 'RSC + ASR-Norm']
    """
    if not patterns:
        return list(studies)
    labels = list(dict.fromkeys(row.label for study in studies for row in study.rows))
    for pattern in patterns:
        if not any(_matches(label, pattern) for label in labels):
            names = ", ".join(repr(study.name) for study in studies)
            raise UnknownNameError(describe_unknown(f"row of study {names},", pattern, labels))
    chosen = []
    for study in studies:
        rows = tuple(row for row in study.rows if any(_matches(row.label, pattern) for pattern in patterns))
        if rows:
            chosen.append(dataclasses.replace(study, rows=rows))
    return chosen


def _matches(label: str, pattern: str) -> bool:
    return fnmatchcase(label.lower(), pattern.lower())


def change_runs(study: "Study", assignments: Mapping[str, Any]) -> "Study":
    """Return a study with fields of all its runs replaced, and a footnote if that changes their numbers."""
    if not assignments:
        return study
    replace = dataclasses.replace
    rows = []
    for row in study.rows:
        cells = {
            column: replace(cell, runs=tuple(replace(spec, assignments=assignments) for spec in cell.runs))
            for column, cell in row.cells.items()
        }
        rows.append(replace(row, cells=cells))
    changes = ", ".join(f"{name}={value}" for name, value in assignments.items() if name not in UNHASHED)
    notes = (f"Not the study's own setting: every run of ours has {changes}.",) if changes else ()
    return replace(study, rows=tuple(rows), footnotes=(*notes, *study.footnotes))
