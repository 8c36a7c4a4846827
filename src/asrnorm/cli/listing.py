"""`asrnorm list`: the names that recipes and the command line take."""

import json
from fnmatch import fnmatchcase
from importlib import import_module
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from asrnorm.cli.options import Modules, import_modules
from asrnorm.cli.table import make_table
from asrnorm.core.errors import UnknownNameError, describe_unknown
from asrnorm.core.registry import Registry

# Module and name of each registry; most of the modules load torch.
REGISTRIES = {
    "augmentations": ("asrnorm.data.augment", "AUGMENTATIONS"),
    "blocks": ("asrnorm.conversion", "BLOCKS"),
    "methods": ("asrnorm.methods", "METHODS"),
    "models": ("asrnorm.models", "MODELS"),
    "norms": ("asrnorm.norms", "NORMS"),
    "recipes": ("asrnorm.recipes", "RECIPES"),
    "studies": ("asrnorm.studies", "STUDIES"),
    "suites": ("asrnorm.data", "SUITES"),
}

_KINDS = ", ".join(sorted(REGISTRIES))


def list_registry(
    kind: Annotated[str, typer.Argument(help=f"One of: {_KINDS}.")],
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
    module_name, name = REGISTRIES[kind]
    module = import_module(module_name)
    rows = describe(getattr(module, name))
    if kind == "studies":  # in the paper's order, with table2 before table10
        order = module.list_studies()
        rows.sort(key=lambda row: order.index(row["name"]))
    known = [row["name"] for row in rows]
    rows = [row for row in rows if fnmatchcase(row["name"], pattern)]
    if not rows and known:
        raise UnknownNameError(describe_unknown(f"name among the {kind}", pattern, known))
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
        return
    table = make_table("name", "what it is", "options", wrap=["what it is", "options"])
    for row in rows:
        options = ", ".join(f"{option}={value}" for option, value in row["options"].items())
        table.add_row(row["name"], escape(row["summary"]), escape(options))
    Console().print(table)


def describe(registry: Registry[Any]) -> list[dict[str, Any]]:
    """Return the name, summary and options with defaults of every entry."""
    rows = []
    for name in registry.names():
        options = {option: parameter.default for option, parameter in registry.options(name).items()}
        for option, default in options.items():
            if default is not None and not isinstance(default, bool | int | float | str):
                options[option] = getattr(default, "__name__", str(default))
        shown = {option: default for option, default in options.items() if option not in ("device", "dtype")}
        rows.append({"name": name, "summary": registry.summary(name), "options": shown})
    return rows
