"""`asrnorm doctor`: what this machine has, what is missing, and how to get it."""

import json
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from asrnorm.diagnosis import Finding, examine

_MARKS = {"ok": "[green]ok[/green]", "missing": "[yellow]missing[/yellow]", "broken": "[red]broken[/red]"}


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON: name, state, detail, remedy.")] = False,
) -> None:
    """Say what this machine has, what will fall back, and how to get what is missing.

    Example: `asrnorm doctor`. Exit status 1 if something that everything needs is broken.
    """
    findings = examine()
    if as_json:
        typer.echo(json.dumps([finding._asdict() for finding in findings], indent=2))
    else:
        _print(findings)
    if any(finding.required and finding.state != "ok" for finding in findings):
        raise typer.Exit(1)


def _print(findings: list[Finding]) -> None:
    table = Table(box=None, pad_edge=False)
    for heading in ("part", "state", "what was found", "how to get it"):
        table.add_column(heading, no_wrap=heading in ("part", "state"), overflow="fold")
    for finding in findings:
        table.add_row(finding.name, _MARKS[finding.state], escape(finding.detail), escape(finding.remedy))
    Console().print(table)
