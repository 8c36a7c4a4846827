"""Copies results from run folders to `results/<study>.jsonl`, so that they outlive the machine that made them.

Each run is archived once, in the file of the first study that archives it. What figures need of a run goes to
`results/details/<run>/`, under the file names of a run folder.
"""

import io
import json
import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from asrnorm.core.config import Scale, content_hash, run_name
from asrnorm.core.errors import InputError
from asrnorm.core.files import write_whole
from asrnorm.core.results import RunResult, to_plain
from asrnorm.studies.plan import Task, iterate_specs, plan
from asrnorm.studies.spec import ANALYSIS_FILES, DIVERGENCE_FILE, Study, get_study, list_studies
from asrnorm.studies.store import (
    CURVES_FILE,
    DETAILS,
    KEPT_FILES,
    find_details,
    find_results,
    format_curves,
    has_same_numbers,
    is_same,
    read_lines,
    read_log,
)

COMPONENTS = 16  # principal components of the learned statistics; t-SNE of them looks the same as of all


@dataclass(frozen=True, kw_only=True)
class Archived:
    """What happened to the results in a study's run folders, by their hashes."""

    path: Path
    added: tuple[str, ...] = ()  # new lines of the file
    replaced: tuple[str, ...] = ()  # lines of another commit that were replaced
    same: tuple[str, ...] = ()  # archived before with the same numbers
    repeated: tuple[str, ...] = ()  # archived before with the same numbers, from another training; the old lines stay
    differing: tuple[str, ...] = ()  # archived before with other numbers; the old lines stay


def archive(
    study: Study,
    *,
    runs: Path,
    kept: Path,
    scale: Scale = "paper",
    seeds: Sequence[int] | None = None,
    renew: bool = False,
) -> Archived:
    """Add the finished results of a study to the kept ones; a second call changes nothing.

    They go from the run folders in `runs` to files in `kept`; by default the seeds are 0 up to the study's number of
    seeds. `renew` replaces results from another commit, or from a commit with uncommitted changes. The study's file is
    also sorted and rid of duplicates, which appending the lines of another file leaves. An `InputError` for a damaged
    file or line changes nothing.
    """
    chosen = tuple(range(study.seeds) if seeds is None else seeds)
    store = find_results(runs)
    tasks = [task for task in plan(study, seeds=chosen, scale=scale, runs=runs).tasks if task.state == "done"]
    files = {path: {one.config_hash: one for one in read_lines(path)} for path in sorted(kept.glob(KEPT_FILES))}
    own = kept / f"{study.name}.jsonl"
    before = {identity: path for path in reversed(files) for identity in files[path]}
    outcomes: dict[str, list[str]] = {field.name: [] for field in fields(Archived) if field.name != "path"}
    for task in tasks:
        identity = content_hash(task.config)
        found, path = store.results.get(identity), before.get(identity, own)
        # `found` is None for a result that cannot be read; reports warn about it.
        if task.kind == "analysis" or task.output.name == DIVERGENCE_FILE or found is None:
            continue
        outcome = _compare(files.get(path, {}).get(identity), found.result, renew)
        outcomes[outcome].append(identity)
        if outcome in ("added", "replaced"):
            files.setdefault(path, {})[identity] = found.result
    replaced = set(outcomes["replaced"])
    studies = [study, *(get_study(name) for name in list_studies())]
    drawn_specs = {spec for one in studies if one.needs_logs for spec in iterate_specs(one)}
    drawn = {content_hash(spec.config(seed, scale)) for spec in drawn_specs for seed in chosen}
    details = list(_collect_details(tasks, kept, replaced, set(outcomes["differing"]), drawn))
    for identity in replaced & (old := find_details(kept)).keys():
        shutil.rmtree(old[identity])
    # Details before lines: a line says that the run is archived completely.
    for path, content in details:
        write_whole(path, content)
    seen = {identity for hashes in outcomes.values() for identity in hashes}
    outdated = (_find_evaluations(studies, replaced, chosen, scale) - seen) & before.keys()
    for identity in outdated:  # evaluations of the replaced training
        del files[before[identity]][identity]
    changed = {before.get(identity, own) for identity in (*outcomes["added"], *replaced, *outdated)}
    for path in changed | ({own} & files.keys()):  # its own too, in case lines were appended by hand
        text = format_lines(files[path].values())
        if not path.exists() or path.read_bytes() != text.encode():
            write_whole(path, text)
    return Archived(path=own, **{outcome: tuple(hashes) for outcome, hashes in outcomes.items()})


def format_lines(results: Iterable[RunResult]) -> str:
    """Return the text of a kept file: one result per line, in an order that does not depend on when they were made."""

    def order(result: RunResult) -> tuple[str, str, str, int, str]:
        return result.scale, result.recipe, result.source.name, result.seed, result.config_hash

    return "".join(f"{json.dumps(to_plain(result), allow_nan=False)}\n" for result in sorted(results, key=order))


def _compare(kept: RunResult | None, new: RunResult, renew: bool) -> str:
    if kept is None:
        return "added"
    if is_same(kept, new):
        return "same"
    other_commit = kept.commits != new.commits or any(commit.endswith("+") for commit in kept.commits)
    if renew and other_commit:
        return "replaced"
    return "repeated" if has_same_numbers(kept, new) else "differing"


def _find_evaluations(studies: Sequence[Study], runs: set[str], seeds: Sequence[int], scale: Scale) -> set[str]:
    """Return the hashes of all evaluations that studies make of these runs."""
    specs = {spec for one in studies for spec in iterate_specs(one) if spec.evaluation}
    pairs = [(spec, seed) for spec in specs for seed in seeds] if runs else []
    return {
        content_hash(spec.scored_config(seed, scale))
        for spec, seed in pairs
        if content_hash(spec.config(seed, scale)) in runs
    }


def _collect_details(
    tasks: Sequence[Task], kept: Path, replaced: set[str], differing: set[str], drawn: set[str]
) -> Iterator[tuple[Path, str | bytes]]:
    """Yield the files to write to details folders; runs whose kept result stays keep their details too."""
    for task in tasks:
        # An analysis has the config of its run.
        identity, folder = content_hash(task.config), kept / DETAILS / run_name(task.config)
        if identity in differing:
            continue
        if task.kind == "analysis" and task.analysis is not None:
            path = folder / ANALYSIS_FILES[task.analysis]
            if identity in replaced or not path.exists():
                yield path, reduce_statistics(task.output)
        elif task.kind == "run":
            diverged = task.output.name == DIVERGENCE_FILE
            path = folder / CURVES_FILE
            if (identity in drawn or diverged) and (identity in replaced or not path.exists()):
                rows = read_log(task.folder)
                if rows:  # a folder into which only the result was copied has no log
                    yield path, format_curves(rows)
            if diverged and not (folder / DIVERGENCE_FILE).exists():
                yield folder / DIVERGENCE_FILE, task.output.read_bytes()


def reduce_statistics(path: Path) -> bytes:
    """Return learned statistics projected on their first principal components, in half precision: about 100 kB."""
    import numpy

    reduced = {}
    try:
        with path.open("rb") as file, numpy.load(file, allow_pickle=False) as arrays:
            for name, values in arrays.items():
                if name == "domain":
                    reduced[name] = values
                    continue
                centered = values.astype(numpy.float64) - values.mean(0)
                left, scales, _ = numpy.linalg.svd(centered, full_matrices=False)
                # The first component gets deviation 1: half precision ends at 65,504, and the figure has no scale.
                unit = max(scales.max(initial=0.0), 1e-300) / len(values) ** 0.5
                projected = left[:, :COMPONENTS] * (scales[:COMPONENTS] / unit)
                reduced[name] = projected.astype(numpy.float16)
    except Exception as error:  # of NumPy, zipfile and zlib, for a damaged file
        raise InputError(f"{path}: damaged ({error}); remove it and run asrnorm reproduce again") from None
    buffer = io.BytesIO()
    numpy.savez_compressed(buffer, **reduced)
    return buffer.getvalue()
