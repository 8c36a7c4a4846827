"""Defines a study: a table or figure cell by cell, with the run behind each cell and the printed number."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal

from asrnorm.core.config import RunConfig, Scale, content_hash, override
from asrnorm.core.registry import Registry
from asrnorm.recipes import recipe
from asrnorm.recipes.base import shrink

Unit = Literal["percent", "plain", "millions"]
Quantity = Literal["accuracy", "error", "brier", "ece", "nll", "adversarial", "parameters", "validation"]
Better = Literal["higher", "lower"]

# The file in the run folder that each analysis writes.
ANALYSIS_FILES = {"statistics": "analyses/statistics.npz"}
# The file that training writes when the loss is no longer finite: `{"schema": 1, "message": ...}`.
DIVERGENCE_FILE = "divergence.json"


@dataclass(frozen=True, kw_only=True)
class Printed:
    """A number as the paper prints it, in the table's own unit: 52.8, .024."""

    value: float
    deviation: float | None = None  # the number after the plus-minus sign; the paper's are over n (ddof 0)
    copied_from: str | None = None  # the work that the paper took the number from
    note: str | None = None  # a mistake of the paper and what is right; becomes a footnote
    below: bool = False  # the paper prints "less than" this value, as for p-values
    decimals: int | None = None  # the number of printed decimals; `None` if the number is not from print


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """A finished run scored again under other overrides; its result is `<run>/evaluations/<name>.json`."""

    name: str
    overrides: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class RunSpec:
    """One run, except for its seed and scale.

    Example:
        >>> spec = RunSpec(recipe="cifar10c.ada_bn",
        ...     evaluation=Evaluation(name="bn_test-16", overrides={"norm": "bn_test", "evaluate_batch": 16}))
        >>> spec.config(3, "short").norm.name, spec.scored_config(3, "short").norm.name
        ('bn', 'bn_test')
    """

    recipe: str
    options: Mapping[str, Any] = field(default_factory=dict)  # keyword arguments of the recipe, `source` and `target`
    overrides: Mapping[str, Any] = field(default_factory=dict)  # as `--set`, by the study; smoke scale cuts large ones
    assignments: Mapping[str, Any] = field(default_factory=dict)  # as `--set`, by the user; they hold at every scale
    evaluation: Evaluation | None = None  # another scoring of the finished run, if the cell shows that
    analyses: tuple[str, ...] = ()  # files made from the finished run; keys of `ANALYSIS_FILES`
    may_diverge: bool = False  # a loss that is not finite is an outcome, recorded and not tried again

    def __hash__(self) -> int:
        names = (*sorted(self.options), *sorted(self.overrides), *sorted(self.assignments))
        return hash((self.recipe, names, self.analyses))

    @property
    def sees_test_batches(self) -> bool:
        """Whether it is scored with the statistics of batches of test images; other runs see one image at a time."""
        again = {} if self.evaluation is None else self.evaluation.overrides
        norm = {**self.overrides, **self.assignments, **again}.get("norm")
        return norm == "bn_test" if norm else self.recipe.endswith("_bn_test")

    def config(self, seed: int, scale: Scale) -> RunConfig:
        """Return the config of the run itself."""
        given = {**self.overrides, **self.assignments}
        built: RunConfig = recipe(self.recipe, scale=scale, seed=seed, **self.options, **given)
        if scale != "smoke" or not self.overrides:
            return built
        # The recipe has already taken source and target.
        last = {name: value for name, value in self.assignments.items() if name not in ("suite.source", "suite.target")}
        return override(shrink(built), last)

    def scored_config(self, seed: int, scale: Scale) -> RunConfig:
        """Return the config under which it is scored; its content hash identifies the result."""
        config = self.config(seed, scale)
        return config if self.evaluation is None else override(config, self.evaluation.overrides)


@lru_cache(maxsize=4096)
def scored_hash(spec: RunSpec, seed: int, scale: Scale) -> str:
    """Return the hash that identifies a run's result; cached, since many cells share a run."""
    identity: str = content_hash(spec.scored_config(seed, scale))
    return identity


@dataclass(frozen=True, kw_only=True)
class Measure:
    """What to read off a result."""

    quantity: Quantity
    domains: tuple[str, ...] = ()  # patterns of domain names, as `*/5` or `svhn`; empty means all targets
    on_source: bool = False  # take the source's test images instead of the targets
    attack: str = ""  # key of `RunResult.adversarial`
    rule: str = ""  # key of `RunResult.validation`, of the quantity of that name
    unit: Unit = "percent"  # multiplies by 100; `millions` divides by a million
    better: Better = "higher"
    baseline: int = 0  # for `parameters`, show the relative increase over this count instead of the count


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One number of a table."""

    measure: Measure
    runs: tuple[RunSpec, ...] = ()  # several are averaged seed by seed, as a row's average over four sources
    printed: Printed | None = None  # the paper's number


@dataclass(frozen=True, kw_only=True)
class Row:
    """A line of a table."""

    label: str  # unique in its study
    cells: Mapping[str, Cell]  # by column; a missing column is a dash in the paper
    group: str = ""  # heading above a block of rows
    not_run: str | None = None  # why the row has only the paper's numbers
    found_on_targets: bool = False  # settings were found by accuracy on unseen domains; never marked as best


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """A one-sided comparison of two rows, column by column: is `row` better than `against`?"""

    row: str
    against: str
    printed: Mapping[str, Printed] = field(default_factory=dict)  # the paper's p-values by column
    differences: Mapping[str, Printed] = field(default_factory=dict)  # the paper's row of differences ("delta to")


@dataclass(frozen=True, kw_only=True)
class Study:
    """A table or figure: its rows, the runs behind them and the paper's numbers."""

    name: str
    title: str
    caption: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    comparisons: tuple[Comparison, ...] = ()
    figures: tuple[str, ...] = ()  # keys of `asrnorm.reporting.figures.FIGURES`
    footnotes: tuple[str, ...] = ()
    seeds: int = 5  # runs per cell in the paper, or our default if the paper does not say
    suite: str = ""  # registry name
    transposed: bool = False  # the paper prints these rows as columns
    shown_only: tuple[str, ...] = ()  # columns that must not guide a choice; reports mark no best value there
    added: tuple[str, ...] = ()  # columns that the paper lacks and that repeat others: rows are not compared in them

    @property
    def needs_logs(self) -> bool:
        """Whether a figure shows the logs of the runs."""
        return bool({"lambdas", "residual"} & set(self.figures))


STUDIES: Registry[Callable[[], Study]] = Registry("study")


def get_study(name: str) -> Study:
    """Return a study by its name; raise `UnknownNameError`, with the nearest name, if there is none.

    Example:
        >>> get_study("table3").columns
        ('Artpaint', 'Cartoon', 'Sketch', 'Photo', 'Avg.')
    """
    return STUDIES[name]()


def list_studies() -> tuple[str, ...]:
    """Return the names of all studies, tables first, in the order of the paper.

    Example:
        >>> list_studies()[:2], list_studies()[9]
        (('table1', 'table2'), 'table10')
    """

    def order(name: str) -> tuple[int, int, str]:
        number = name.removeprefix("table")
        if number != name and number.isdecimal():
            return 0, int(number), name
        return (1 if name.startswith("fig-") else 2), 0, name

    return tuple(sorted(STUDIES.names(), key=order))
