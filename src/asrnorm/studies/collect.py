"""Collects the results of a study: every cell over its seeds, beside the paper's numbers.

A result belongs to a cell if the hash of its config is that of the cell's run at the requested scale and seed. Results
at other scales and seeds are never shown; warnings count them.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import get_args

from asrnorm.core.config import Scale, content_hash
from asrnorm.core.results import RunResult
from asrnorm.core.settings import shorten_commit
from asrnorm.studies.measure import describe_missing, find_missing, read_measure, restrict_differences, restrict_printed
from asrnorm.studies.plan import Task, iterate_specs, plan
from asrnorm.studies.spec import DIVERGENCE_FILE, Cell, Printed, RunSpec, Study, scored_hash
from asrnorm.studies.statistics import FEWEST, Summary, TestResult, compare, correct_holm, summarize
from asrnorm.studies.store import Store, StoredResult, find_results

CellKey = tuple[str, str]  # row label, column
_SMALLER_SCALES = {
    "smoke": "smoke scale only shows that everything runs; its numbers say nothing about any method",
    "short": "short scale has fewer steps than the paper, which alone may explain a difference from its numbers",
}


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """One result behind a cell; `folder` is its run folder, for a kept result its details folder or `None`."""

    spec: RunSpec
    seed: int
    result: RunResult
    folder: Path | None


@dataclass(frozen=True, kw_only=True)
class Measured(Summary):
    """One cell over its seeds: `values` in the cell's unit, in the order of `seeds`, and the results behind them."""

    seeds: tuple[int, ...]
    values: tuple[float, ...]
    records: tuple[RunRecord, ...]

    @classmethod
    def over_seeds(cls, values: Mapping[int, float], records: Iterable[RunRecord]) -> "Measured":
        """Return a cell from its values by seed."""
        numbers = tuple(values.values())
        return cls(seeds=tuple(values), values=numbers, records=tuple(records), **vars(summarize(numbers)))

    @property
    def by_seed(self) -> dict[int, float]:
        """The values by seed."""
        return dict(zip(self.seeds, self.values, strict=True))


@dataclass(frozen=True, kw_only=True)
class Collected:
    """A study with its results; `differences` are the printed differences of two rows, by both labels and column."""

    study: Study
    scale: str
    cells: Mapping[CellKey, Measured]  # cells without results are absent
    printed: Mapping[CellKey, Printed]  # the paper's numbers; averages are over the available domains
    tests: tuple[TestResult, ...]  # of the study's comparisons, column by column
    missing: tuple[Task, ...]  # the tasks that are not done
    warnings: tuple[str, ...]  # what a reader must know before trusting the table
    footnotes: tuple[str, ...] = ()  # those of the study, and which domains are missing
    diverged: Mapping[CellKey, tuple[int, ...]] = field(default_factory=dict)  # seeds, where that is an outcome
    runs: Path | None = None  # the folder of run folders; it has the logs of diverged runs
    details: Mapping[str, Path] = field(default_factory=dict)  # details folders of runs, by the hash of their config
    differences: Mapping[tuple[str, str, str], Printed] = field(default_factory=dict)
    no_data: frozenset[CellKey] = frozenset()  # cells whose runs are finished but lack the images of the column
    is_folder: bool = False  # a folder of any runs, which no paper has numbers of


def collect(
    study: Study,
    *,
    runs: Path,
    kept: Path | None = None,
    scale: Scale = "paper",
    seeds: Sequence[int] | None = None,
    store: Store | None = None,
) -> Collected:
    """Return the results of a study, by default of the seeds 0 up to its number of seeds.

    They are in the run folders in `runs` and the files `*.jsonl` in `kept`; a run folder takes precedence. `store` has
    the contents of both, if they have been read already.

    Example:
        >>> from asrnorm.studies import get_study
        >>> found = collect(get_study("table3"), runs=Path("nowhere"), seeds=[0])
        >>> len(found.cells), len(found.missing), found.printed["RSC", "Photo"].value
        (0, 28, 41.6)
    """
    chosen = tuple(range(study.seeds) if seeds is None else seeds)
    store = find_results(runs, kept) if store is None else store
    tasks = plan(study, seeds=chosen, scale=scale, runs=runs, store=store).tasks
    records = dict(_find_records(study, store, chosen, scale))
    gone = {column: _find_gone(study, column, records) for column in study.columns}
    cells = dict(_measure_cells(study, records, gone))
    printed = {
        (row.label, column): restrict_printed(row, column, gone)
        for row in study.rows
        for column, cell in row.cells.items()
        if cell.printed is not None
    }
    return Collected(
        study=study,
        scale=scale,
        cells=cells,
        printed=printed,
        tests=_test(study, cells),
        missing=tuple(task for task in tasks if not _has_result(task, store)),
        warnings=tuple(_warn(study, cells, store, chosen, scale)),
        footnotes=(*study.footnotes, *describe_missing(study, gone)),
        diverged=dict(_find_diverged(study, tasks)),
        runs=runs,
        details=store.details,
        differences=restrict_differences(study, printed, gone),
        no_data=frozenset(key for key in records if key not in cells and gone[key[1]]),
    )


def warn_of_scales(scales: Collection[str]) -> Iterator[str]:
    """Yield a warning for each scale that is smaller than the paper's."""
    return (line for scale, line in _SMALLER_SCALES.items() if scale in scales)


def _has_result(task: Task, store: Store) -> bool:
    """Return whether a task is done or its result is known, even if other files of its run are gone."""
    return task.state in ("done", "kept") or (task.kind != "analysis" and content_hash(task.config) in store.results)


def _look_up(store: Store, spec: RunSpec, seed: int, scale: Scale) -> StoredResult | None:
    found = store.results.get(scored_hash(spec, seed, scale))
    return found if found is not None and found.result.scale == scale else None


def _run_cells(study: Study) -> Iterator[tuple[str, str, Cell]]:
    for row in study.rows:
        for column, cell in row.cells.items():
            if cell.runs:
                yield row.label, column, cell


def _find_records(
    study: Study, store: Store, seeds: Sequence[int], scale: Scale
) -> Iterator[tuple[CellKey, list[RunRecord]]]:
    """Yield for every cell the results of the seeds at which all its runs are finished."""
    for row, column, cell in _run_cells(study):
        records: list[RunRecord] = []
        for seed in seeds:
            found = [(spec, _look_up(store, spec, seed, scale)) for spec in cell.runs]
            done = [RunRecord(spec=spec, seed=seed, result=one.result, folder=one.folder) for spec, one in found if one]
            if len(done) == len(found):
                records += done
        if records:
            yield (row, column), records


def _find_gone(study: Study, column: str, records: Mapping[CellKey, list[RunRecord]]) -> frozenset[str]:
    """Return the domains that any result behind a column lacks; no row of the column is averaged over them."""
    behind = ((row.cells[column], record) for row in study.rows for record in records.get((row.label, column), ()))
    return frozenset().union(*(find_missing(cell.measure, record.result) for cell, record in behind))


def _measure_cells(
    study: Study, records: Mapping[CellKey, list[RunRecord]], gone: Mapping[str, frozenset[str]]
) -> Iterator[tuple[CellKey, Measured]]:
    for row, column, cell in _run_cells(study):
        parts: dict[int, list[float | None]] = defaultdict(list)
        for record in records.get((row, column), ()):
            parts[record.seed].append(read_measure(cell.measure, record.result, gone[column]))
        values = {
            seed: sum(numbers) / len(numbers)
            for seed, read in parts.items()
            if len(numbers := [value for value in read if value is not None]) == len(read)
        }
        if values:
            behind = (record for record in records[row, column] if record.seed in values)
            yield (row, column), Measured.over_seeds(values, behind)


def _test(study: Study, cells: Mapping[CellKey, Measured]) -> tuple[TestResult, ...]:
    measures = {(row, column): cell.measure for row, column, cell in _run_cells(study)}
    tests = []
    for pair in study.comparisons:
        for column in (one for one in study.columns if one not in study.added):
            ours, theirs = cells.get((pair.row, column)), cells.get((pair.against, column))
            if ours is None or theirs is None or measures[pair.row, column].quantity == "parameters":
                continue
            better = measures[pair.row, column].better
            names = {"row": pair.row, "against": pair.against, "column": column}
            tests.append(compare(ours.by_seed, theirs.by_seed, better=better, **names))
    corrected = correct_holm([test.pooled for test in tests])
    return tuple(replace(test, holm=p) for test, p in zip(tests, corrected, strict=True))


def _find_diverged(study: Study, tasks: Sequence[Task]) -> Iterator[tuple[CellKey, tuple[int, ...]]]:
    diverged = {content_hash(task.config): task.seed for task in tasks if task.output.name == DIVERGENCE_FILE}
    if not diverged:
        return
    scale = tasks[0].config.scale
    for row, column, cell in _run_cells(study):
        hashes = {scored_hash(spec, seed, scale) for spec in cell.runs for seed in set(diverged.values())}
        if seeds := tuple(sorted(diverged[identity] for identity in hashes & set(diverged))):
            yield (row, column), seeds


def _warn(
    study: Study, cells: Mapping[CellKey, Measured], store: Store, seeds: Sequence[int], scale: Scale
) -> Iterator[str]:
    if cells:
        yield from warn_of_scales([scale])
    results = [record.result for cell in cells.values() for record in cell.records]
    commits = sorted({commit for result in results for commit in result.commits})
    if len(commits) > 1:
        names = ", ".join(map(shorten_commit, commits))
        yield f"the table mixes runs of {len(commits)} commits: {names}"
    elif commits and commits[0].endswith("+"):
        yield f"the runs were made from files that differ from commit {shorten_commit(commits[0]).removesuffix('+')}"
    editions = sorted({result.origin["edition"] for result in results if "edition" in result.origin})
    if len(editions) > 1:
        yield f"the table mixes runs scored on {len(editions)} editions of the test images: {'; '.join(editions)}"
    counts = sorted({cell.n for cell in cells.values()})
    if counts and counts[0] < FEWEST:
        yield f"some cells have fewer than {FEWEST} seeds and so no p-value"
    if len(counts) > 1:
        yield f"the number of seeds per cell varies from {counts[0]} to {counts[-1]}"
    yield from _warn_of_other_scales(study, store, seeds, scale)
    yield from store.problems


def _warn_of_other_scales(study: Study, store: Store, seeds: Sequence[int], scale: Scale) -> Iterator[str]:
    """Count the results at other scales that are missing at this one, and the results of further seeds."""

    def say(hashes: set[str], what: str, where: str = "") -> Iterator[str]:
        one = len(hashes) == 1
        if hashes:
            subject, rest = ("result", "exists") if one else ("results", "exist")
            yield f"{len(hashes)} {subject} {what} {rest}{where}; {'it is' if one else 'they are'} not shown"

    specs = list(iterate_specs(study)) if store.results else []
    for other in get_args(Scale):
        if other != scale:
            pairs = [(spec, seed) for spec in specs for seed in seeds if _look_up(store, spec, seed, scale) is None]
            found = [_look_up(store, spec, seed, other) for spec, seed in pairs]
            hashes = {one.result.config_hash for one in found if one is not None}
            yield from say(hashes, "missing here", f" at scale {other!r}")
    recipes = {spec.recipe for spec in specs}
    results = [found.result for found in store.results.values()]
    known = {result.seed for result in results if result.scale == scale and result.recipe in recipes}
    further = [_look_up(store, spec, seed, scale) for seed in known - set(seeds) for spec in specs]
    yield from say({one.result.config_hash for one in further if one is not None}, "of further seeds")
