"""What was found for a study: every cell over the seeds, beside what the paper prints there.

A result belongs to a cell when the hash of its config is that of the cell's run at the scale and seed asked for, so
that no result of another scale or setting can slip in.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from asrnorm.core.commit import shorten_commit
from asrnorm.core.config import Scale, content_hash
from asrnorm.core.results import RunResult
from asrnorm.studies.domain import describe_missing, find_missing, read_measure, restrict_differences, restrict_printed
from asrnorm.studies.elsewhere import look_up, tell_elsewhere
from asrnorm.studies.plan import Task, plan
from asrnorm.studies.significance import FEWEST, TestResult, compare, correct_holm, summarize
from asrnorm.studies.spec import DIVERGENCE_FILE, Cell, Printed, RunSpec, Study, scored_hash
from asrnorm.studies.store import Found, Store, find_results

Place = tuple[str, str]  # row label, column
_SMALLER = {
    "smoke": "smoke scale only shows that everything runs; its numbers say nothing about any method",
    "short": "short scale has fewer steps than the paper, which alone may explain a difference from its numbers",
}


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """One result that was found.

    Attributes:
        scale: of the run.
        folder: of the run, with its log and config; for a kept result what else is kept of it, or `None`.
    """

    spec: RunSpec
    seed: int
    scale: str
    config_hash: str
    commit: str
    result: RunResult
    folder: Path | None


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One cell over its seeds.

    Attributes:
        values: in the cell's unit, in the order of `seeds`.
        records: the results behind them.
        deviation: over n - 1; `None` for a single seed.
    """

    seeds: tuple[int, ...]
    values: tuple[float, ...]
    records: tuple[RunRecord, ...]
    mean: float
    deviation: float | None
    n: int

    @property
    def by_seed(self) -> dict[int, float]:
        """The values by seed."""
        return dict(zip(self.seeds, self.values, strict=True))


@dataclass(frozen=True, kw_only=True)
class Collected:
    """A study with what was found for it.

    Attributes:
        cells: by row label and column; a cell that is absent is missing.
        printed: the paper's numbers to hold against `cells`: as printed, but averages over the domains present where
            some are missing.
        differences: likewise those that it prints of two rows, by both labels and column.
        tests: of the study's comparisons, column by column.
        missing: what is not done.
        no_data: cells whose runs are there, without the images that the cell is about.
        diverged: seeds whose run lost its finite loss, for cells where that is an outcome.
        warnings: what a reader must know before believing the table.
        footnotes: those of the study, and which domains are missing.
        runs: where run folders lie; logs of runs that diverged are found there.
        details: what is kept of runs whose folders are gone, by the hash of their config.
    """

    study: Study
    scale: str
    cells: Mapping[Place, Measured]
    printed: Mapping[Place, Printed]
    tests: tuple[TestResult, ...]
    missing: tuple[Task, ...]
    warnings: tuple[str, ...]
    footnotes: tuple[str, ...] = ()
    diverged: Mapping[Place, tuple[int, ...]] = field(default_factory=dict)
    runs: Path | None = None
    details: Mapping[str, Path] = field(default_factory=dict)
    differences: Mapping[tuple[str, str, str], Printed] = field(default_factory=dict)
    no_data: frozenset[Place] = frozenset()


def collect(
    study: Study,
    *,
    runs: Path,
    kept: Path | None = None,
    scale: Scale = "paper",
    seeds: Sequence[int] | None = None,
    store: Store | None = None,
) -> Collected:
    """Return what was found for a study.

    Args:
        study: which.
        runs: where run folders lie.
        kept: where kept results lie, `*.jsonl`; a run folder goes before them.
        scale: of the runs; results of another are counted in a warning, never shown.
        seeds: which, likewise; by default 0 up to the study's number of them.
        store: what lies in both folders, where it has been read already.

    Example:
        >>> from asrnorm.studies import get_study
        >>> found = collect(get_study("table3"), runs=Path("nowhere"), seeds=[0])
        >>> len(found.cells), len(found.missing), found.printed["RSC", "Photo"].value
        (0, 28, 41.6)
    """
    chosen = tuple(range(study.seeds) if seeds is None else seeds)
    store = find_results(runs, kept) if store is None else store
    tasks = plan(study, seeds=chosen, scale=scale, runs=runs, store=store).tasks
    records = dict(_records(study, store, chosen, scale))
    gone = {column: _missing_of(study, column, records) for column in study.columns}
    cells = dict(_measure(study, records, gone))
    printed = {
        (row.label, column): restrict_printed(row, column, gone)
        for row in study.rows
        for column, cell in row.cells.items()
        if cell.printed is not None
    }
    missing = tuple(task for task in tasks if not _is_there(task, store))
    return Collected(
        study=study,
        scale=scale,
        cells=cells,
        printed=printed,
        tests=_test(study, cells),
        missing=missing,
        warnings=tuple(_warn(study, cells, store, chosen, scale)),
        footnotes=(*study.footnotes, *describe_missing(study, gone)),
        diverged=dict(_diverged(study, tasks)),
        runs=runs,
        details=store.details,
        differences=restrict_differences(study, printed, gone),
        no_data=frozenset(place for place in records if place not in cells and gone[place[1]]),
    )


def warn_of_scales(scales: Collection[str]) -> Iterator[str]:
    """Yield a line on each scale, among those of the runs shown, that is smaller than the paper's.

    Example:
        >>> list(warn_of_scales(["paper", "smoke"]))
        ['smoke scale only shows that everything runs; its numbers say nothing about any method']
    """
    return (line for scale, line in _SMALLER.items() if scale in scales)


def _is_there(task: Task, store: Store) -> bool:
    """Whether a task is done, or its result is kept, even where something else of its run is not."""
    return task.state in ("done", "kept") or (task.kind != "analysis" and content_hash(task.config) in store.results)


def _records(study: Study, store: Store, seeds: Sequence[int], scale: Scale) -> Iterator[tuple[Place, list[RunRecord]]]:
    """For every cell the results of the seeds at which all its runs are there."""
    for row, column, cell in _run_cells(study):
        records: list[RunRecord] = []
        for seed in seeds:
            found = [(spec, look_up(store, spec, seed, scale)) for spec in cell.runs]
            if all(one is not None for _, one in found):
                records += [_record(spec, seed, one) for spec, one in found if one is not None]
        if records:
            yield (row, column), records


def _run_cells(study: Study) -> Iterator[tuple[str, str, Cell]]:
    for row in study.rows:
        for column, cell in row.cells.items():
            if cell.runs:
                yield row.label, column, cell


def _record(spec: RunSpec, seed: int, found: Found) -> RunRecord:
    result = found.result
    return RunRecord(
        spec=spec,
        seed=seed,
        scale=result.scale,
        config_hash=result.config_hash,
        commit=result.commit,
        result=result,
        folder=found.folder,
    )


def _missing_of(study: Study, column: str, records: Mapping[Place, list[RunRecord]]) -> frozenset[str]:
    """The domains that any result behind a column lacks: all its rows are averaged over the others."""
    gone: set[str] = set()
    for row in study.rows:
        for record in records.get((row.label, column), ()):
            gone |= find_missing(row.cells[column].measure, record.result)
    return frozenset(gone)


def _measure(
    study: Study, records: Mapping[Place, list[RunRecord]], gone: Mapping[str, frozenset[str]]
) -> Iterator[tuple[Place, Measured]]:
    for row, column, cell in _run_cells(study):
        parts: dict[int, list[float | None]] = defaultdict(list)
        for record in records.get((row, column), ()):
            parts[record.seed].append(read_measure(cell.measure, record.result, gone[column]))
        values = {
            seed: sum(whole) / len(whole)
            for seed, some in parts.items()
            if len(whole := [value for value in some if value is not None]) == len(some)
        }
        if values:
            summary = summarize(list(values.values()))
            yield (
                (row, column),
                Measured(
                    seeds=tuple(values),
                    values=tuple(values.values()),
                    records=tuple(record for record in records[row, column] if record.seed in values),
                    mean=summary.mean,
                    deviation=summary.deviation,
                    n=summary.n,
                ),
            )


def _test(study: Study, cells: Mapping[Place, Measured]) -> tuple[TestResult, ...]:
    measures = {(row, column): cell.measure for row, column, cell in _run_cells(study)}
    tests = []
    for pair in study.comparisons:
        for column in study.columns:
            ours, theirs = cells.get((pair.row, column)), cells.get((pair.against, column))
            if ours is None or theirs is None or measures[pair.row, column].quantity == "parameters":
                continue
            better = measures[pair.row, column].better
            names = {"row": pair.row, "against": pair.against, "column": column}
            tests.append(compare(ours.by_seed, theirs.by_seed, better=better, **names))
    corrected = correct_holm([test.pooled for test in tests])
    return tuple(replace(test, holm=p) for test, p in zip(tests, corrected, strict=True))


def _warn(
    study: Study, cells: Mapping[Place, Measured], store: Store, seeds: Sequence[int], scale: Scale
) -> Iterator[str]:
    if cells:
        yield from warn_of_scales([scale])
    commits = sorted({one for cell in cells.values() for record in cell.records for one in record.result.commits})
    if len(commits) > 1:
        names = ", ".join(map(shorten_commit, commits))
        yield f"the table mixes runs of {len(commits)} commits: {names}"
    elif commits and commits[0].endswith("+"):
        yield f"the runs were made from files that differ from commit {shorten_commit(commits[0]).removesuffix('+')}"
    origins = [record.result.origin for cell in cells.values() for record in cell.records]
    editions = sorted({origin["edition"] for origin in origins if "edition" in origin})
    if len(editions) > 1:
        yield f"the table mixes runs scored on {len(editions)} editions of the test images: {'; '.join(editions)}"
    counts = sorted({cell.n for cell in cells.values()})
    if counts and counts[0] < FEWEST:
        yield f"some cells have fewer than {FEWEST} seeds and so no p-value"
    if len(counts) > 1:
        yield f"the number of seeds per cell varies from {counts[0]} to {counts[-1]}"
    yield from tell_elsewhere(study, store, seeds, scale)
    yield from store.problems


def _diverged(study: Study, tasks: Sequence[Task]) -> Iterator[tuple[Place, tuple[int, ...]]]:
    lost = {content_hash(task.config): task.seed for task in tasks if task.output.name == DIVERGENCE_FILE}
    if not lost:
        return
    for row, column, cell in _run_cells(study):
        scale = tasks[0].config.scale
        hashes = {scored_hash(spec, seed, scale) for spec in cell.runs for seed in set(lost.values())}
        if seeds := tuple(sorted(lost[identity] for identity in hashes & set(lost))):
            yield (row, column), seeds
