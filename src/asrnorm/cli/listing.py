"""`asrnorm list`: the names that recipes and the command line take."""

import json
from collections.abc import Sequence
from fnmatch import fnmatchcase
from importlib import import_module
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from typer import Argument, Option

from asrnorm.cli.options import JsonFile, Modules, import_modules, json_output
from asrnorm.cli.table import make_table
from asrnorm.core.errors import UnknownNameError, describe_unknown
from asrnorm.core.registry import Registry

# Module and name of each registry, and what it holds; most of the modules load torch.
REGISTRIES = {
    "augmentations": ("asrnorm.data.augment", "AUGMENTATIONS", "changes of training images, to be chained"),
    "blocks": ("asrnorm.conversion", "BLOCKS", "layers inserted into a network in training"),
    "methods": ("asrnorm.methods", "METHODS", "training algorithms"),
    "models": ("asrnorm.models", "MODELS", "networks"),
    "norms": ("asrnorm.norms", "NORMS", "normalization layers"),
    "recipes": ("asrnorm.recipes", "RECIPES", "complete settings of a run: suite, method and norm"),
    "studies": ("asrnorm.studies", "STUDIES", "tables and figures of the paper, and our own"),
    "suites": ("asrnorm.data", "SUITES", "data sets with their domains"),
}

_KINDS = ", ".join(sorted(REGISTRIES))


def list_registry(
    kind: Annotated[
        str | None, Argument(help=f"One of: {_KINDS}.", show_default=False, autocompletion=lambda: list(REGISTRIES))
    ] = None,
    pattern: Annotated[str, Argument(help="Only names of this form; * matches any text.", show_default="all")] = "*",
    names_only: Annotated[bool, Option("--names", help="Print the names alone, one on each line.")] = False,
    json_file: JsonFile = None,
    modules: Modules = None,
) -> None:
    """List the names that other commands take: what each is, and its options. Alone, it lists the kinds of names.

    Example: `asrnorm list norms`, `asrnorm list recipes 'folder.*asr'`, `asrnorm list recipes --names`
    """
    with json_output(json_file, quiet=True) as write_json:
        import_modules(modules)
        rows: Any = [{"name": name, "summary": what, "options": {}} for name, (_, _, what) in REGISTRIES.items()]
        if kind is not None:
            rows = _describe_names(kind, pattern)
        write_json(json.dumps(rows, indent=2))
        if names_only:
            typer.echo("\n".join(row["name"] for row in rows))
        elif kind == "recipes" and pattern == "*":
            _print_recipes([row["name"] for row in rows])
        else:
            _print_rows(rows)


def _describe_names(kind: str, pattern: str) -> list[dict[str, Any]]:
    if kind not in REGISTRIES:
        raise UnknownNameError(describe_unknown("kind of names", kind, REGISTRIES))
    module_name, name, _ = REGISTRIES[kind]
    module = import_module(module_name)
    rows = describe(getattr(module, name))
    if kind == "studies":  # in the paper's order, with table2 before table10
        order = module.list_studies()
        rows.sort(key=lambda row: order.index(row["name"]))
    known = [row["name"] for row in rows]
    rows = [row for row in rows if fnmatchcase(row["name"], pattern)]
    if not rows and known:
        raise UnknownNameError(describe_unknown(f"name among the {kind}", pattern, known))
    return rows


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


def _print_rows(rows: Sequence[dict[str, Any]]) -> None:
    headings = ["name", "what it is", *["options"] * any(row["options"] for row in rows)]
    table = make_table(*headings, wrap=headings[1:])
    for row in rows:
        options = ", ".join(f"{option}={value}" for option, value in row["options"].items())
        table.add_row(row["name"], escape(row["summary"]), *[escape(options)] * (len(headings) - 2))
    Console().print(table)


def group_recipes(names: Sequence[str]) -> list[tuple[str, list[str], list[str]]]:
    """Return suites with methods and norms, so that every `<suite>.<method>_<norm>` of a row is a recipe.

    Methods with the same norms share a row; a recipe whose name has no norm is a method without any.
    """
    from asrnorm.recipes.base import NORMS

    norms: dict[tuple[str, str], list[str]] = {}
    for name in names:
        suite, _, rest = name.partition(".")
        other = rest.rpartition("_")[2] if "_" in rest else ""  # a norm that few recipes have
        norm = max((norm for norm in NORMS if rest.endswith(f"_{norm}")), key=len, default=other)
        norms.setdefault((suite, rest.removesuffix(f"_{norm}")), []).extend([norm] * bool(norm))
    rows: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for (suite, method), found in norms.items():
        rows.setdefault((suite, tuple(found)), []).append(method)
    return [(suite, methods, list(found)) for (suite, found), methods in rows.items()]


def _print_recipes(names: Sequence[str]) -> None:
    table = make_table("suite", "methods", "norms", wrap=["methods", "norms"])
    for suite, methods, norms in group_recipes(names):
        table.add_row(suite, " ".join(methods), " ".join(norms))
    Console().print(table)
    typer.echo(f"{len(names)} recipes, named <suite>.<method>_<norm>, such as {names[0]}; --names lists them all")
