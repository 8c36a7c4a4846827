"""A folder of runs as a study of its own: a row for each recipe and its settings, a column for each domain."""

import glob
import json
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from asrnorm.core.config import RunConfig, content_hash, load_config, to_mapping
from asrnorm.core.errors import AsrnormError, InputError, count_of, shorten_list
from asrnorm.core.hashing import decisive
from asrnorm.core.results import RunResult, read_result
from asrnorm.core.settings import shorten_commit
from asrnorm.studies import DIVERGENCE_FILE, Cell, Measure, Row, RunSpec, Study
from asrnorm.studies.collect import CellKey, Collected, Measured, RunRecord, warn_of_scales
from asrnorm.studies.measure import describe_missing, find_missing, read_measure
from asrnorm.studies.statistics import FEWEST
from asrnorm.studies.store import has_same_numbers, read_origin

AVERAGE, SOURCE = "unseen, average", "source"
DASHED = "A dash: not among the domains that the runs of the row are scored on."
_MOST_COLUMNS = 30  # domains beyond these are shown by their average and in the list of runs
_MOST_NAMES = 5  # in a line on what is left out
_MOST_FIELDS = 3  # in a label; one with more is harder to read than a hash
_ABSENT = object()

Fields = dict[str, Any]


@dataclass(frozen=True)
class _Run:
    folder: Path
    config: RunConfig
    result: RunResult

    @property
    def row_key(self) -> str:
        """The hash of all that runs of one row share: everything but the seed."""
        return str(content_hash(replace(self.config, seed=0)))


def collect_folder(folder: Path) -> Collected:
    """Return the finished runs in a folder, or of one run's folder, as a table of recipe by domain.

    Runs that differ only in the seed share a row. CIFAR-10-C is shown by level. Runs that are not done, have diverged
    or lie deeper are left out, with a warning; without any finished run, `InputError` is raised.
    """
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder, and no study of that name; asrnorm list studies shows them")
    folders, left_out = _find_runs(folder)
    found, problems = [], []
    for path in folders:
        try:
            result = replace(read_result(path / "result.json"), origin=read_origin(path / "env.json"))
            found.append(_Run(path, load_config(path / "config.yaml"), result))
        except AsrnormError as error:
            problems.append(str(error))
    if not found:
        reason = f" ({problems[0]})" if problems else ""
        advice = "; ".join(left_out) or "asrnorm train makes one"
        raise InputError(f"{folder}: no finished run is in it{reason}; {advice}")
    runs, duplicates = _drop_duplicates(found)
    groups: dict[str, list[_Run]] = {}
    for run in runs:
        groups.setdefault(run.row_key, []).append(run)
    measures = _choose_measures(run.result for run in runs)
    absent = {
        column: frozenset[str]().union(*(find_missing(measure, run.result) for run in runs))
        for column, measure in measures.items()
    }
    labels = label_rows({key: members[0].config for key, members in groups.items()})
    rows, cells, no_data = _fill({labels[key]: members for key, members in groups.items()}, measures, absent)
    scales, selections = (
        list(dict.fromkeys(getattr(run.result, name) for run in runs)) for name in ("scale", "selection")
    )
    warnings = [*warn_of_scales(scales), *_warn(runs, groups, scales, selections, absent[AVERAGE])]
    study = Study(
        name="report",
        title=f"Runs in {folder.resolve().name}",
        caption=f"{count_of(len(runs), 'finished run')}; accuracy in %, selection {', '.join(selections)}.",
        columns=tuple(measures),
        rows=rows,
        suite=runs[0].config.suite.name,
        figures=("levels",) if "Level 1" in measures else (),
    )
    has_dash = any(len(row.cells) < len(measures) for row in rows)
    return Collected(
        study=study,
        scale=", ".join(scales),
        cells=cells,
        printed={},
        tests=(),
        missing=(),
        warnings=(*warnings, *left_out, *problems, *duplicates),
        footnotes=(*describe_missing(study, absent), *([DASHED] if has_dash else [])),
        runs=folder,
        no_data=no_data,
        is_folder=True,
    )


def _find_runs(folder: Path) -> tuple[list[Path], list[str]]:
    """Return the folders of finished runs, and a line on each kind of run that is left out."""
    is_run = any((folder / name).is_file() for name in ("result.json", DIVERGENCE_FILE, "env.json"))
    done, lost, begun = (
        {path.parent for path in folder.glob(name if is_run else f"*/{name}")}
        for name in ("result.json", DIVERGENCE_FILE, "config.yaml")
    )
    nested = Counter(path.parent.parent for path in folder.glob("*/*/result.json"))
    deeper = {path: count for path, count in nested.items() if path not in done | lost | begun}
    lines = []
    if unfinished := begun - lost - done:
        words, them = ("run is", "it") if len(unfinished) == 1 else ("runs are", "them")
        lines.append(
            f"{len(unfinished)} {words} not done and left out: {_list_names(unfinished)}; asrnorm train resumes {them}"
        )
    if diverged := lost - done:
        words = "run diverged and is" if len(diverged) == 1 else "runs diverged and are"
        lines.append(f"{len(diverged)} {words} left out: {_list_names(diverged)}")
    if deeper:
        count = sum(deeper.values())
        words, them = ("run lies", "it") if count == 1 else ("runs lie", "them")
        folders = [shlex.quote(str(path)) for path in sorted(deeper)]
        command = f"asrnorm report {' '.join(folders)} shows {them}"
        advice = "report these folders on their own" if len(folders) > _MOST_NAMES else command
        lines.append(f"{count} {words} deeper, in {shorten_list(folders, _MOST_NAMES)}: {advice}")
    return sorted(done), lines


def _list_names(folders: Iterable[Path]) -> str:
    return shorten_list([path.resolve().name for path in sorted(folders)], _MOST_NAMES)


def _drop_duplicates(found: Sequence[_Run]) -> tuple[list[_Run], list[str]]:
    """Return one run of each config and seed, the first by name, and a line on every other."""
    kept: dict[str, _Run] = {}
    lines = []
    for run in found:
        first = kept.setdefault(content_hash(run.config), run)
        if first is not run:
            numbers = "the same numbers" if has_same_numbers(first.result, run.result) else "other numbers"
            lines.append(f"{run.folder.name}: the config and seed of {first.folder.name}, with {numbers}; left out")
    return list(kept.values()), lines


def _choose_measures(results: Iterable[RunResult]) -> dict[str, Measure]:
    names = list(dict.fromkeys(domain.name for result in results for domain in result.domains))
    if names and all(re.fullmatch(r".+/[1-5]", name) for name in names):
        levels = sorted({name.rpartition("/")[2] for name in names})
        columns = {f"Level {level}": Measure(quantity="accuracy", domains=(f"*/{level}",)) for level in levels}
    else:
        titles = {name: f"{name} (domain)" if name in (SOURCE, AVERAGE) else name for name in names[:_MOST_COLUMNS]}
        # A folder of one's own may be called `a*`, which as a pattern matches many.
        patterns = {title: (glob.escape(name),) for name, title in titles.items()}
        columns = {title: Measure(quantity="accuracy", domains=domains) for title, domains in patterns.items()}
    # The average first: on a phone only the first columns are seen.
    return {AVERAGE: Measure(quantity="accuracy"), SOURCE: Measure(quantity="accuracy", on_source=True), **columns}


def _fill(
    groups: Mapping[str, Sequence[_Run]], measures: Mapping[str, Measure], absent: Mapping[str, frozenset[str]]
) -> tuple[tuple[Row, ...], dict[CellKey, Measured], frozenset[CellKey]]:
    """Return rows, measured cells, and cells without images; a row has no cell for the domains of other suites."""
    rows: list[Row] = []
    found: dict[CellKey, Measured] = {}
    no_data: set[CellKey] = set()
    for label, members in groups.items():
        spec, cells = _specify(members[0]), {}
        for column, measure in measures.items():
            measured = _measure(measure, members, spec, absent[column])
            if measured is not None:
                found[label, column] = measured
            elif any(find_missing(measure, run.result) for run in members):
                no_data.add((label, column))
            else:
                continue
            cells[column] = Cell(measure=measure, runs=(spec,))
        rows.append(Row(label=label, cells=cells))
    return tuple(rows), found, frozenset(no_data)


def _specify(run: _Run) -> RunSpec:
    options = {key: value for key, value in run.config.suite.args.items() if key in ("source", "target") and value}
    overrides = {"config": run.row_key, "norm": run.config.norm.name}
    return RunSpec(recipe=run.config.recipe, options=options, overrides=overrides)


def _measure(measure: Measure, members: Sequence[_Run], spec: RunSpec, without: frozenset[str]) -> Measured | None:
    values, records = {}, []
    for run in sorted(members, key=lambda member: member.result.seed):
        result = run.result
        value = read_measure(measure, result, without)
        if value is not None:
            values[result.seed] = value
            records.append(RunRecord(spec=spec, seed=result.seed, result=result, folder=run.folder))
    return Measured.over_seeds(values, records) if values else None


def _warn(
    runs: Sequence[_Run],
    groups: Mapping[str, Sequence[_Run]],
    scales: Sequence[str],
    selections: Sequence[str],
    absent: frozenset[str],
) -> Iterator[str]:
    if len({frozenset(domain.name for domain in run.result.domains) - absent for run in runs}) > 1:
        yield "runs were scored on different domains, so their averages cannot be compared"
    if len(scales) > 1:
        yield f"the table mixes runs of {len(scales)} scales: {', '.join(scales)}"
    if len(selections) > 1:
        yield f"the table mixes runs selected by {len(selections)} rules: {', '.join(selections)}"
    commits = list(dict.fromkeys(commit for run in runs for commit in run.result.commits))
    if len(commits) > 1:
        yield f"the table mixes runs of {len(commits)} commits: {', '.join(map(shorten_commit, commits))}"
    if min(len({run.result.seed for run in members}) for members in groups.values()) < FEWEST:
        yield f"some rows have fewer than {FEWEST} seeds: an illustration, not a result"


def label_rows(configs: Mapping[str, RunConfig]) -> dict[str, str]:
    """Return a label for each config, by its hash: recipe and source, scale where it varies, oracle where that selects.

    Rows of one recipe and source name the fields in which they differ, as `--set` writes them; where those are many,
    only the fields in which they differ from most; and where those are many too, their hash.
    """
    mixed = len({config.scale for config in configs.values()}) > 1
    texts = {key: _describe(config, with_scale=mixed) for key, config in configs.items()}
    clashes: dict[str, list[str]] = {}
    for key, text in texts.items():
        clashes.setdefault(text, []).append(key)
    labels = dict(texts)
    for text, keys in clashes.items():
        if len(keys) > 1:
            rows = [_flatten(configs[key]) for key in keys]
            settings = _find_differences(rows)
            if any(len(words) > _MOST_FIELDS for words in settings):
                settings = _find_differences(rows, from_most=True)
            for key, words in zip(keys, settings, strict=True):
                named = len(words) <= _MOST_FIELDS and settings.count(words) == 1
                labels[key] = ", ".join([text, *words]) if named else f"{text} [{key}]"
    return labels


def _describe(config: RunConfig, *, with_scale: bool) -> str:
    source = config.suite.args.get("source")
    names = source if isinstance(source, str) else ", ".join(map(str, source or ()))
    words = [config.recipe, f"from {names}" if names else "", f"({config.scale})" if with_scale else ""]
    words += ["(oracle)"] if config.selection == "oracle" else []  # never to be taken for an honest row
    return " ".join(word for word in words if word)


def _flatten(config: RunConfig) -> Fields:
    """Return what changes numbers by the names that `--set` takes: `method`, `method.interval`, `optim.lr`."""
    fields: Fields = {}
    for name, value in decisive(to_mapping(replace(config, seed=0))).items():
        if not isinstance(value, dict):
            fields[name] = value
        elif set(value) == {"name", "args"}:
            fields[name] = value["name"]
            fields |= {f"{name}.{option}": part for option, part in value["args"].items()}
        else:
            fields |= {f"{name}.{part}": one for part, one in value.items()}
    return fields


def _find_differences(rows: Sequence[Fields], *, from_most: bool = False) -> list[list[str]]:
    """Return for each row the settings in which it differs from another; options of a choice among equal choices.

    With `from_most`, a value that more rows have than any other is left out.
    """
    names = list(dict.fromkeys(name for row in rows for name in row))
    differences = []
    for row in rows:
        words = []
        for name in names:
            choice = name.partition(".")[0]
            peers = [other for other in rows if other.get(choice) == row.get(choice)] if choice != name else rows
            value = _write(row.get(name, _ABSENT))
            (commonest, most), *others = Counter(_write(other.get(name, _ABSENT)) for other in peers).most_common(2)
            is_usual = from_most and value == commonest and others and others[0][1] < most
            if others and not is_usual:
                words.append(f"{name}={value}")
        differences.append(words)
    return differences


def _write(value: Any) -> str:
    if value is _ABSENT:
        return "default"
    return value if isinstance(value, str) else json.dumps(value)
