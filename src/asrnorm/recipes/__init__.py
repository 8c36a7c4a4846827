"""Recipes: complete configs by name, `<suite>.<method>_<norm>`. Opens without torch."""

import difflib
from typing import Any, get_args

from asrnorm.core.config import RunConfig, Scale, override
from asrnorm.core.errors import InputError, UnknownNameError, describe_unknown
from asrnorm.recipes import cifar10c as cifar10c
from asrnorm.recipes import digits as digits
from asrnorm.recipes import digits_mini as digits_mini
from asrnorm.recipes import folder as folder
from asrnorm.recipes import pacs as pacs
from asrnorm.recipes.base import NORMS, Names
from asrnorm.recipes.base import RECIPES as RECIPES


def list_recipes() -> tuple[str, ...]:
    """Return the names of all recipes.

    Example:
        >>> "digits.rsda_asr" in list_recipes()
        True
    """
    return RECIPES.names()


def recipe(
    name: str,
    *,
    scale: Scale = "paper",
    seed: int = 0,
    source: Names = None,
    target: Names = None,
    **assignments: Any,
) -> RunConfig:
    """Return a complete config by its name.

    Args:
        name: `<suite>.<method>_<norm>`; `list_recipes` has them all.
        scale: `paper`, `short` (a fifth of the steps or so) or `smoke` (seconds on a CPU).
        seed: of everything that is drawn.
        source: domains to train on, where the suite has a choice. The number of steps follows it on PACS.
        target: domains to hold up on; alone, all others are trained on.
        **assignments: any field as `--set` names it, such as `steps=500` or `**{"optim.lr": 0.01}`; applied last.

    Raises:
        UnknownNameError: no such recipe, scale, domain or field; the nearest is named.
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
        del assignments["suite"]  # the recipe's own, whose domains it would take away
    if "suite" in assignments:  # another one, with domains of its own
        assignments |= {f"suite.{side}": names for side, names in chosen.items()}
        chosen = {}
    if chosen and not {"source", "target"} <= set(RECIPES.options(name)):
        raise InputError(f"recipe {name!r} has no choice of domains: leave out {' and '.join(chosen)}")
    config = RECIPES[name](scale=scale, **chosen)
    return override(config, {"seed": seed, **assignments})


def _describe_unknown(name: str) -> str:
    """One line without the hundreds of names: the nearest one and the command that lists the rest."""
    for norm in sorted(NORMS, key=len, reverse=True):  # `sn_in_ln` ends in `ln`
        near = f"{name.removesuffix(f'_{norm}')}_asr"
        if name.endswith(f"_{norm}") and near in RECIPES:
            return f"no recipe {name!r}; that is {near} --set norm={norm}"
    close = difflib.get_close_matches(name, RECIPES.names(), n=1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    return f"unknown recipe {name!r}; {hint}`asrnorm list recipes` shows all {len(RECIPES)}, as <suite>.<method>_<norm>"
