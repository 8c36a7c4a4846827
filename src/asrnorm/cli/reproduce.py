"""`asrnorm reproduce`: run what tables and figures need and is not done yet, then write their reports."""

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.text import Text
from typer import Argument, Option

from asrnorm.cli.completion import complete_study
from asrnorm.cli.options import (
    JsonFile,
    Modules,
    Settings,
    check_data,
    check_folder,
    check_scale,
    find_kept,
    import_modules,
    json_output,
    note_missing_data,
    read_assignments,
)
from asrnorm.cli.report import describe_report
from asrnorm.cli.study_choice import change_runs, choose_rows, expand_names, report_folder
from asrnorm.cli.table import make_table
from asrnorm.core.config import RunConfig, Scale, content_hash, parse
from asrnorm.core.errors import InputError, WrongCallError
from asrnorm.core.files import replacing
from asrnorm.core.hashing import PUBLISHED

if TYPE_CHECKING:
    from asrnorm.launch import Executor, Job, Outcome
    from asrnorm.studies import Plan, Study

_SAMPLE_SUITES = ("pacs", "cifar10c", "digits")


def reproduce(
    study: Annotated[
        list[str],
        Argument(
            help="Names of studies, see `asrnorm list studies`; paper: all tables and figures of the paper.",
            autocompletion=complete_study,
        ),
    ],
    seeds: Annotated[int | None, Option(min=1, help="Run seeds 0 to N-1.", show_default="each study's")] = None,
    scale: Annotated[str, Option(help="Size of the runs: paper, short or smoke.")] = "paper",
    workers: Annotated[
        int | None,
        Option(
            min=1,
            help="Number of runs at once; those on one GPU share it by NVIDIA's MPS, unless ASRNORM_MPS=0.",
            show_default="two a GPU, or one",
        ),
    ] = None,
    ray: Annotated[str | None, Option(help="A Ray cluster to run on: auto, or its address.")] = None,
    slurm: Annotated[
        str | None, Option(help="Run through Slurm, with submitit's options: timeout_min=600,gpus_per_node=1,...")
    ] = None,
    runs: Annotated[Path, Option(help="Folder that holds the run folders.")] = Path("runs"),
    out: Annotated[
        Path | None,
        Option(
            help="Folder of the report; for several studies, the folder that holds their folders.",
            show_default="reports/<study>, at other scales reports/<study>-<scale>",
        ),
    ] = None,
    dry_run: Annotated[bool, Option("--dry-run", help="Show what would run, and stop.")] = False,
    row: Annotated[
        list[str] | None,
        Option(help="Run only what rows with this label need; * matches any text; may be given again."),
    ] = None,
    ignore_kept: Annotated[bool, Option("--ignore-kept", help="Also train the runs whose results are kept.")] = False,
    settings: Settings = None,
    json_file: JsonFile = None,
    modules: Modules = None,
) -> None:
    """Run what tables or figures of the paper need and is not done yet, then write their reports.

    Example: `asrnorm reproduce table1 --scale short --seeds 3 --row 'RSDA*'`, or `asrnorm reproduce table5 table6
    table7`, whose runs then share the workers. After an interruption the same command resumes it. Kept results count as
    done: those in `results/`, else those that come with this package.
    """
    with json_output(json_file) as write_json:
        import_modules(modules)
        from asrnorm.launch import gather_jobs, launch
        from asrnorm.launch.view import LaunchView
        from asrnorm.studies import get_study, plan

        size = check_scale(scale)
        for folder, option in ((runs, "--runs"), (out, "--out")):
            if folder is not None:
                check_folder(folder, option)
        fields = {field.name for field in dataclasses.fields(RunConfig)} - {"recipe", "scale", "seed"}
        assignments = read_assignments(settings or (), fields)
        studies = [change_runs(get_study(name), assignments) for name in expand_names(study)]
        chosen = {each.name: tuple(range(each.seeds if seeds is None else seeds)) for each in studies}
        kept = None if ignore_kept else find_kept()
        try:
            plans = [
                plan(each, seeds=chosen[each.name], scale=size, runs=runs.absolute(), kept=kept)
                for each in choose_rows(studies, row or ())
            ]
            jobs = gather_jobs(*plans, imports=tuple(modules or ()))
            if settings:
                from asrnorm.training.assembly import check_config

                for job in jobs:  # before every run raises the same error in a process of its own
                    check_config(job.config)
        except InputError as error:  # an invalid value of --set
            raise WrongCallError(str(error)) from error
        _check_images(jobs, runs.absolute(), kept)
        todo = [job for job in jobs if job.missing()]
        if ray is not None and slurm is not None:
            raise typer.BadParameter("--ray and --slurm exclude each other: leave one out")
        if dry_run:
            write_json(json.dumps([_describe(job) for job in jobs], indent=2))
            _print_plan(plans, jobs)
            note_missing_data(_configs_to_train(todo), "the runs")
            return
        if not todo and any(job.is_kept for job in jobs):
            typer.echo(f"{_count(jobs, 0)}; --ignore-kept trains them again")
        outcome = None
        if todo:
            check_data(_configs_to_train(todo))
            executor = open_executor(todo, workers, ray, slurm, runs)
            with LaunchView() as view:
                view.say(f"{_count(jobs, len(todo))}; {len(todo)} to do, {executor.slots()} at once")
                outcome = launch(jobs, executor, view=view)
            if outcome.left:
                raise InputError(
                    f"stopped with {len(outcome.done)} of {len(jobs)} runs done; the same command resumes the others"
                )
        reports = []
        for each in studies:
            folder = report_folder(each.name, size) if out is None else out / each.name if len(studies) > 1 else out
            reports.append(_write_report(each, runs, kept, size, chosen[each.name], folder))
        write_json(json.dumps(reports if len(reports) > 1 else reports[0], indent=2))
        if outcome is not None and outcome.failed:
            _print_failures(outcome)
            raise typer.Exit(1)


def _check_images(jobs: Sequence["Job"], runs: Path, kept: Path | None) -> None:
    """Raise `InputError` if a finished run on the user's images was trained on others than there are now."""
    own = [job for job in jobs if job.config.suite.name not in PUBLISHED and not job.missing()]
    if not own:
        return
    from asrnorm.studies.store import find_results
    from asrnorm.training.environment import check_finished, has_other_images

    results = find_results(runs, kept).results if any(job.is_kept for job in own) else {}
    for job in own:
        if not job.is_kept:
            check_finished(job.folder / "env.json", job.config)
        elif has_other_images(job.config, results[content_hash(job.config)].result.origin.get("listing", "")):
            raise InputError(
                f"{job.name}: the source images have changed since its result was kept; restore them, or train it "
                "again with --ignore-kept"
            )


def _configs_to_train(todo: Sequence["Job"]) -> list[RunConfig]:
    return [job.config for job in todo if not (job.folder / "result.json").exists()]


def _count(jobs: Sequence["Job"], todo: int) -> str:
    kept = sum(job.is_kept for job in jobs)
    return f"{len(jobs) - todo} of {len(jobs)} runs are done" + (f", {kept} of them kept before" if kept else "")


def _describe(job: "Job") -> dict[str, Any]:
    commands = [command.label for command in job.missing()]
    state = "kept" if job.is_kept else "done" if not commands else "begun" if job.folder.exists() else "not begun"
    return {"run": job.name, "state": state, "todo": commands}


def _print_plan(plans: Sequence["Plan"], jobs: Sequence["Job"]) -> None:
    for problem in dict.fromkeys(problem for planned in plans for problem in planned.problems):
        typer.echo(f"warning: {problem}", err=True)
    table = make_table("run", "state", "to do", wrap=["to do"])
    for row in map(_describe, jobs):
        table.add_row(Text(row["run"]), row["state"], Text(", ".join(row["todo"])))
    console = Console(soft_wrap=True)
    console.print(table)
    todo = sum(bool(job.missing()) for job in jobs)
    console.print(f"{_count(jobs, todo)}, {todo} to do", highlight=False)


def open_executor(
    todo: Sequence["Job"], workers: int | None, ray: str | None, slurm: str | None, runs: Path
) -> "Executor":
    """Return the executor for jobs: the Ray cluster at an address, Slurm with options as typed, or this machine."""
    if ray is not None:
        from asrnorm.launch.ray_cluster import RayExecutor

        return RayExecutor(ray, workers)
    if slurm is not None:
        from asrnorm.launch.slurm import SlurmExecutor

        options = read_assignments(filter(None, slurm.split(",")), option="--slurm")
        parsed = {name: parse(value) for name, value in options.items()}
        return SlurmExecutor(runs.absolute() / ".slurm", parsed, workers)
    from asrnorm.launch import LocalExecutor

    uses_gpu = any(job.config.device in ("auto", "cuda") for job in todo)
    return LocalExecutor(workers, find_gpus() if uses_gpu else ())


def find_gpus() -> list[str]:
    """Return the GPUs that this process may use, in the notation of `CUDA_VISIBLE_DEVICES`."""
    import torch

    from asrnorm.launch.mps import visible_gpu

    return [visible_gpu(index) for index in range(torch.cuda.device_count())]


def _write_report(
    study: "Study", runs: Path, kept: Path | None, scale: Scale, seeds: Sequence[int], out: Path
) -> dict[str, Any]:
    from asrnorm.reporting.study import write_report
    from asrnorm.studies import collect

    if "samples" in study.figures:
        for line in draw_samples(out / "samples.png"):
            typer.echo(line)
    collected = collect(study, runs=runs, kept=kept, scale=scale, seeds=seeds)
    for warning in collected.warnings:
        typer.echo(f"warning: {warning}", err=True)
    files = write_report(collected, out)
    for path in files:
        if path.suffix in (".md", ".html"):
            typer.echo(f"report: {path}")
    return describe_report(collected, files)


def draw_samples(path: Path, suites: Sequence[str] = _SAMPLE_SUITES) -> list[str]:
    """Write a PNG with one image per class and domain, suite below suite; return a line for each missing suite."""
    from PIL import Image

    from asrnorm import data
    from asrnorm.data.contact_sheet import SuiteDomains, contact_sheet

    lines, sheets = [], []
    for name in suites:
        with TemporaryDirectory() as folder:
            try:
                suite = data.create_suite(name)
                overview = contact_sheet(SuiteDomains(suite), suite.classes, folder, per_class=1)[0]
            except InputError as error:
                lines.append(f"samples: {name} is left out: {error}")
                continue
            with Image.open(overview) as image:
                sheets.append(image.convert("RGB"))
    if sheets:
        size = max(sheet.width for sheet in sheets), sum(sheet.height for sheet in sheets)
        joined, top = Image.new("RGB", size, "white"), 0
        for sheet in sheets:
            joined.paste(sheet, (0, top))
            top += sheet.height
        with replacing(path) as temporary:
            joined.save(temporary, "PNG")
    return lines


def _print_failures(outcome: "Outcome") -> None:
    table = make_table("run", "error", wrap=["error"], title="failed")
    for failure in outcome.failed:
        table.add_row(Text(failure.job.name), Text(failure.error))
    console = Console(stderr=True)
    console.print(table)
    log = outcome.failed[0].job.folder / "launch.log"
    console.print(f"the output of a run is in its launch.log, such as {log}", markup=False, soft_wrap=True)
