"""A folder of runs as a study of its own: what is in it, recipe by domain, without the paper's numbers."""

import glob
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from asrnorm.core.commit import shorten_commit
from asrnorm.core.config import RunConfig, content_hash, load_config
from asrnorm.core.errors import AsrnormError, InputError
from asrnorm.core.results import RunResult, read_result
from asrnorm.reporting.row_label import label_rows
from asrnorm.studies import DIVERGENCE_FILE, Cell, Measure, Row, RunSpec, Study
from asrnorm.studies.collect import CellKey, Collected, Measured, RunRecord, warn_of_scales
from asrnorm.studies.measure import describe_missing, find_missing, read_measure
from asrnorm.studies.statistics import FEWEST, summarize
from asrnorm.studies.store import has_same_numbers, read_origin

AVERAGE, SOURCE = "unseen, average", "source"
DASHED = "A dash: not among the domains that the runs of the row are scored on."
_MOST_COLUMNS = 30  # domains beyond these are shown by their average and in the list of runs
_MOST_NAMES = 5  # in a line on what is left out


@dataclass(frozen=True)
class _Found:
    folder: Path
    config: RunConfig
    result: RunResult


def collect_folder(folder: Path) -> Collected:
    """Return the finished runs of a folder, or the one run that it is, as a table of recipe by domain.

    Runs that differ in nothing but the seed share a row. CIFAR-10-C is shown by level. Runs that are not done, have
    diverged or lie deeper are left out, with a warning.

    Raises:
        InputError: no such folder, or no finished run in it.
    """
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder, and no study of that name; asrnorm list studies shows them")
    folders, left_out = _find_runs(folder)
    found, problems = [], []
    for path in folders:
        try:
            result = replace(read_result(path / "result.json"), origin=read_origin(path / "env.json"))
            found.append(_Found(path, load_config(path / "config.yaml"), result))
        except AsrnormError as error:
            problems.append(str(error))
    if not found:
        reason = f" ({problems[0]})" if problems else ""
        advice = "; ".join(left_out) or "asrnorm train makes one"
        raise InputError(f"{folder}: no finished run is in it{reason}; {advice}")
    found, twice = _drop_duplicates(found)
    problems += twice
    groups: dict[str, list[_Found]] = {}
    for one in found:
        groups.setdefault(content_hash(replace(one.config, seed=0)), []).append(one)
    measures = _measures([one.result for one in found])
    gone = {
        column: frozenset[str]().union(*(find_missing(measure, one.result) for one in found))
        for column, measure in measures.items()
    }
    labels = label_rows({key: members[0].config for key, members in groups.items()})
    rows, cells, no_data = _fill({labels[key]: members for key, members in groups.items()}, measures, gone)
    scales = list(dict.fromkeys(one.result.scale for one in found))
    selections = dict.fromkeys(one.result.selection for one in found)
    count = len(found)
    has_dash = any(len(row.cells) < len(measures) for row in rows)
    study = Study(
        name="report",
        title=f"Runs in {folder.resolve().name}",
        caption=f"{count} finished run{'s' * (count != 1)}; accuracy in %, selection {', '.join(selections)}.",
        columns=tuple(measures),
        rows=rows,
        suite=found[0].config.suite.name,
        figures=("levels",) if "Level 1" in measures else (),
    )
    return Collected(
        study=study,
        scale=", ".join(scales),
        cells=cells,
        printed={},
        tests=(),
        missing=(),
        warnings=(*_warn(found, scales, gone[AVERAGE]), *left_out, *problems),
        footnotes=(*describe_missing(study, gone), *([DASHED] if has_dash else [])),
        runs=folder,
        no_data=no_data,
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
    return sorted(done), [*_tell_left_out(sorted(begun - lost - done), sorted(lost - done), deeper)]


def _tell_left_out(begun: Sequence[Path], lost: Sequence[Path], deeper: Mapping[Path, int]) -> Iterator[str]:
    if begun:
        words, them = ("run is", "it") if len(begun) == 1 else ("runs are", "them")
        names = ", ".join(_cut([path.resolve().name for path in begun]))
        yield f"{len(begun)} {words} not done and left out: {names}; asrnorm train goes on with {them}"
    if lost:
        words = "run diverged and is" if len(lost) == 1 else "runs diverged and are"
        names = ", ".join(_cut([path.resolve().name for path in lost]))
        yield f"{len(lost)} {words} left out: {names}"
    if deeper:
        count = sum(deeper.values())
        words, them = ("run lies", "it") if count == 1 else ("runs lie", "them")
        places = [shlex.quote(str(path)) for path in sorted(deeper)]
        several = "report these folders on their own"
        advice = several if len(places) > _MOST_NAMES else f"asrnorm report {' '.join(places)} shows {them}"
        yield f"{count} {words} deeper, in {', '.join(_cut(places))}: {advice}"


def _cut(names: list[str]) -> list[str]:
    return names if len(names) <= _MOST_NAMES else [*names[:_MOST_NAMES], "..."]


def _drop_duplicates(found: Sequence[_Found]) -> tuple[list[_Found], list[str]]:
    """Return one run of each config and seed, the first by name, and a line on every other."""
    kept: dict[str, _Found] = {}
    lines = []
    for one in found:
        first = kept.setdefault(content_hash(one.config), one)
        if first is not one:
            numbers = "the same numbers" if has_same_numbers(first.result, one.result) else "other numbers"
            names = f"{one.folder.name}: the config and seed of {first.folder.name}, with {numbers}"
            lines.append(f"{names}; left out")
    return list(kept.values()), lines


def _specify(config: RunConfig) -> RunSpec:
    options = {key: value for key, value in config.suite.args.items() if key in ("source", "target") and value}
    overrides = {"config": content_hash(replace(config, seed=0)), "norm": config.norm.name}
    return RunSpec(recipe=config.recipe, options=options, overrides=overrides)


def _measures(results: Iterable[RunResult]) -> dict[str, Measure]:
    names = list(dict.fromkeys(domain.name for result in results for domain in result.domains))
    levels = sorted({name.partition("/")[2] for name in names})
    if names and all(re.fullmatch(r".+/[1-5]", name) for name in names):
        columns = {f"Level {level}": Measure(quantity="accuracy", domains=(f"*/{level}",)) for level in levels}
    else:
        columns = {
            # A folder of one's own may be called `a*`, which as a pattern is many.
            f"{name} (domain)" if name in (SOURCE, AVERAGE) else name: Measure(
                quantity="accuracy", domains=(glob.escape(name),)
            )
            for name in names[:_MOST_COLUMNS]
        }
    return {SOURCE: Measure(quantity="accuracy", on_source=True), **columns, AVERAGE: Measure(quantity="accuracy")}


def _fill(
    groups: Mapping[str, Sequence[_Found]], measures: Mapping[str, Measure], gone: Mapping[str, frozenset[str]]
) -> tuple[tuple[Row, ...], dict[CellKey, Measured], frozenset[CellKey]]:
    """Return the rows, what was measured, and where there were no images; a row has no cell for domains of others."""
    rows: list[Row] = []
    found: dict[CellKey, Measured] = {}
    no_data: set[CellKey] = set()
    for label, members in groups.items():
        spec, cells = _specify(members[0].config), {}
        for column, measure in measures.items():
            measured = _measure(measure, members, spec, gone[column])
            if measured is not None:
                found[label, column] = measured
            elif any(find_missing(measure, one.result) for one in members):
                no_data.add((label, column))
            else:
                continue
            cells[column] = Cell(measure=measure, runs=(spec,))
        rows.append(Row(label=label, cells=cells))
    return tuple(rows), found, frozenset(no_data)


def _measure(measure: Measure, members: Sequence[_Found], spec: RunSpec, without: frozenset[str]) -> Measured | None:
    values, records = {}, []
    for one in sorted(members, key=lambda member: member.result.seed):
        value = read_measure(measure, one.result, without)
        if value is not None:
            values[one.result.seed] = value
            records.append(_record(one, spec))
    if not values:
        return None
    summary = summarize(list(values.values()))
    return Measured(
        seeds=tuple(values),
        values=tuple(values.values()),
        records=tuple(records),
        mean=summary.mean,
        deviation=summary.deviation,
        n=summary.n,
    )


def _record(one: _Found, spec: RunSpec) -> RunRecord:
    result = one.result
    return RunRecord(
        spec=spec,
        seed=result.seed,
        scale=result.scale,
        config_hash=result.config_hash,
        commit=result.commit,
        result=result,
        folder=one.folder,
    )


def _warn(found: Sequence[_Found], scales: Sequence[str], gone: frozenset[str]) -> list[str]:
    commits = list(dict.fromkeys(commit for one in found for commit in one.result.commits))
    warnings = list(warn_of_scales(scales))
    if len({frozenset(domain.name for domain in one.result.domains) - gone for one in found}) > 1:
        warnings.append("runs were scored on different domains, so their averages cannot be compared")
    if len(scales) > 1:
        warnings.append(f"the table mixes runs of {len(scales)} scales: {', '.join(scales)}")
    selections = list(dict.fromkeys(one.result.selection for one in found))
    if len(selections) > 1:
        warnings.append(f"the table mixes runs selected by {len(selections)} rules: {', '.join(selections)}")
    if len(commits) > 1:
        names = ", ".join(map(shorten_commit, commits))
        warnings.append(f"the table mixes runs of {len(commits)} commits: {names}")
    seeds: dict[str, set[int]] = {}
    for one in found:
        seeds.setdefault(content_hash(replace(one.config, seed=0)), set()).add(one.result.seed)
    if min(len(some) for some in seeds.values()) < FEWEST:
        warnings.append(f"some rows have fewer than {FEWEST} seeds: an illustration, not a result")
    return warnings
