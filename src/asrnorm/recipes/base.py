"""The registry of recipes, their three scales, and how a suite's recipes are read and registered."""

import copy
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

from asrnorm.core.config import Choice, RunConfig, Scale, override
from asrnorm.core.reading import read_yaml
from asrnorm.core.registry import Registry

Names = str | Sequence[str] | None
Build = Callable[..., RunConfig]

RECIPES: Registry[Build] = Registry("recipe")

# All but `dsbn` and `dson`, which need the domain of every image: with one source they are `bn` and much like `bin`.
NORMS = ("ar", "as", "asr", "bin", "bn", "bn_test", "gn", "ilm", "in", "ln", "none", "sn", "sn_in_ln")

# The largest value of each method option in a smoke run: one growth phase of a few images, one search of a few tuples.
_SMOKE_OPTIONS = {
    "rounds": 1,
    "interval": 2,
    "ascent_steps": 2,
    "candidates": 3,
    "population": 2,
    "generations": 1,
    "search_images": 16,
    "wae_epochs": 1,
    "phase_steps": 3,
}

_OWN_NETWORK = ("ttt",)  # methods whose network no smaller one can replace


@cache
def read_table(name: str) -> Mapping[str, Any]:
    """Return the content of a YAML file of this package, which may have anchors and merge keys."""
    table: dict[str, Any] = read_yaml(Path(__file__).with_name(name), aliases=True)
    return table


@dataclass(frozen=True)
class Variant:
    """What a method changes in a suite's ERM config: options of the method, and other fields."""

    summary: str
    options: Mapping[str, Any] = field(default_factory=dict)  # `{"epochs": 3}` is three epochs in steps
    changes: Mapping[str, Any] = field(default_factory=dict)  # as `--set` names them
    norms: Sequence[str] = ()  # of its recipes; empty means all norms of the suite
    norm_options: Mapping[str, dict[str, Any]] = field(default_factory=dict)  # by the name of the norm

    def apply(self, config: RunConfig, method: str) -> RunConfig:
        """Return an ERM config changed to this method, under the name of the new recipe."""
        options = {
            name: value["epochs"] * config.evaluate_every if isinstance(value, Mapping) and "epochs" in value else value
            for name, value in self.options.items()
        }
        name = f"{config.suite.name}.{method}_{config.norm.name}"
        norm = replace(config.norm, args=self.norm_options.get(config.norm.name, config.norm.args))
        changed = replace(config, recipe=name, norm=norm, method=Choice(name=method, args=options))
        return override(changed, self.changes)  # which copies: configs of two recipes share nothing


@dataclass(frozen=True, kw_only=True)
class SuiteRecipes:
    """The recipes of a suite."""

    erm: Build  # returns the ERM config of a norm, at the paper's scale; it may also take `source` and `target`
    norms: Sequence[str] = NORMS
    erm_norms: Sequence[str] = ()  # of ERM's recipes; empty means `norms`
    short_by: int = 5  # `short` has so many times fewer steps
    short_from: int = 0  # recipes with fewer steps than this are short already
    smoke_model: Choice | None = None  # a smaller network
    smoke_size: int | None = None  # the suite's option `size`

    def at_scale(self, config: RunConfig, scale: Scale) -> RunConfig:
        """Return a config of the paper's scale at another one.

        `short` divides the steps, and the schedule follows; searches and ascents keep their intervals. `smoke` takes
        six steps.
        """
        if scale == "short":
            divisor = self.short_by if config.steps >= self.short_from else 1
            return replace(config, scale=scale, steps=config.steps // divisor)
        if scale == "smoke":
            size = {} if self.smoke_size is None else {"size": self.smoke_size}
            suite = replace(config.suite, args={**config.suite.args, **size})
            smaller = None if config.method.name in _OWN_NETWORK else copy.deepcopy(self.smoke_model)
            return replace(shrink(config), suite=suite, model=smaller or config.model)
        return config


def shrink(config: RunConfig) -> RunConfig:
    """Return a config of six small steps; shrinking it again changes nothing.

    Example:
        >>> from asrnorm.recipes import recipe
        >>> small = shrink(recipe("cifar10c.ada_bn"))
        >>> small.steps, small.method.args["ascent_steps"], small == shrink(small)
        (6, 2, True)
    """
    given = config.method.args
    args = {**given, **{name: min(given[name], most) for name, most in _SMOKE_OPTIONS.items() if name in given}}
    if "growth" in args:
        args |= {"growth": "volpi", "count": 16}  # the only growth rule that does not take the whole set
    few = {} if config.average.name == "none" else {"reestimate": 2}
    return replace(
        config,
        scale="smoke",
        method=replace(config.method, args=args),
        average=replace(config.average, args={**config.average.args, **few}),
        steps=6,
        batch_size=8,
        evaluate_every=min(config.evaluate_every, 3),
        evaluate_batch=min(config.evaluate_batch, 16),
        evaluate_limit=32,
        precision="float32",  # the fastest on a CPU
        checkpoint_every=3,
        log_every=1,
        lambda_every=3,
    )


def join_names(names: Names) -> str | list[str] | None:
    """Return names of domains as one text with commas, or as a list if one of several contains a comma."""
    if names is None or isinstance(names, str):
        return names
    names = tuple(dict.fromkeys(names))
    return list(names) if len(names) > 1 and any("," in name for name in names) else ",".join(names)


def register_suite(suite: str, recipes: SuiteRecipes, variants: Mapping[str, Variant]) -> None:
    """Register `<suite>.<method>_<norm>` for ERM and every other method, as `variants` has them, with their norms."""
    summary = (inspect.getdoc(recipes.erm) or "").partition("\n")[0]
    methods = {"erm": Variant(summary, norms=recipes.erm_norms), **variants}
    for method, variant in methods.items():
        for norm in variant.norms or recipes.norms:
            entry = build_entry(recipes, partial(_vary, recipes.erm, variant, method, norm))
            entry.__doc__ = f"{variant.summary.rstrip('.')}; norm `{norm}`."
            RECIPES.register(f"{suite}.{method}_{norm}")(entry)


def _vary(erm: Build, variant: Variant, method: str, norm: str, **domains: Names) -> RunConfig:
    return variant.apply(erm(norm, **domains), method)


def build_entry(recipes: SuiteRecipes, build: Build) -> Build:
    """Return the function of a recipe that `build` makes at the paper's scale.

    Its signature says whether the suite has a choice of domains.
    """

    def make(*, scale: Scale = "paper") -> RunConfig:
        return recipes.at_scale(build(), scale)

    def make_of_domains(*, scale: Scale = "paper", source: Names = None, target: Names = None) -> RunConfig:
        return recipes.at_scale(build(source=source, target=target), scale)

    return make_of_domains if "source" in inspect.signature(recipes.erm).parameters else make
