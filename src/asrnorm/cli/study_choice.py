"""Which studies, which of their rows and with what changed: what `reproduce` and `report` are asked for."""

import dataclasses
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

from asrnorm.core.config import RunConfig
from asrnorm.core.errors import InputError, UnknownNameError, describe_unknown
from asrnorm.core.hashing import UNHASHED

if TYPE_CHECKING:
    from asrnorm.studies import Study

PAPER = "paper"
"""In place of a study's name: all tables and figures of the paper."""

_OF_THE_PAPER = ("table", "fig-")


def expand_names(names: Sequence[str]) -> tuple[str, ...]:
    """Return names of studies, each once, with `PAPER` spelled out.

    Example:
        >>> expand_names(["table9", "cifar-erm", "table9"])
        ('table9', 'cifar-erm')
        >>> len(expand_names(["paper"])), expand_names(["paper"])[0]
        (16, 'table1')
    """
    from asrnorm.studies import list_studies

    paper = [name for name in list_studies() if name.startswith(_OF_THE_PAPER)]
    spelled = [own for name in names for own in (paper if name == PAPER else [name])]
    return tuple(dict.fromkeys(spelled))


def report_folder(name: str, scale: str) -> Path:
    """Return where the report of a study goes unless told otherwise: those of other scales beside the paper's.

    Example:
        >>> report_folder("table3", "paper").as_posix(), report_folder("table3", "short").as_posix()
        ('reports/table3', 'reports/table3-short')
    """
    return Path("reports", name if scale == "paper" else f"{name}-{scale}")


def choose_rows(studies: Sequence["Study"], patterns: Sequence[str]) -> list["Study"]:
    """Return the studies with the rows whose labels match, as they are where nothing is asked for.

    A study without such a row is left out.

    Raises:
        UnknownNameError: a pattern that matches no row.

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
    """Return a study with fields of all its runs replaced, so that their results are looked for under those too.

    Example:
        >>> from asrnorm.studies import get_study
        >>> study = change_runs(get_study("table3"), {"steps": "7"})
        >>> next(iter(study.rows[-1].cells.values())).runs[0].config(0, "paper").steps
        7
    """
    if not assignments:
        return study
    replace = dataclasses.replace
    rows = []
    for row in study.rows:
        cells = {}
        for column, cell in row.cells.items():
            changed = tuple(replace(spec, assignments=assignments) for spec in cell.runs)
            cells[column] = replace(cell, runs=changed)
        rows.append(replace(row, cells=cells))
    said = ", ".join(f"{name}={value}" for name, value in assignments.items() if name not in UNHASHED)
    notes = (f"Not the study's own setting: every run of ours has {said}.",) if said else ()
    return replace(study, rows=tuple(rows), footnotes=(*notes, *study.footnotes))


def check_configs(configs: Sequence[RunConfig]) -> None:
    """Refuse options that no registry knows, before a process is started for each run to say so.

    Raises:
        InputError: as that of a single training.
    """
    from asrnorm.training.assembly import check_config

    for config in configs:
        check_config(config)


def check_data(configs: Sequence[RunConfig]) -> None:
    """Refuse to start where the data of a run is not there.

    Args:
        configs: of the runs that are to start.

    Raises:
        InputError: what is missing, and how to get it.
    """
    from asrnorm.data import create_suite
    from asrnorm.data.download.verify import find_weights

    suites = {repr(config.suite): config.suite for config in configs}
    for choice in suites.values():
        suite = create_suite(choice.name, **choice.args)
        suite.require_source()
        if not suite.target_names and suite.missing:
            part = suite.missing[0]
            raise InputError(f"suite {choice.name!r} has no target, such as {part.name}: {part.detail}")
    for name in {config.weights for config in configs if config.weights}:
        find_weights(name)
