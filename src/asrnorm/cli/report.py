"""`asrnorm report`: what is known of a study, or of a folder of runs, as tables, figures and one page."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text
from typer import Argument, Option

from asrnorm.cli.completion import complete_study
from asrnorm.cli.options import (
    KEPT,
    JsonFile,
    Modules,
    check_folder,
    check_scale,
    find_kept,
    import_modules,
    json_output,
)
from asrnorm.cli.study_choice import PAPER, expand_names, report_folder
from asrnorm.cli.table import make_table
from asrnorm.core.errors import UnknownNameError, WrongCallError, count_of, describe_unknown, printable

if TYPE_CHECKING:
    from asrnorm.studies import Collected

_RUNS = Path("runs")
_ENDLESS = 10_000  # columns: room to measure a table in


def report(
    what: Annotated[
        list[str],
        Argument(
            metavar="STUDY_OR_FOLDER",
            help=f"Names of studies, or folders of runs; {PAPER}: all tables and figures of the paper.",
            show_default=False,
            autocompletion=complete_study,
        ),
    ],
    out: Annotated[
        Path | None,
        Option(
            help="Folder of the report; for several, the folder that holds their folders.",
            show_default="reports/<study>, at other scales reports/<study>-<scale>, or <folder>/report",
        ),
    ] = None,
    scale: Annotated[str, Option(help="Scale of the runs of a study: paper, short or smoke.")] = "paper",
    runs: Annotated[Path, Option(help="Folder that holds the run folders of a study.")] = _RUNS,
    seeds: Annotated[int | None, Option(min=1, help="Seeds 0 to N - 1 of a study.", show_default="the study's")] = None,
    keep_results: Annotated[bool, Option("--keep", help="First add finished runs to results/STUDY.jsonl.")] = False,
    renew: Annotated[bool, Option("--renew", help="With --keep: replace runs kept at another commit.")] = False,
    json_file: JsonFile = None,
    modules: Modules = None,
) -> None:
    """Write Markdown, CSV, LaTeX, figures and one self-contained HTML page. Nothing is run.

    Example: `asrnorm report table3`, or `asrnorm report runs` for whatever is there. Kept results count: those in
    `results/`, else those that come with this package.
    """
    from asrnorm.reporting.folder import collect_folder
    from asrnorm.reporting.study import write_report
    from asrnorm.reporting.text import count_tasks
    from asrnorm.studies import STUDIES, collect, get_study

    import_modules(modules)
    if renew and not keep_results:
        raise WrongCallError("--renew says how to keep results: give --keep too")
    names = expand_names(what)
    if out is not None:
        check_folder(out, "--out")
    numbers = None if seeds is None else range(seeds)
    options: dict[str, Any] = {"runs": runs, "scale": check_scale(scale), "seeds": numbers}
    of_studies = scale != "paper" or seeds is not None or runs != _RUNS
    for name in names:
        if name not in STUDIES:
            _check_folder_of_runs(name, keep_results)
            if of_studies:
                raise WrongCallError(f"--scale, --seeds and --runs are of studies, and {name!r} is a folder of runs")
    if runs != _RUNS and not runs.is_dir():
        raise WrongCallError(f"--runs {runs}: no such folder")
    places = {}
    for name in names:
        if out is None:
            places[name] = report_folder(name, scale) if name in STUDIES else Path(name, "report")
        else:
            places[name] = out / Path(name).name if len(names) > 1 else out
    if len(set(places.values())) < len(places):
        raise WrongCallError("two of these would be reported in one folder: report them one by one")
    described = []
    with json_output(json_file, quiet=True) as write_json:
        for name, folder in places.items():
            if keep_results:
                _keep(name, options, renew=renew)
            is_study = name in STUDIES
            found = collect(get_study(name), kept=find_kept(), **options) if is_study else collect_folder(Path(name))
            files = write_report(found, folder)
            described.append(describe_report(found, files))
            write_json(json.dumps(described if len(names) > 1 else described[0], indent=2))
            _print(found)
            for warning in () if json_file == Path("-") else found.warnings:  # which the JSON has
                typer.echo(f"warning: {printable(warning)}", err=True)
            if found.missing:
                command = f"asrnorm reproduce {name} --scale {scale}"
                command += ("" if runs == _RUNS else f" --runs {runs}") + (f" --seeds {seeds}" if seeds else "")
                typer.echo(f"missing: {count_tasks(found.missing)}; {command} makes them")
            typer.echo(f"report: {files[-1]}")


def _check_folder_of_runs(name: str, keep_results: bool) -> None:
    """Raise before anything is written if a name that is no study's cannot be reported."""
    from asrnorm.studies import STUDIES

    if keep_results:
        raise WrongCallError(f"--keep is for studies, and {name!r} is none; asrnorm list studies shows them")
    if not Path(name).is_dir():
        if Path(name).name == name:
            raise UnknownNameError(f"{describe_unknown('study', name, STUDIES)}; nor is it a folder")
        raise WrongCallError(f"{name}: no such folder, and no study of that name; asrnorm list studies shows them")


def _keep(name: str, options: dict[str, Any], *, renew: bool) -> None:
    from asrnorm.studies import archive, get_study

    done = archive(get_study(name), kept=KEPT, renew=renew, **options)
    counts = f"{count_of(len(done.added), 'result')} added, {len(done.replaced)} replaced"
    typer.echo(f"{done.path}: {counts}, {len(done.same)} of {options['runs']} kept before", err=True)
    advice = "of the same commit" if renew else "--renew takes those of another commit"
    if count := len(done.repeated):
        typer.echo(f"{count} made once more with the same numbers; the kept ones stay ({advice})", err=True)
    if count := len(done.differing):
        first = printable(str(done.differing[0]))
        stay = f"were kept with other numbers and stay as they were ({advice})"
        typer.echo(f"warning: {count} {stay}, such as {first}", err=True)


def _print(found: "Collected") -> None:
    from asrnorm.reporting.folder import DASHED
    from asrnorm.reporting.sheet import build_sheet

    sheet = build_sheet(found)
    if not sheet.rows:
        return
    # As Text: rich would take brackets in a string for markup.
    headings = [Text(""), *(Text(printable(column)) for column in sheet.columns)]
    table = make_table(*headings, wrap=headings, numbers=True, title=escape(printable(found.study.title)))
    for row in sheet.rows:
        words = []
        for cell in sheet.in_row(row):
            ours = cell.ours or ("-" if cell.state == "absent" else cell.state)
            words.append(f"{ours}\n({cell.paper})" if cell.paper else ours)
        table.add_row(Text(printable(row.label)), *(Text(word) for word in words))
    _print_uncut(table)
    typer.echo("mean ± standard deviation (n - 1)" + ("; in brackets the paper's numbers" if found.printed else ""))
    if DASHED in found.footnotes:
        typer.echo(DASHED)


def _print_uncut(table: Table) -> None:
    """Print a table whose words stay whole: folded between them on a terminal, as wide as it is where there is none."""
    console = Console()
    endless = console.options.update(max_width=_ENDLESS)
    whole = Measurement.get(console, endless, table).maximum
    if console.is_terminal and whole > console.width:
        for column in table.columns:
            parts = (column.header, *column.cells)
            column.min_width = max(Measurement.get(console, endless, part).minimum for part in parts)
        whole = Measurement.get(console, endless, table).minimum
    Console(width=max(console.width, whole)).print(table, crop=False)


def describe_report(found: "Collected", files: list[Path]) -> dict[str, Any]:
    """Return every cell of a report, its warnings and the names of its files, as plain JSON values."""
    from asrnorm.reporting.sheet import build_sheet

    sheet = build_sheet(found)
    cells = [
        {
            "row": row.label,
            "column": cell.column,
            "state": cell.state,
            "ours": cell.measured.mean if cell.measured else None,
            "deviation": cell.measured.deviation if cell.measured else None,
            "n": cell.measured.n if cell.measured else 0,
            "paper": cell.printed.value if cell.printed else None,
            "difference": cell.gap,
            "p": {test.result.against: test.result.pooled for test in cell.tests},
        }
        for row in sheet.rows
        for cell in sheet.in_row(row)
    ]
    return {
        "schema": 1,
        "study": found.study.name,
        "scale": found.scale,
        "cells": cells,
        "missing": len(found.missing),
        "warnings": list(found.warnings),
        "files": [str(path) for path in files],
    }
