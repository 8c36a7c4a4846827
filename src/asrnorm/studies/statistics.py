"""Means, deviations and significance tests over seeds.

The paper's p-values are those of a one-sided two-sample t-test with pooled variance: with five runs per row and
deviations over n (ddof 0), the printed numbers of ADA+ASR and ADA+AS give the printed p-values to three decimals. Our
deviations are over n - 1. Reports also show Welch's test and the test paired by seed.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from asrnorm.core.errors import InputError
from asrnorm.studies.spec import Better

FEWEST = 3  # seeds per row for a p-value; two say next to nothing about a spread
_RESAMPLES = 10_000
_ROUNDING = 1e-12  # relative; about ten thousand times the error of adding a few numbers


@dataclass(frozen=True, kw_only=True)
class Summary:
    """Mean, sample deviation (over n - 1; `None` for a single value) and count."""

    mean: float
    deviation: float | None
    n: int


@dataclass(frozen=True, kw_only=True)
class TestResult:
    """One row against another in one column: is the first one better?

    p-values and interval are `None` if a row has fewer than three seeds, `paired` if they have fewer than three in
    common. If no values vary, p-values are `None` and both ends of the interval are the difference.
    """

    __test__: ClassVar[bool] = False  # pytest would collect the class by its name

    row: str
    against: str
    column: str
    better: Better
    n: int
    n_against: int
    difference: float  # mean of `row` minus mean of `against`, in the unit of the column
    low: float | None  # ends of the 95 % bootstrap interval of the difference
    high: float | None
    pooled: float | None  # p of the one-sided two-sample t-test with pooled variance, the paper's
    welch: float | None  # p of Welch's test, which does not assume equal variances
    paired: float | None  # p of the one-sided t-test on the differences at the seeds that both rows have
    holm: float | None = None  # `pooled` after Holm's correction for all tests of the study


def summarize(values: Sequence[float], *, size: float | None = None) -> Summary:
    """Return mean, deviation with ddof 1, and count.

    A deviation that is only rounding error of equal values counts as zero; `size` is the magnitude of the numbers that
    the values were computed from, by default that of the values.
    """
    if not values:
        raise InputError("no values to summarize")
    if not all(map(math.isfinite, values)):
        raise InputError(f"values that are not finite have no mean: {', '.join(f'{value:g}' for value in values)}")
    n = len(values)
    mean = math.fsum(values) / n
    if n == 1:
        return Summary(mean=mean, deviation=None, n=1)
    deviation = math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (n - 1))
    rounding = _ROUNDING * (max(map(abs, values)) if size is None else size)
    return Summary(mean=mean, deviation=deviation if deviation > rounding else 0.0, n=n)


def pooled_p(ours: Summary, theirs: Summary, *, better: Better = "higher") -> float | None:
    """Return p of the one-sided two-sample t-test with pooled variance; `None` below three values per side."""
    if min(ours.n, theirs.n) < FEWEST:
        return None
    freedom = ours.n + theirs.n - 2
    variance = ((ours.n - 1) * _variance(ours) + (theirs.n - 1) * _variance(theirs)) / freedom
    return _tail(ours.mean - theirs.mean, variance * (1 / ours.n + 1 / theirs.n), freedom, better)


def welch_p(ours: Summary, theirs: Summary, *, better: Better = "higher") -> float | None:
    """Return p of Welch's one-sided test, which does not assume equal variances; `None` below three values per side."""
    if min(ours.n, theirs.n) < FEWEST:
        return None
    parts = [_variance(side) / side.n for side in (ours, theirs)]
    total = sum(parts)
    if total == 0:
        return None
    freedom = total**2 / sum(part**2 / (side.n - 1) for part, side in zip(parts, (ours, theirs), strict=True))
    return _tail(ours.mean - theirs.mean, total, freedom, better)


def paired_p(ours: Mapping[int, float], theirs: Mapping[int, float], *, better: Better = "higher") -> float | None:
    """Return p of the one-sided t-test on differences of values by seed; `None` below three seeds in common."""
    seeds = sorted(set(ours) & set(theirs))
    if len(seeds) < FEWEST:
        return None
    size = max(abs(side[seed]) for side in (ours, theirs) for seed in seeds)
    summary = summarize([ours[seed] - theirs[seed] for seed in seeds], size=size)
    return _tail(summary.mean, _variance(summary) / summary.n, summary.n - 1, better)


def bootstrap_interval(ours: Sequence[float], theirs: Sequence[float], *, seed: int = 0) -> tuple[float, float] | None:
    """Return the 95 % percentile interval of the difference of means over 10,000 resamples, each side on its own.

    With five values per side it is somewhat too narrow, as every bootstrap of so few values is.
    """
    if min(len(ours), len(theirs)) < FEWEST:
        return None
    import numpy

    generator = numpy.random.default_rng(seed)

    def means(values: Sequence[float]) -> "numpy.ndarray":
        drawn = generator.integers(0, len(values), size=(_RESAMPLES, len(values)))
        return numpy.asarray(values, dtype=float)[drawn].mean(axis=1)

    low, high = numpy.quantile(means(ours) - means(theirs), [0.025, 0.975])
    return float(low), float(high)


def correct_holm(p_values: Sequence[float | None]) -> tuple[float | None, ...]:
    """Return p-values after Holm's step-down correction for as many tests as there are p-values."""
    order = sorted((p, index) for index, p in enumerate(p_values) if p is not None)
    corrected: list[float | None] = [None] * len(p_values)
    highest = 0.0
    for rank, (p, index) in enumerate(order):
        highest = max(highest, min(1.0, p * (len(order) - rank)))
        corrected[index] = highest
    return tuple(corrected)


def compare(
    ours: Mapping[int, float], theirs: Mapping[int, float], *, row: str, against: str, column: str, better: Better
) -> TestResult:
    """Return all tests of two rows in one column, from their values by seed."""
    first, second = summarize(list(ours.values())), summarize(list(theirs.values()))
    low, high = bootstrap_interval(list(ours.values()), list(theirs.values())) or (None, None)
    return TestResult(
        row=row,
        against=against,
        column=column,
        better=better,
        n=first.n,
        n_against=second.n,
        difference=first.mean - second.mean,
        low=low,
        high=high,
        pooled=pooled_p(first, second, better=better),
        welch=welch_p(first, second, better=better),
        paired=paired_p(ours, theirs, better=better),
    )


def _variance(side: Summary) -> float:
    return (side.deviation or 0.0) ** 2


def _tail(difference: float, variance: float, freedom: float, better: Better) -> float | None:
    if variance == 0:
        return None
    # scipy.stats takes ten times as long to import.
    from scipy.special import stdtr  # type: ignore[import-untyped]

    sign = 1 if better == "higher" else -1
    return float(stdtr(freedom, -sign * difference / math.sqrt(variance)))
