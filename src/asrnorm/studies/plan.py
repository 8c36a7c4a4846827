"""What a study needs and what of it is there: cells times seeds, each run once however many cells share it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from asrnorm.config import RunConfig, Scale, content_hash, run_name
from asrnorm.errors import AsrnormError
from asrnorm.results import read_result
from asrnorm.studies.spec import ANALYSIS_FILES, DIVERGENCE_FILE, RunSpec, Study
from asrnorm.studies.store import find_results

State = Literal["done", "partial", "pending"]
Kind = Literal["run", "evaluation", "analysis"]


@dataclass(frozen=True, kw_only=True)
class Task:
    """One thing to do for a study.

    Attributes:
        key: unique in the plan: the run's name, and the file in its folder for evaluations and analyses.
        kind: train a run, score a finished one again, or make another file of it.
        spec: of the run, with the evaluation where the task is one.
        config: of the run; under which it is scored, where the task is an evaluation.
        folder: of the run.
        output: the file whose presence says that the task is done.
        state: `partial` where the folder is there and the output is not; the run goes on from its last checkpoint.
        needs: key of the run that must be done before.
        analysis: which, where the task is one.
    """

    key: str
    kind: Kind
    spec: RunSpec
    seed: int
    config: RunConfig
    folder: Path
    output: Path
    state: State
    needs: str | None = None
    analysis: str | None = None


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The tasks of a study, runs before what depends on them.

    Attributes:
        study: its name.
        runs: the folder that holds the run folders.
    """

    study: str
    scale: Scale
    seeds: tuple[int, ...]
    runs: Path
    tasks: tuple[Task, ...]

    @property
    def todo(self) -> tuple[Task, ...]:
        """The tasks that are not done."""
        return tuple(task for task in self.tasks if task.state != "done")

    def count(self, state: State) -> int:
        """Return how many tasks are in a state."""
        return sum(task.state == state for task in self.tasks)


def plan(study: Study, *, seeds: Sequence[int], scale: Scale, runs: Path) -> Plan:
    """Return the tasks of a study and how far each has come, from the folders under `runs`.

    Args:
        study: what is to be shown.
        seeds: of every run.
        scale: of every run.
        runs: where run folders lie; it need not exist yet.

    Example:
        >>> from asrnorm.studies import get_study
        >>> tasks = plan(get_study("table3"), seeds=[0, 1], scale="smoke", runs=Path("nowhere")).tasks
        >>> len(tasks), tasks[0].state
        (32, 'pending')
    """
    found = find_results(runs).results
    folders = {identity: one.folder for identity, one in found.items() if one.folder and not one.scored_again}
    tasks: dict[str, Task] = {}
    for seed in seeds:
        for spec in dict.fromkeys(iterate_specs(study)):
            run = _plan_run(spec, seed, scale, runs, folders)
            tasks.setdefault(run.key, run)
            for task in _plan_dependents(spec, run, scale):
                tasks.setdefault(task.key, task)
    # Seeds stay in the order given; within a plan every run comes before what needs it.
    ordered = sorted(tasks.values(), key=lambda task: task.kind != "run")
    return Plan(study=study.name, scale=scale, seeds=tuple(seeds), runs=runs, tasks=tuple(ordered))


def iterate_specs(study: Study) -> Iterator[RunSpec]:
    """Yield the run behind every cell, row by row; the same one as often as cells share it."""
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
    state: State = "done" if output.exists() else "partial" if folder.exists() else "pending"
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
        done = _holds(output, content_hash(config))
        yield _dependent(run, "evaluation", replace(spec, analyses=()), config, output, done)
    for name in spec.analyses:
        output = run.folder / ANALYSIS_FILES[name]
        task = _dependent(run, "analysis", replace(spec, evaluation=None), run.config, output, output.exists())
        yield replace(task, analysis=name)


def _dependent(run: Task, kind: Kind, spec: RunSpec, config: RunConfig, output: Path, done: bool) -> Task:
    return Task(
        key=f"{run.key}/{output.relative_to(run.folder)}",
        kind=kind,
        spec=spec,
        seed=run.seed,
        config=config,
        folder=run.folder,
        output=output,
        state="done" if done and run.state == "done" else "pending",
        needs=run.key,
    )


def _holds(path: Path, identity: str) -> bool:
    """Whether a result is there and of this config: an evaluation's name says less than its hash."""
    try:
        return path.exists() and read_result(path).config_hash == identity
    except AsrnormError:
        return False
