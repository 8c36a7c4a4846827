"""Loads studies from YAML: rows, the runs behind them, and the paper's numbers; `docs/how-to/study.md` has the format.

Every file in `tables/` is a study of the package, registered under the file's name and read when it is first used.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

from asrnorm.core.config import build
from asrnorm.core.errors import InputError, UnknownNameError, describe_unknown
from asrnorm.core.reading import MAX_YAML, read_bytes, read_yaml
from asrnorm.studies.spec import STUDIES, Cell, Comparison, Evaluation, Measure, Printed, Row, RunSpec, Study

TABLES = Path(__file__).with_name("tables")
NOTES = Path(__file__).with_name("notes")
SHARED_COLUMNS = Path(__file__).with_name("columns.yaml")
SHARED_NOTES = "shared.md"
_SHARED_NOTE = re.compile(r"\{([a-z0-9-]+)\}")


@dataclass(frozen=True, kw_only=True)
class _File:
    """The keys of a study's file, besides `columns`."""

    summary: str
    title: str
    caption: str
    suite: str = ""
    seeds: int = 5
    each: dict[str, Any] = field(default_factory=dict)
    measure: dict[str, Any] = field(default_factory=dict)
    rows: dict[str, Any] = field(default_factory=dict)
    blocks: tuple[dict[str, Any], ...] = ()
    comparisons: tuple[dict[str, Any], ...] = ()
    figures: tuple[str, ...] = ()
    notes: str | None = None
    transposed: bool = False


@dataclass(frozen=True, kw_only=True)
class _RowEntry:
    """The keys of a row. All but `rows` may also stand in a block, for every row of it."""

    recipe: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    overrides: dict[str, Any] = field(default_factory=dict)
    evaluation: dict[str, Any] = field(default_factory=dict)
    analyses: tuple[str, ...] = ()
    may_diverge: bool = False
    paper: str = ""
    copied_from: str | None = None
    remarks: dict[str, Any] = field(default_factory=dict)
    not_run: str | None = None
    group: str = ""
    found_on_targets: bool = False


@dataclass(frozen=True, kw_only=True)
class _ComparisonEntry:
    row: str
    against: tuple[str, ...]
    p_values: str = ""
    differences: str = ""
    remarks: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class _Columns:
    """What the columns measure and which run of a row each takes (`None`: all of them)."""

    measures: Mapping[str, Measure]
    runs: Mapping[str, str | None]
    shown_only: tuple[str, ...]
    added: tuple[str, ...]
    each: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def printed(self) -> tuple[str, ...]:
        """The columns that a line of the paper has a number for."""
        return tuple(name for name in self.measures if name not in self.added)


def load_study(path: Path, *, notes: Path | None = None) -> Study:
    """Return the study in a YAML file; its name is the file's, and `notes` the folder of its notes, if it is another.

    Raises:
        InputError: a file that cannot be read, or a value that does not fit, such as too few numbers in a row.
        UnknownNameError: an unknown key, column or row; the nearest is named.

    Example:
        >>> study = load_study(TABLES / "table3.yaml", notes=NOTES)
        >>> study.rows[0].cells["Sketch"].runs[0].options, study.rows[0].cells["Sketch"].printed.value
        ({'source': 'sketch'}, 53.1)
    """
    values = dict(_read_yaml(path))
    columns = values.pop("columns", {})
    file: _File = build(_File, values, path.name)
    layout = _load_columns(columns, file, path.name)
    rows: dict[str, Row] = {}
    for label, entry in _iterate_rows(file, path.name):
        where = f"{path.name}: row {label!r}"
        if label in rows:
            raise InputError(f"{where} is there twice; give one of them another label")
        rows[label] = _build_row(label, entry, layout, where)
    return Study(
        name=path.stem,
        title=file.title,
        caption=file.caption,
        columns=tuple(layout.measures),
        rows=tuple(rows.values()),
        comparisons=tuple(_build_comparisons(file, rows, layout, path.name)),
        figures=file.figures,
        footnotes=() if file.notes is None else read_notes((notes or path.parent) / file.notes),
        seeds=file.seeds,
        suite=file.suite,
        transposed=file.transposed,
        shown_only=layout.shown_only,
        added=layout.added,
    )


def read_notes(path: Path) -> tuple[str, ...]:
    """Return the paragraphs of a notes file, one line each.

    `{name}` is replaced by the section of that name in `shared.md` of the same folder.
    """
    shared = path.with_name(SHARED_NOTES)
    sections: dict[str, str] = {}
    for part in _read_text(shared).split("## ")[1:] if shared.exists() else ():
        name, _, text = part.partition("\n")
        sections[name.strip()] = " ".join(text.split())

    def insert(match: re.Match[str]) -> str:
        if match[1] not in sections:
            raise UnknownNameError(
                f"{path.name}: " + describe_unknown(f"section of {SHARED_NOTES}", match[1], sections)
            )
        return sections[match[1]]

    paragraphs = re.split(r"\n\s*\n", _read_text(path).strip())
    return tuple(_SHARED_NOTE.sub(insert, " ".join(one.split())) for one in paragraphs if one.strip())


def transcribe(
    columns: Iterable[str],
    line: str,
    *,
    copied_from: str | None = None,
    remarks: Mapping[str, str] | None = None,
    where: str = "the line",
) -> dict[str, Printed]:
    """Return the numbers of a line of the paper by column.

    The line has one word per column, as the paper prints it (`47.4±4.8`, `<.001`, or `-` where there is none), or no
    words at all. Messages begin with `where`.
    """
    names, words, remarks = tuple(columns), line.split(), remarks or {}
    if words and len(words) != len(names):
        raise InputError(f"{where} has {len(words)} numbers for {len(names)} columns; write - where there is none")
    numbers = {}
    for column, word in zip(names, words, strict=False):
        if word == "-":
            continue
        value, _, deviation = word.removeprefix("<").partition("±")
        try:
            numbers[column] = Printed(
                value=float(value),
                deviation=float(deviation) if deviation else None,
                copied_from=copied_from,
                note=remarks.get(column),
                below=word.startswith("<"),
                decimals=len(value.partition(".")[2]),
            )
        except ValueError:
            raise InputError(f"{where}: {word!r} is not a number such as 47.4, 47.4±4.8, <.001 or -") from None
    for column in remarks:
        if column not in numbers:
            raise UnknownNameError(f"{where}: remark on " + describe_unknown("number", column, numbers))
    return numbers


def _load_columns(columns: object, file: _File, where: str) -> _Columns:
    """Return the columns of a study: its own, or those of a name in `columns.yaml`."""
    each: Mapping[str, Any] = file.each
    if isinstance(columns, str):
        shared = _read_yaml(SHARED_COLUMNS)
        if columns not in shared:
            raise UnknownNameError(f"{where}: " + describe_unknown("columns", columns, shared))
        each, columns = each or shared[columns].get("each", {}), shared[columns]["columns"]
    if not isinstance(columns, Mapping):
        raise InputError(f"{where}: columns must be a name in {SHARED_COLUMNS.name} or a mapping, not {columns!r}")
    if not all(isinstance(values, list) for values in each.values()):
        raise InputError(f"{where}: each must be options of the recipe and their values, not {dict(each)!r}")
    for option, values in each.items():
        if nested := [value for value in values if isinstance(value, list | dict)]:
            raise InputError(f"{where}: each: {option}: {nested[0]!r:.80} is not a single value")
    known = [value for values in each.values() for value in values]
    measures: dict[str, Measure] = {}
    runs: dict[str, str | None] = {}
    marked: dict[str, list[str]] = {"shown_only": [], "added": []}
    for name, keys in columns.items():
        own = {"quantity": "accuracy", **file.measure, **_as_mapping(keys, f"{where}: column {name!r}")}
        runs[name] = own.pop("run", None)
        if runs[name] is not None and runs[name] not in known:
            raise UnknownNameError(f"{where}: column {name!r}: " + describe_unknown("run", str(runs[name]), known))
        for key, names in marked.items():
            if own.pop(key, False):
                names.append(name)
        measures[name] = build(Measure, own, f"{where}: column {name!r}")
    flags = {key: tuple(names) for key, names in marked.items()}
    choices = {option: tuple(values) for option, values in each.items()}
    return _Columns(measures=measures, runs=runs, each=choices, **flags)


def _iterate_rows(file: _File, where: str) -> Iterator[tuple[str, _RowEntry]]:
    """Yield the rows by label, each with what its block says for all of them."""
    for block in ({"rows": file.rows}, *file.blocks):
        shared = {key: value for key, value in block.items() if key != "rows"}
        for label, keys in _as_mapping(block.get("rows"), f"{where}: rows").items():
            here = f"{where}: row {label!r}"
            merged = {**shared, **_as_mapping(keys, here)}
            both = [_as_mapping(part.get("overrides"), f"{here}: overrides") for part in (shared, keys or {})]
            yield label, build(_RowEntry, {**merged, "overrides": {**both[0], **both[1]}}, here)


def _build_row(label: str, entry: _RowEntry, layout: _Columns, where: str) -> Row:
    if (entry.recipe is None) == (entry.not_run is None):
        raise InputError(f"{where} needs a recipe, or else not_run with the reason")
    evaluation = build(Evaluation, entry.evaluation, f"{where}: evaluation") if entry.evaluation else None
    # One run for each combination of the values of `each`, or a single one; none behind a row that is not run.
    choices = [dict(zip(layout.each, values, strict=True)) for values in product(*layout.each.values())]
    runs = [
        RunSpec(
            recipe=entry.recipe,
            options={**entry.options, **choice},
            overrides={name: _pick(given, choice, layout.each) for name, given in entry.overrides.items()},
            evaluation=evaluation,
            analyses=entry.analyses,
            may_diverge=entry.may_diverge,
        )
        for choice in choices
        if entry.recipe is not None
    ]
    printed = transcribe(
        layout.printed, entry.paper, copied_from=entry.copied_from, remarks=entry.remarks, where=f"{where}: paper"
    )
    cells = {}
    for column, measure in layout.measures.items():
        only = layout.runs[column]
        chosen = zip(runs, choices, strict=False)  # no runs in a row that is not run
        behind = tuple(run for run, choice in chosen if only in (None, *choice.values()))
        if behind or column in printed:
            cells[column] = Cell(measure=measure, runs=behind, printed=printed.get(column))
    not_run = None if entry.not_run is None else f"not run: {entry.not_run}"
    return Row(label=label, cells=cells, group=entry.group, not_run=not_run, found_on_targets=entry.found_on_targets)


def _pick(given: Any, choice: Mapping[str, str], each: Mapping[str, tuple[str, ...]]) -> Any:
    """Return an override of one run: a mapping from every value of an option in `each` has one for each run."""
    for option, values in each.items():
        if isinstance(given, Mapping) and set(given) == set(values):
            return given[choice[option]]
    return given


def _build_comparisons(file: _File, rows: Mapping[str, Row], layout: _Columns, where: str) -> Iterator[Comparison]:
    for number, keys in enumerate(file.comparisons, start=1):
        here = f"{where}: comparison {number}"
        against = keys.get("against", ())
        own = {**keys, "against": [against] if isinstance(against, str) else against}
        entry: _ComparisonEntry = build(_ComparisonEntry, own, here)
        for label in (entry.row, *entry.against):
            if label not in rows:
                raise UnknownNameError(f"{here}: " + describe_unknown("row", label, rows))
        columns = layout.printed
        printed = transcribe(columns, entry.p_values, remarks=entry.remarks, where=f"{here}: p_values")
        differences = transcribe(columns, entry.differences, where=f"{here}: differences")
        for other in entry.against:
            yield Comparison(row=entry.row, against=other, printed=printed, differences=differences)


def _as_mapping(value: Any, where: str) -> Mapping[str, Any]:
    if value is not None and not isinstance(value, Mapping):
        raise InputError(f"{where} must be a mapping of keys to values, not {value!r}")
    return value or {}


def _read_yaml(path: Path) -> Mapping[str, Any]:
    values = read_yaml(path, "study", aliases=path.is_relative_to(Path(__file__).parent))
    if not isinstance(values, dict):
        raise InputError(f"{path}: not a mapping of keys to values")
    return values


def _read_text(path: Path) -> str:
    try:
        return read_bytes(path, MAX_YAML).decode("utf-8")
    except InputError:
        raise
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read ({getattr(error, 'strerror', None) or error})") from None


class _Table:
    # An entry of the registry: called, it returns the study; its docstring is the summary in the file.
    def __init__(self, path: Path) -> None:
        self._path = path

    def __call__(self) -> Study:
        return load_study(self._path, notes=NOTES)

    @property
    def __doc__(self) -> str:  # type: ignore[override]
        return str(_read_yaml(self._path).get("summary", ""))


for _path in sorted(TABLES.glob("*.yaml")):
    STUDIES.register(_path.stem)(_Table(_path))
