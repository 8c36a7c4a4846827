"""Where the runs of a launch take place: this machine, a Ray cluster, or Slurm, by the options of the command.

The picture of a study that shows samples: the overviews of the suites at hand, one above the other.

`asrnorm reproduce`: all runs of tables and figures that are not done yet, then their reports.
"""

import dataclasses
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any, cast, get_args

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from asrnorm.cli.data_show import SuiteDomains
from asrnorm.cli.options import Modules, check_folder, find_kept, import_modules, read_assignments
from asrnorm.cli.study_choice import change_runs, check_configs, check_data, choose_rows, expand_names, report_folder
from asrnorm.core.config import RunConfig, Scale, content_hash, parse
from asrnorm.core.errors import AsrnormError, InputError, UnknownNameError, WrongCallError, describe_unknown
from asrnorm.core.files import replacing
from asrnorm.core.hashing import PUBLISHED

if TYPE_CHECKING:
    from asrnorm.launch import Executor, Job, Outcome
    from asrnorm.studies import Plan, Study


def open_executor(
    todo: Sequence["Job"], workers: int | None, ray: str | None, slurm: str | None, runs: Path
) -> "Executor":
    """Return the place to run in.

    Args:
        todo: jobs that are to run there.
        workers: the most at once.
        ray: address of a cluster.
        slurm: options of submitit, as typed.
        runs: the folder of the run folders, where Slurm's own files go too.

    Raises:
        MissingDependencyError: Ray or submitit is not installed.
        InputError: no cluster answers, or no Slurm is here.
    """
    if ray is not None:
        from asrnorm.launch.ray_cluster import RayExecutor

        return RayExecutor(ray, workers)
    if slurm is not None:
        from asrnorm.launch.slurm import SlurmExecutor

        return SlurmExecutor(runs.absolute() / ".slurm", read_options(slurm), workers)
    from asrnorm.launch import LocalExecutor

    wanted = any(job.config.device in ("auto", "cuda") for job in todo)
    return LocalExecutor(workers, find_gpus() if wanted else ())


def read_options(text: str) -> dict[str, Any]:
    """Return `name=value,name=value` as a dict, each value in its type.

    Raises:
        typer.BadParameter: a part without an equals sign.

    Example:
        >>> read_options("timeout_min=600,slurm_partition=gpu")
        {'timeout_min': 600, 'slurm_partition': 'gpu'}
    """
    options = {}
    for part in filter(None, text.split(",")):
        name, equals, value = part.partition("=")
        if not equals or not name:
            raise typer.BadParameter(f"{part!r} is not of the form name=value", param_hint="--slurm")
        options[name.strip()] = parse(value)
    return options


def find_gpus() -> list[str]:
    """Return the names of the GPUs that this process may use, as `CUDA_VISIBLE_DEVICES` takes them."""
    import torch

    count = torch.cuda.device_count()
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = visible.split(",") if visible else map(str, range(count))
    return [name.strip() for name in names][:count]


SUITES = ("pacs", "cifar10c", "digits")
_PAPER = "#ffffff"


def draw_samples(path: Path, suites: Sequence[str] = SUITES) -> list[str]:
    """Write one picture with an image a class of every domain; return a line for each suite that is not there.

    Args:
        path: of the PNG; where no suite is there, none is written.
        suites: names of suites, from above to below.
    """
    from PIL import Image

    from asrnorm import data
    from asrnorm.data.contact_sheet import contact_sheet

    lines, sheets = [], []
    for name in suites:
        with TemporaryDirectory() as folder:
            try:
                suite = data.create_suite(name)
                overview = contact_sheet(SuiteDomains(suite), suite.classes, folder, per_class=1)[0]
            except InputError as error:
                lines.append(f"samples: {name} is left out: {error}")
                continue
            with Image.open(overview) as sheet:
                sheets.append(sheet.convert("RGB"))
    if sheets:
        size = max(sheet.width for sheet in sheets), sum(sheet.height for sheet in sheets)
        joined = Image.new("RGB", size, _PAPER)
        top = 0
        for part in sheets:
            joined.paste(part, (0, top))
            top += part.height
        with replacing(path) as temporary:
            joined.save(temporary, "PNG")
    return lines


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
    from asrnorm.reporting.study import write_report
    from asrnorm.studies import collect

    if "samples" in study.figures:
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
    from asrnorm.training.run_folder import has_other_images, refuse_changed_images

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
