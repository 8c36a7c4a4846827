"""`asrnorm reproduce`: all runs of tables and figures that are not done yet, then their reports."""

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast, get_args

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from asrnorm.cli.executor_choice import open_executor
from asrnorm.cli.own_module import Modules, import_modules
from asrnorm.cli.run_folder import check_folder, find_kept, read_assignments
from asrnorm.cli.study_choice import change_runs, check_configs, check_data, choose_rows, expand_names, report_folder
from asrnorm.config import RunConfig, Scale, content_hash
from asrnorm.errors import AsrnormError, InputError, UnknownNameError, WrongCallError, describe_unknown
from asrnorm.fingerprint import PUBLISHED

if TYPE_CHECKING:
    from asrnorm.launch import Executor, Job, Outcome
    from asrnorm.studies import Plan, Study


def reproduce(
    study: Annotated[
        list[str],
        typer.Argument(
            help="Names of studies, see `asrnorm list studies`; paper: all tables and figures of the paper.",
            show_default=False,
        ),
    ],
    seeds: Annotated[int | None, typer.Option(min=1, help="Run seeds 0 to N-1.", show_default="each study's")] = None,
    scale: Annotated[str, typer.Option(help="Size of the runs: paper, short or smoke.")] = "paper",
    workers: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Number of runs at once; those on one GPU share it by NVIDIA's MPS, unless ASRNORM_MPS=0.",
            show_default="two a GPU, or one",
        ),
    ] = None,
    ray: Annotated[
        str | None, typer.Option(help="A Ray cluster to run on: auto, or its address.", show_default=False)
    ] = None,
    slurm: Annotated[
        str | None,
        typer.Option(
            help="Run through Slurm, with submitit's options: timeout_min=600,gpus_per_node=1,...", show_default=False
        ),
    ] = None,
    runs: Annotated[Path, typer.Option(help="Folder that holds the run folders.")] = Path("runs"),
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder of the report; for several studies, the folder that holds their folders.",
            show_default="reports/<study>, at other scales reports/<study>-<scale>",
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would run, and stop.")] = False,
    row: Annotated[
        list[str] | None,
        typer.Option(help="Run only what rows with this label need; * matches any text; may be given again."),
    ] = None,
    ignore_kept: Annotated[
        bool, typer.Option("--ignore-kept", help="Also train the runs whose results are kept in results/.")
    ] = False,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="Change a field of every run: a.b=value; may be given again.")
    ] = None,
    modules: Modules = None,
) -> None:
    """Run what tables or figures of the paper need and is not done yet, then write their reports.

    Example: `asrnorm reproduce table1 --scale short --seeds 3 --row 'RSDA*'`, or `asrnorm reproduce table5 table6
    table7`, whose runs then share the workers. Killed, it is started again with the same command. Kept results
    (`results/`) count as done.
    """
    import_modules(modules)
    from asrnorm.launch import gather_jobs
    from asrnorm.studies import plan

    size = _check_scale(scale)
    for folder, option in ((runs, "--runs"), (out, "--out")):
        if folder is not None:
            check_folder(folder, option)
    studies = _find_studies(study, settings or ())
    chosen = {own.name: tuple(range(own.seeds if seeds is None else seeds)) for own in studies}
    kept = None if ignore_kept else find_kept()
    try:
        plans = [
            plan(own, seeds=chosen[own.name], scale=size, runs=runs.absolute(), kept=kept)
            for own in choose_rows(studies, row or ())
        ]
        jobs = gather_jobs(*plans, imports=tuple(modules or ()))
        if settings:
            check_configs([job.config for job in jobs])
    except InputError as error:  # a value of --set that a field does not take
        raise WrongCallError(str(error)) from error
    _refuse_changed_images(jobs, runs.absolute(), kept)
    todo = [job for job in jobs if job.missing()]
    if ray is not None and slurm is not None:
        raise typer.BadParameter("--ray and --slurm are two places to run in: leave one out")
    if dry_run:
        _print_plan(plans, jobs)
        _tell_missing_data(todo)
        return
    if not todo and any(job.is_kept for job in jobs):
        typer.echo(f"{_count(jobs, 0)}; --ignore-kept trains them again")
    outcome = _run(jobs, todo, lambda: open_executor(todo, workers, ray, slurm, runs)) if todo else None
    if outcome is not None and outcome.left:
        raise InputError(
            f"stopped with {len(outcome.done)} of {len(jobs)} runs done; started again, the rest go on where they were"
        )
    for own in studies:
        place = report_folder(own.name, size) if out is None else out / own.name if len(studies) > 1 else out
        _write_report(own, runs, kept, size, chosen[own.name], place)
    if outcome is not None and outcome.failed:
        _print_failures(outcome)
        raise typer.Exit(1)


def _check_scale(name: str) -> Scale:
    if name not in get_args(Scale):
        raise UnknownNameError(describe_unknown("scale", name, get_args(Scale)))
    return cast(Scale, name)


def _find_studies(words: Sequence[str], settings: Sequence[str]) -> list["Study"]:
    """Return the studies that are meant, with the changes of `--set` in all their runs."""
    from asrnorm.studies import get_study

    fields = [field.name for field in dataclasses.fields(RunConfig) if field.name not in ("recipe", "scale", "seed")]
    assignments = read_assignments(settings, fields)
    return [change_runs(get_study(name), assignments) for name in expand_names(words)]


def _run(jobs: Sequence["Job"], todo: Sequence["Job"], open_place: Callable[[], "Executor"]) -> "Outcome":
    from asrnorm.launch import launch
    from asrnorm.launch.view import LaunchView

    _check_data(todo)
    executor = open_place()
    with LaunchView() as view:
        view.say(f"{_count(jobs, len(todo))}; {len(todo)} to do, {executor.slots()} at once")
        return launch(jobs, executor, view=view)


def _tell_missing_data(todo: Sequence["Job"]) -> None:
    """Say on the side what the launch would be refused for; a plan may be looked at where the data is not."""
    try:
        _check_data(todo)
    except AsrnormError as error:
        typer.echo(f"note: here the runs would not start: {error}", err=True)


def _check_data(todo: Sequence["Job"]) -> None:
    check_data([job.config for job in todo if not (job.folder / "result.json").exists()])


def _count(jobs: Sequence["Job"], todo: int) -> str:
    kept = sum(job.is_kept for job in jobs)
    return f"{len(jobs) - todo} of {len(jobs)} runs are done" + (f", {kept} of them kept in results/" if kept else "")


def _write_report(study: "Study", runs: Path, kept: Path | None, scale: Scale, seeds: Sequence[int], out: Path) -> None:
    from asrnorm.report.study import write_report
    from asrnorm.studies import collect

    if "samples" in study.figures:
        from asrnorm.cli.sample_sheet import draw_samples

        for line in draw_samples(out / "samples.png"):
            typer.echo(line)
    collected = collect(study, runs=runs, kept=kept, scale=scale, seeds=seeds)
    for warning in collected.warnings:
        typer.echo(f"warning: {warning}", err=True)
    for path in write_report(collected, out):
        if path.suffix in (".md", ".html"):
            typer.echo(f"report: {path}")


def _refuse_changed_images(jobs: Sequence["Job"], runs: Path, kept: Path | None) -> None:
    """Refuse to show runs on images of one's own that are others now."""
    own = [job for job in jobs if job.config.suite.name not in PUBLISHED and not job.missing()]
    if not own:
        return
    from asrnorm.studies.store import find_results
    from asrnorm.training.source import has_other_images, refuse_changed_images

    results = find_results(runs, kept).results if any(job.is_kept for job in own) else {}
    for job in own:
        if not job.is_kept:
            refuse_changed_images(job.folder / "env.json", job.config)
        elif has_other_images(job.config, results[content_hash(job.config)].result.origin.get("listing", "")):
            raise InputError(
                f"{job.name}: kept, of other images of the source than there are now; bring back those that it was "
                "made with, or train it again with --ignore-kept"
            )


def _print_plan(plans: Sequence["Plan"], jobs: Sequence["Job"]) -> None:
    for problem in dict.fromkeys(problem for planned in plans for problem in planned.problems):
        typer.echo(f"warning: {problem}", err=True)
    table = Table(box=None, pad_edge=False)
    table.add_column("run", no_wrap=True)
    table.add_column("state", no_wrap=True)
    table.add_column("to do")
    for job in jobs:
        rest = [piece.label for piece in job.missing()]
        state = "kept" if job.is_kept else "done" if not rest else "begun" if job.folder.exists() else "not begun"
        table.add_row(Text(job.name), state, Text(", ".join(rest)))
    console = Console(soft_wrap=True)
    console.print(table)
    todo = sum(bool(job.missing()) for job in jobs)
    console.print(f"{_count(jobs, todo)}, {todo} to do", highlight=False)


def _print_failures(outcome: "Outcome") -> None:
    table = Table(box=None, pad_edge=False, title="failed", title_justify="left")
    table.add_column("run", no_wrap=True)
    table.add_column("error", overflow="fold")
    for failure in outcome.failed:
        table.add_row(Text(failure.job.name), Text(failure.error))
    console = Console(stderr=True)
    console.print(table)
    log = outcome.failed[0].job.folder / "launch.log"
    console.print(f"all that a run said is in its launch.log, such as {log}", markup=False, soft_wrap=True)
