"""The studies, rows and settings that `reproduce` and `report` are called with."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

from asrnorm.core.errors import UnknownNameError, describe_unknown
from asrnorm.core.hashing import UNHASHED

if TYPE_CHECKING:
    from asrnorm.studies import Study

PAPER = "paper"  # stands for all tables and figures of the paper
_PAPER_PREFIXES = ("table", "fig-")


def expand_names(names: Sequence[str]) -> tuple[str, ...]:
    """Return the names of studies without duplicates, with `PAPER` expanded."""
    from asrnorm.studies import list_studies

    paper = [name for name in list_studies() if name.startswith(_PAPER_PREFIXES)]
    return tuple(dict.fromkeys(study for name in names for study in (paper if name == PAPER else [name])))


def report_folder(name: str, scale: str) -> Path:
    """Return the default folder for the report of a study, such as `reports/table3` or `reports/table3-short`."""
    return Path("reports", name if scale == "paper" else f"{name}-{scale}")


def choose_rows(studies: Sequence["Study"], patterns: Sequence[str]) -> list["Study"]:
    """Return the studies with only the rows whose labels match, without studies that have none; all if no pattern."""
    if not patterns:
        return list(studies)
    labels = {row.label for study in studies for row in study.rows}
    wanted = set()
    for pattern in patterns:
        found = {label for label in labels if fnmatchcase(label.lower(), pattern.lower())}
        if not found:
            names = ", ".join(repr(study.name) for study in studies)
            raise UnknownNameError(describe_unknown(f"row of study {names},", pattern, labels))
        wanted |= found
    chosen = (replace(study, rows=tuple(row for row in study.rows if row.label in wanted)) for study in studies)
    return [study for study in chosen if study.rows]


def change_runs(study: "Study", assignments: Mapping[str, Any]) -> "Study":
    """Return a study with fields of all its runs replaced, and a footnote if that changes their numbers."""
    if not assignments:
        return study
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
