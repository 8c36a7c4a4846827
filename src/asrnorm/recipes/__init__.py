"""Recipes: complete configs by name, `<suite>.<method>_<norm>`."""

import difflib
from typing import Any, get_args

from asrnorm.core.config import RunConfig, Scale, override
from asrnorm.core.errors import InputError, UnknownNameError, describe_unknown
from asrnorm.recipes import best as best
from asrnorm.recipes.base import NORMS, Names, Variant, read_table, register_suite
from asrnorm.recipes.base import RECIPES as RECIPES
from asrnorm.recipes.erm import SUITES

for _suite, _recipes in SUITES.items():
    _rows = {name: row[_suite] for name, row in read_table("methods.yaml")["methods"].items() if _suite in row}
    register_suite(_suite, _recipes, {name: Variant(**row) for name, row in _rows.items()})


def list_recipes() -> tuple[str, ...]:
    """Return the names of all recipes.

    Example:
        >>> "digits.rsda_asr" in list_recipes()
        True
    """
    return RECIPES.names()


def recipe(
    name: str, *, scale: Scale = "paper", seed: int = 0, source: Names = None, target: Names = None, **assignments: Any
) -> RunConfig:
    """Return a complete config by its name.

    Args:
        name: `<suite>.<method>_<norm>`; `list_recipes` has them all.
        scale: `paper`, `short` (about a fifth of the steps) or `smoke` (seconds on a CPU).
        seed: of everything random.
        source: domains to train on, if the suite has a choice. On PACS it sets the number of steps.
        target: domains to evaluate on; given alone, all other domains are trained on.
        **assignments: any field as `--set` names it, such as `steps=500` or `**{"optim.lr": 0.01}`; applied last.

    Raises:
        UnknownNameError: no such recipe, scale, domain or field; the message names the nearest.
        InputError: a domain for a suite that has no choice, or one given twice.

    Example:
        >>> config = recipe("pacs.rsc_asr", source="sketch", seed=3, **{"optim.lr": 0.01})
        >>> config.steps, config.optim.lr, config.suite.args
        (810, 0.01, {'source': 'sketch'})
    """
    if name not in RECIPES:
        raise UnknownNameError(_describe_unknown(name))
    if scale not in get_args(Scale):
        raise UnknownNameError(describe_unknown("scale", scale, get_args(Scale)))
    domains = {"source": source, "target": target}
    for side in domains:  # before building, since the number of steps can depend on them
        assigned = assignments.pop(f"suite.{side}", None)
        if assigned and domains[side]:
            raise InputError(f"{side}= and suite.{side}= are both given: leave one out")
        domains[side] = domains[side] or assigned
    chosen = {side: names for side, names in domains.items() if names}
    if assignments.get("suite") == name.partition(".")[0]:
        del assignments["suite"]  # the recipe's own suite; setting it again would drop its domains
    if "suite" in assignments:  # another suite, which takes the domains as its own options
        assignments |= {f"suite.{side}": names for side, names in chosen.items()}
        chosen = {}
    if chosen and not {"source", "target"} <= set(RECIPES.options(name)):
        raise InputError(f"recipe {name!r} has no choice of domains: leave out {' and '.join(chosen)}")
    config = RECIPES[name](scale=scale, **chosen)
    return override(config, {"seed": seed, **assignments})


def _describe_unknown(name: str) -> str:
    """Return one line with the nearest name and the command that lists the rest."""
    for norm in sorted(NORMS, key=len, reverse=True):  # `sn_in_ln` ends in `ln`
        near = f"{name.removesuffix(f'_{norm}')}_asr"
        if name.endswith(f"_{norm}") and near in RECIPES:
            return f"no recipe {name!r}; that is {near} --set norm={norm}"
    close = difflib.get_close_matches(name, RECIPES.names(), n=1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    return f"unknown recipe {name!r}; {hint}`asrnorm list recipes` shows all {len(RECIPES)}, as <suite>.<method>_<norm>"
