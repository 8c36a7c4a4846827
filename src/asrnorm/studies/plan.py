"""Lists the tasks of a study: every run of its cells at every seed, once, with its state."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from asrnorm.core.config import RunConfig, Scale, content_hash, run_name
from asrnorm.studies.spec import ANALYSIS_FILES, DIVERGENCE_FILE, RunSpec, Study
from asrnorm.studies.store import CURVES_FILE, Store, find_results, holds_result, is_same

State = Literal["done", "kept", "partial", "pending"]
Kind = Literal["run", "evaluation", "analysis"]


@dataclass(frozen=True, kw_only=True)
class Task:
    """One task of a study: train a run, score a finished run again, or analyze it.

    It is `partial` if the run folder exists without the output: the run resumes from its last checkpoint. It is `kept`
    if the run folder is gone and the kept results have all that the study needs of the run.
    """

    key: str  # unique in the plan: the run's name, for evaluations and analyses followed by the file in its folder
    kind: Kind
    spec: RunSpec  # with `evaluation` if the task is one
    seed: int
    config: RunConfig  # for an evaluation the config under which the run is scored
    folder: Path  # of the run
    output: Path  # the file that the task writes
    state: State
    needs: str | None = None  # the key of the run that must be done first
    analysis: str | None = None  # its name, if the task is one


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The tasks of a study, runs before the evaluations and analyses of them, and a line for each unreadable result."""

    tasks: tuple[Task, ...]
    problems: tuple[str, ...] = ()

    @property
    def todo(self) -> tuple[Task, ...]:
        """The tasks that are neither done nor kept."""
        return tuple(task for task in self.tasks if task.state not in ("done", "kept"))


def plan(
    study: Study,
    *,
    seeds: Sequence[int],
    scale: Scale,
    runs: Path,
    kept: Path | None = None,
    store: Store | None = None,
) -> Plan:
    """Return the tasks of a study with their states, read from the run folders and the kept results.

    A run whose folder is gone counts as kept if everything that the study needs of it is kept: its result, its
    evaluations and analyses, and its curves if a figure shows them. Otherwise it is trained again, and evaluations and
    analyses are made of the new run. `runs` and `kept` are the folders of run folders and of kept results, `*.jsonl`;
    `store` has the contents of both, if they have been read already.

    Example:
        >>> from asrnorm.studies import get_study
        >>> tasks = plan(get_study("table3"), seeds=[0, 1], scale="smoke", runs=Path("nowhere")).tasks
        >>> len(tasks), tasks[0].state
        (56, 'pending')
    """
    store = find_results(runs, kept) if store is None else store
    folders = {
        identity: one.folder
        for identity, one in store.results.items()
        if one.folder and not (one.kept or one.scored_again)
    }
    tasks: dict[str, Task] = {}
    for seed in seeds:
        for spec in dict.fromkeys(iterate_specs(study)):
            run = _plan_run(spec, seed, scale, runs, folders)
            tasks.setdefault(run.key, run)
            for task in _plan_dependents(spec, run, scale):
                tasks.setdefault(task.key, task)
    # Seeds stay in the order given; within a plan every run comes before what needs it.
    ordered = sorted(tasks.values(), key=lambda task: task.kind != "run")
    marked = _mark_kept(ordered, store, study.needs_logs)
    return Plan(tasks=tuple(marked.get(task.key, task) for task in ordered), problems=store.problems)


def iterate_specs(study: Study) -> Iterator[RunSpec]:
    """Yield the runs behind every cell, row by row; a run that cells share comes several times."""
    for row in study.rows:
        for cell in row.cells.values():
            yield from cell.runs


def _plan_run(spec: RunSpec, seed: int, scale: Scale, runs: Path, folders: dict[str, Path]) -> Task:
    config = spec.config(seed, scale)
    name = run_name(config)
    folder = folders.get(content_hash(config), runs / name)
    output = folder / "result.json"
    if spec.may_diverge and not output.exists() and (folder / DIVERGENCE_FILE).exists():
        output = folder / DIVERGENCE_FILE
    done = output.exists() if output.name == DIVERGENCE_FILE else holds_result(output, content_hash(config))
    state: State = "done" if done else "partial" if folder.exists() else "pending"
    return Task(
        key=name,
        kind="run",
        spec=replace(spec, evaluation=None, analyses=()),
        seed=seed,
        config=config,
        folder=folder,
        output=output,
        state=state,
    )


def _plan_dependents(spec: RunSpec, run: Task, scale: Scale) -> Iterator[Task]:
    if spec.evaluation is not None:
        config = spec.scored_config(run.seed, scale)
        output = run.folder / "evaluations" / f"{spec.evaluation.name}.json"
        done = holds_result(output, content_hash(config))
        yield _follow(run, output, done, kind="evaluation", spec=replace(spec, analyses=()), config=config)
    for name in spec.analyses:
        output = run.folder / ANALYSIS_FILES[name]
        analyzed = replace(spec, evaluation=None)
        yield _follow(run, output, output.exists(), kind="analysis", spec=analyzed, analysis=name)


def _follow(run: Task, output: Path, done: bool, **changes: Any) -> Task:
    key = f"{run.key}/{output.relative_to(run.folder)}"
    state: State = "done" if done and run.state == "done" else "pending"
    return replace(run, key=key, output=output, state=state, needs=run.key, **changes)


def _mark_kept(tasks: Sequence[Task], store: Store, with_logs: bool) -> dict[str, Task]:
    """Return the tasks whose outputs are among the kept results, by key."""
    groups: dict[str, list[Task]] = {}
    for task in tasks:  # a run comes before its evaluations and analyses
        groups.setdefault(task.needs or task.key, []).append(task)
    marked: dict[str, Task] = {}
    for run, *rest in groups.values():
        identity = content_hash(run.config)
        found = {task.key: taken for task in rest if (taken := _take_kept(task, identity, store))}
        if run.state == "done":
            # Kept evaluations count only if they are of this training of the run.
            here, line = store.results.get(identity), store.lines.get(identity)
            if here is None or line is None or is_same(here.result, line):
                marked |= {key: task for key, task in found.items() if task.state != "done"}
        elif len(found) == len(rest) and (taken := _take_kept(run, identity, store, with_logs)):
            marked |= {run.key: taken, **found}
    return {key: replace(task, state="kept") for key, task in marked.items()}


def _take_kept(task: Task, run: str, store: Store, with_logs: bool = False) -> Task | None:
    """Return the task if its output is kept, else `None`; `run` is the hash of the run itself."""
    details = store.details.get(run)
    if task.analysis is not None:
        return task if details and (details / ANALYSIS_FILES[task.analysis]).is_file() else None
    if with_logs and not (details and (details / CURVES_FILE).is_file()):
        return None
    one = store.results.get(content_hash(task.config))
    if one is not None and one.kept and (one.result.scale, one.result.seed) == (task.config.scale, task.seed):
        return task
    if task.kind == "run" and task.spec.may_diverge and details and (details / DIVERGENCE_FILE).is_file():
        return replace(task, output=details / DIVERGENCE_FILE)
    return None
