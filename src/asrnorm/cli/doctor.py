"""`asrnorm doctor`: what this machine has, what is missing, and how to get it."""

import json
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from asrnorm.diagnosis import Finding, examine

_MARKS = {
    "ok": "[green]ok[/green]",
    "missing": "[red]missing[/red]",
    "broken": "[red]broken[/red]",
    "optional": "[yellow]optional[/yellow]",
}


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
        state = "optional" if finding.state == "missing" and not finding.required else finding.state
        table.add_row(finding.name, _MARKS[state], escape(finding.detail), escape(finding.remedy))
    Console().print(table)
    if all(finding.state == "ok" for finding in findings if finding.required):
        typer.echo("All that every command needs is there; what is optional adds what its line says.")
    if any("asrnorm[" in finding.remedy for finding in findings):
        typer.echo("Installed from a checkout, asrnorm[...] is .[...] in its folder.")
