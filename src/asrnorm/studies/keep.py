"""Results gathered from run folders into `results/<study>.jsonl`, so that they outlive the machine that made them.

A run is kept once, whichever studies share it: its line stands in the file of the study that it was first kept for.
What figures need of a run besides goes to `results/details/<run>/`, small, under the names of a run folder.
"""

import io
import json
import shutil
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from asrnorm.core.config import Scale, content_hash, run_name
from asrnorm.core.errors import InputError
from asrnorm.core.files import write_whole
from asrnorm.core.results import RunResult, to_plain
from asrnorm.studies.curve import CURVES_FILE, format_curves, read_log
from asrnorm.studies.plan import Task, iterate_specs, plan
from asrnorm.studies.spec import ANALYSIS_FILES, DIVERGENCE_FILE, Study, get_study, list_studies
from asrnorm.studies.store import DETAILS, find_details, find_results, has_same_numbers, is_same, read_lines

COMPONENTS = 16  # of learned statistics: what t-SNE of them shows does not need the rest


@dataclass(frozen=True, kw_only=True)
class Keeping:
    """What happened to the results in a study's run folders, by their hashes.

    Attributes:
        path: the study's file.
        added: new lines.
        replaced: lines of another commit that gave way.
        same: kept before, with the same numbers.
        repeated: kept before, and made once more with the same numbers, at another commit or in another time; left as
            they were.
        differing: kept before with other numbers, and left as they were.
    """

    path: Path
    added: tuple[str, ...] = ()
    replaced: tuple[str, ...] = ()
    same: tuple[str, ...] = ()
    repeated: tuple[str, ...] = ()
    differing: tuple[str, ...] = ()


def keep(
    study: Study,
    *,
    runs: Path,
    kept: Path,
    scale: Scale = "paper",
    seeds: Sequence[int] | None = None,
    renew: bool = False,
) -> Keeping:
    """Add the finished results of a study to the kept ones; a second call changes nothing.

    The study's file is put in order too, where lines of another were appended to it: sorted, each run once.

    Args:
        study: which.
        runs: where run folders lie.
        kept: the folder of kept results; it is made where it is not there.
        scale: of the runs.
        seeds: which; by default 0 up to the study's number of them.
        renew: a run that was kept at another commit, or with files that differed from it, is replaced.

    Raises:
        InputError: a kept file has a line that is not a result, or a file to be kept is damaged; nothing is changed.
        StorageError: the place cannot be written.
    """
    chosen = tuple(range(study.seeds) if seeds is None else seeds)
    store = find_results(runs)
    tasks = [task for task in plan(study, seeds=chosen, scale=scale, runs=runs).tasks if task.state == "done"]
    files = {path: {one.config_hash: one for one in read_lines(path)} for path in sorted(kept.glob("*.jsonl"))}
    own = kept / f"{study.name}.jsonl"
    before = {identity: path for path in reversed(files) for identity in files[path]}
    sorts: dict[str, list[str]] = {field.name: [] for field in fields(Keeping) if field.name != "path"}
    for task in tasks:
        identity = content_hash(task.config)
        found, path = store.results.get(identity), before.get(identity, own)
        # A result that cannot be read is no result; reports warn of it.
        if task.kind == "analysis" or task.output.name == DIVERGENCE_FILE or found is None:
            continue
        sort = _sort(files.get(path, {}).get(identity), found.result, renew)
        sorts[sort].append(identity)
        if sort in ("added", "replaced"):
            files.setdefault(path, {})[identity] = found.result
    new = list(_details(tasks, kept, sorts, _drawn(study, chosen, scale)))
    for identity in set(sorts["replaced"]) & (old := find_details(kept)).keys():
        shutil.rmtree(old[identity])  # of the run that gives way; what the new one has of it follows
    # Details first: a line says that all of the run is there.
    for path, content in new:
        write_whole(path, content)
    known = {identity for hashes in sorts.values() for identity in hashes}
    outdated = (_evaluations(study, set(sorts["replaced"]), chosen, scale) - known) & before.keys()
    for identity in outdated:  # of the training that gives way
        del files[before[identity]][identity]
    changed = {before.get(identity, own) for sort in ("added", "replaced") for identity in sorts[sort]}
    changed |= {before[identity] for identity in outdated}
    for path in changed | ({own} & files.keys()):  # its own also where lines were added to it by hand
        text = format_lines(files[path].values())
        if not path.exists() or path.read_bytes() != text.encode():
            write_whole(path, text)
    return Keeping(path=own, **{sort: tuple(hashes) for sort, hashes in sorts.items()})


def format_lines(results: Iterable[RunResult]) -> str:
    """Return results as the text of a kept file: one per line, in an order that does not depend on when they came."""

    def place(result: RunResult) -> tuple[str, str, str, int, str]:
        return result.scale, result.recipe, result.source.name, result.seed, result.config_hash

    return "".join(f"{json.dumps(to_plain(result), allow_nan=False)}\n" for result in sorted(results, key=place))


def _sort(kept: RunResult | None, new: RunResult, renew: bool) -> str:
    if kept is None:
        return "added"
    if is_same(kept, new):
        return "same"
    other = kept.commits != new.commits or any(commit.endswith("+") for commit in kept.commits)
    if renew and other:
        return "replaced"
    return "repeated" if has_same_numbers(kept, new) else "differing"


def _evaluations(study: Study, runs: set[str], seeds: Sequence[int], scale: Scale) -> set[str]:
    """Hashes of all evaluations that this study or any other makes of these runs."""
    every = [study, *(get_study(name) for name in list_studies())]
    specs = {spec for one in every for spec in iterate_specs(one) if spec.evaluation}
    pairs = [(spec, seed) for spec in specs for seed in seeds] if runs else []
    return {
        content_hash(spec.scored_config(seed, scale))
        for spec, seed in pairs
        if content_hash(spec.config(seed, scale)) in runs
    }


def _drawn(study: Study, seeds: Sequence[int], scale: Scale) -> set[str]:
    """Hashes of the runs whose curves a figure of this or any other study is drawn from: a lost log stays lost."""
    every = [study, *(get_study(name) for name in list_studies())]
    specs = {spec for one in every if one.needs_logs for spec in iterate_specs(one)}
    return {content_hash(spec.config(seed, scale)) for spec in specs for seed in seeds}


def _details(
    tasks: Sequence[Task], kept: Path, sorts: dict[str, list[str]], drawn: set[str]
) -> Iterator[tuple[Path, str | bytes]]:
    """Files that are to be written beside the lines; those of a run that stays as it was kept stay too."""
    renewed, differing = set(sorts["replaced"]), set(sorts["differing"])
    for task in tasks:
        # An analysis has the config of its run.
        identity, folder = content_hash(task.config), kept / DETAILS / run_name(task.config)
        if identity in differing:
            continue
        if task.kind == "analysis" and task.analysis is not None:
            path = folder / ANALYSIS_FILES[task.analysis]
            if identity in renewed or not path.exists():
                yield path, reduce_statistics(task.output)
        elif task.kind == "run":
            lost = task.output.name == DIVERGENCE_FILE
            path = folder / CURVES_FILE
            if (identity in drawn or lost) and (identity in renewed or not path.exists()):
                rows = read_log(task.folder)
                if rows:  # a folder of which a result alone was brought back has none, and curves would be amiss
                    yield path, format_curves(rows)
            if lost and not (folder / DIVERGENCE_FILE).exists():
                yield folder / DIVERGENCE_FILE, task.output.read_bytes()


def reduce_statistics(path: Path) -> bytes:
    """Return learned statistics on their leading principal components, in half precision: about 100 kB.

    Raises:
        InputError: damaged.
    """
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
                # The first component at deviation 1: half precision ends at 65,504, and the figure has no scale.
                unit = max(scales.max(initial=0.0), 1e-300) / len(values) ** 0.5
                whole = left[:, :COMPONENTS] * (scales[:COMPONENTS] / unit)
                reduced[name] = whole.astype(numpy.float16)
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise InputError(f"{path}: damaged ({error}); remove it and run asrnorm reproduce again") from None
    buffer = io.BytesIO()
    numpy.savez_compressed(buffer, **reduced)
    return buffer.getvalue()
