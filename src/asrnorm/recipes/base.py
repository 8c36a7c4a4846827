"""The registry of recipes, and how a suite fills its grid of methods and norms."""

import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

from asrnorm.core.config import Choice, RunConfig, Scale
from asrnorm.core.registry import Registry

Names = str | Sequence[str] | None
Build = Callable[..., RunConfig]
Scaling = Callable[[RunConfig, Scale], RunConfig]

RECIPES: Registry[Build] = Registry("recipe")

# All but `dsbn`, which needs the domain of every image: no protocol here gives it, and with one source it is `bn`.
NORMS = ("ar", "as", "asr", "bin", "bn", "bn_test", "gn", "ilm", "in", "ln", "none", "sn", "sn_in_ln")
# Wide ResNets and ResNets do not train at these learning rates without a norm.
RESNET_NORMS = tuple(norm for norm in NORMS if norm != "none")


def join_names(names: Names) -> str | list[str] | None:
    """Return names of domains as one text with commas; a list where one of several has a comma of its own.

    Example:
        >>> join_names(["day", "dusk"]), join_names(["Bern, day", "dusk"]), join_names(["Bern, day"])
        ('day,dusk', ['Bern, day', 'dusk'], 'Bern, day')
    """
    if names is None or isinstance(names, str):
        return names
    names = tuple(dict.fromkeys(names))
    return list(names) if len(names) > 1 and any("," in name for name in names) else ",".join(names)


def vary(config: RunConfig, method: str, **options: Any) -> RunConfig:
    """Return the config with another method, and the name that goes with it.

    Example:
        >>> from asrnorm.recipes.digits import erm
        >>> config = vary(erm("asr"), "rda", tuple_length=3)
        >>> config.recipe, config.method.args
        ('digits.rda_asr', {'tuple_length': 3})
    """
    name = f"{config.suite.name}.{method}_{config.norm.name}"
    return replace(config, recipe=name, method=Choice(name=method, args=options))


def register_grid(suite: str, methods: Iterable[Build], norms: Iterable[str], scaling: Scaling) -> None:
    """Register `<suite>.<method>_<norm>` for every pair, from functions of a norm that return a whole config.

    A function has the name of its method. One that also takes `source` and `target` makes recipes with a choice of
    domains.
    """
    for build, norm in product(methods, norms):
        has_domains = "source" in inspect.signature(build).parameters
        entry = _choosing_entry(build, norm, scaling) if has_domains else _fixed_entry(build, norm, scaling)
        entry.__doc__ = f"{(inspect.getdoc(build) or '').partition(chr(10))[0].rstrip('.')}; norm `{norm}`."
        RECIPES.register(f"{suite}.{build.__name__}_{norm}")(entry)


def _fixed_entry(build: Build, norm: str, scaling: Scaling) -> Build:
    def make(*, scale: Scale = "paper") -> RunConfig:
        return scaling(build(norm), scale)

    return make


def _choosing_entry(build: Build, norm: str, scaling: Scaling) -> Build:
    def make(*, scale: Scale = "paper", source: Names = None, target: Names = None) -> RunConfig:
        return scaling(build(norm, source=source, target=target), scale)

    return make
