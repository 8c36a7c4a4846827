"""`asrnorm list`: what can be named in recipes and on the command line."""

import json
from fnmatch import fnmatchcase
from importlib import import_module
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from asrnorm.cli.options import Modules, import_modules
from asrnorm.core.errors import UnknownNameError, describe_unknown
from asrnorm.core.registry import Registry

# Where each registry lives; imported when asked for, since most of them load torch.
REGISTRIES = {
    "methods": ("asrnorm.methods", "METHODS"),
    "models": ("asrnorm.models", "MODELS"),
    "norms": ("asrnorm.norms", "NORMS"),
    "recipes": ("asrnorm.recipes", "RECIPES"),
    "studies": ("asrnorm.studies", "STUDIES"),
    "suites": ("asrnorm.data", "SUITES"),
}

_KINDS = ", ".join(sorted(REGISTRIES))


def list_registry(
    kind: Annotated[str, typer.Argument(help=f"One of: {_KINDS}.", show_default=False)],
    pattern: Annotated[
        str, typer.Argument(help="Only names of this form; * matches any text.", show_default="all")
    ] = "*",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON: name, summary, options.")] = False,
    modules: Modules = None,
) -> None:
    """List the names of a registry, each with what it is and its options.

    Example: `asrnorm list norms`, `asrnorm list recipes 'folder.*asr'`
    """
    if kind not in REGISTRIES:
        raise UnknownNameError(describe_unknown("registry", kind, REGISTRIES))
    import_modules(modules)
    module, name = REGISTRIES[kind]
    room = import_module(module)
    rows = describe(getattr(room, name))
    if kind == "studies":  # in the order of the paper, where table2 comes before table10
        order = room.list_studies()
        rows.sort(key=lambda row: order.index(row["name"]))
    known = [row["name"] for row in rows]
    rows = [row for row in rows if fnmatchcase(row["name"], pattern)]
    if not rows and known:
        raise UnknownNameError(describe_unknown(f"name among the {kind}", pattern, known))
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
        return
    table = Table(box=None, pad_edge=False)
    for heading in ("name", "what it is", "options"):
        table.add_column(heading, no_wrap=heading == "name", overflow="fold")
    for row in rows:
        options = ", ".join(f"{option}={value}" for option, value in row["options"].items())
        table.add_row(row["name"], escape(row["summary"]), escape(options))
    Console().print(table)


def describe(registry: Registry[Any]) -> list[dict[str, Any]]:
    """Return name, summary and options with their defaults of every entry."""
    return [
        {
            "name": name,
            "summary": registry.summary(name),
            "options": {
                option: _default(parameter.default)
                for option, parameter in registry.options(name).items()
                if option not in ("device", "dtype")
            },
        }
        for name in registry.names()
    ]


def _default(value: object) -> object:
    return (
        value
        if value is None or isinstance(value, bool | int | float | str)
        else getattr(value, "__name__", str(value))
    )
