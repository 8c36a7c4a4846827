"""Tests over seeds: equal to SciPy's, and to the paper's where its numbers let themselves be checked."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from asrnorm.core.errors import InputError
from asrnorm.studies import get_study
from asrnorm.studies.statistics import (
    Summary,
    bootstrap_interval,
    compare,
    correct_holm,
    paired_p,
    pooled_p,
    summarize,
    welch_p,
)

OURS = [52.8, 49.1, 57.0, 51.2, 54.4]
THEIRS = [47.4, 51.9, 44.0, 46.6]
samples = st.lists(st.floats(-100, 100).map(lambda x: round(x, 3)), min_size=3, max_size=8)


def printed_summary(mean, deviation, n, *, ddof=0):
    """Printed numbers as a summary, whose deviation is over n - 1; `ddof` is that of the printed one."""
    return Summary(mean=mean, deviation=deviation * math.sqrt((n - ddof) / (n - 1)), n=n)


def test_the_paper_s_p_values_against_as_follow_from_its_printed_numbers():
    study = get_study("table10")
    cells = {row.label: row.cells for row in study.rows}
    pair = next(pair for pair in study.comparisons if pair.against == "ADA + AS")
    assert len(pair.printed) == 5
    for column, printed in pair.printed.items():
        sides = [cells[label][column].printed for label in (pair.row, pair.against)]
        p = pooled_p(*(printed_summary(side.value, side.deviation, 5, ddof=0) for side in sides))
        assert round(p, 3) == printed.value, column


def test_no_other_reading_of_the_deviations_gives_them():
    sides = [(91.5, 0.2), (91.4, 0.1)]
    for n, ddof in ((5, 1), (4, 0), (6, 0)):
        p = pooled_p(*(printed_summary(mean, deviation, n, ddof=ddof) for mean, deviation in sides))
        assert round(p, 3) != 0.199


def test_the_paper_s_p_values_against_sn_do_not_follow_where_that_is_noted():
    study = get_study("table10")
    cells = {row.label: row.cells for row in study.rows}
    pair = next(pair for pair in study.comparisons if pair.against == "ADA + SN (IN, LN)")
    for column, printed in pair.printed.items():
        sides = [cells[label][column].printed for label in (pair.row, pair.against)]
        p = pooled_p(*(printed_summary(side.value, side.deviation, 5) for side in sides))
        follows = p < printed.value if printed.below else round(p, 3) == printed.value
        assert follows != bool(printed.note), column


@pytest.mark.parametrize(("better", "alternative"), [("higher", "greater"), ("lower", "less")])
def test_equal_to_scipy(better, alternative):
    first, second = summarize(OURS), summarize(THEIRS)
    scipy_pooled = stats.ttest_ind(OURS, THEIRS, alternative=alternative).pvalue
    scipy_welch = stats.ttest_ind(OURS, THEIRS, alternative=alternative, equal_var=False).pvalue
    assert pooled_p(first, second, better=better) == pytest.approx(scipy_pooled, rel=1e-9)
    assert welch_p(first, second, better=better) == pytest.approx(scipy_welch, rel=1e-9)
    scipy_paired = stats.ttest_rel(OURS[:4], THEIRS, alternative=alternative).pvalue
    paired = paired_p(dict(enumerate(OURS)), dict(enumerate(THEIRS)), better=better)
    assert paired == pytest.approx(scipy_paired, rel=1e-9)


@given(samples, samples)
def test_the_two_directions_add_to_one(ours, theirs):
    first, second = summarize(ours), summarize(theirs)
    for test in (pooled_p, welch_p):
        up, down = test(first, second, better="higher"), test(first, second, better="lower")
        assert (up is None) == (down is None)
        assert up is None or up + down == pytest.approx(1)


def test_deviations_are_over_n_less_one():
    summary = summarize([1.0, 2.0, 4.0])
    assert summary.deviation == pytest.approx(math.sqrt(7 / 3))
    assert summarize([1.0]).deviation is None
    # What the paper prints, over n, comes back as the same sample over n - 1.
    assert printed_summary(7 / 3, math.sqrt(14 / 9), 3).deviation == pytest.approx(summary.deviation)
    with pytest.raises(InputError):
        summarize([])


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf])
def test_values_that_are_not_finite_are_refused(wrong):
    with pytest.raises(InputError, match="not finite have no mean"):
        summarize([1.0, wrong, 2.0])


def test_fewer_than_three_seeds_give_no_p_value_and_no_interval():
    test = compare({0: 1.0, 1: 2.0}, {0: 0.0, 1: 0.5, 2: 0.7}, row="a", against="b", column="c", better="higher")
    assert (test.pooled, test.welch, test.paired, test.low, test.high) == (None,) * 5
    assert (test.n, test.n_against) == (2, 3)


def test_pairs_are_made_by_seed_and_not_by_place():
    ours = {0: 1.0, 1: 5.0, 2: 3.0, 7: 100.0}
    theirs = {2: 2.0, 1: 4.5, 0: 0.2}
    test = compare(ours, theirs, row="a", against="b", column="c", better="higher")
    assert test.paired == pytest.approx(stats.ttest_rel([1.0, 5.0, 3.0], [0.2, 4.5, 2.0], alternative="greater").pvalue)


def test_values_without_any_spread_give_no_p_value():
    same = summarize([1.0, 1.0, 1.0])
    assert pooled_p(same, summarize([2.0, 2.0, 2.0])) is None
    assert welch_p(same, same) is None
    assert paired_p({0: 2.0, 1: 3.0, 2: 4.0}, {0: 1.0, 1: 2.0, 2: 3.0}) is None


@given(st.integers(0, 10_000), st.integers(3, 8), st.floats(-50, 50))
def test_equal_values_have_no_spread_however_they_are_rounded(count, n, gap):
    value = 100 * (count / 10_000)
    same = summarize([value] * n)
    assert same.deviation == 0
    assert pooled_p(same, same) is None
    assert welch_p(same, summarize([0.7] * n)) is None
    rising = {seed: value + 7.31 * seed for seed in range(n)}
    assert paired_p({seed: number + gap for seed, number in rising.items()}, rising) is None


def test_the_smallest_spread_of_real_accuracies_counts():
    almost = summarize([98.76, 98.76, 98.77])
    assert almost.deviation == pytest.approx(0.00577, abs=1e-5)
    assert pooled_p(almost, summarize([98.70, 98.70, 98.70])) < 0.001


def test_the_bootstrap_is_the_same_every_time_and_about_that_of_scipy():
    interval = bootstrap_interval(OURS, THEIRS)
    assert interval == bootstrap_interval(OURS, THEIRS)
    assert interval != bootstrap_interval(OURS, THEIRS, seed=1)
    difference = summarize(OURS).mean - summarize(THEIRS).mean
    assert interval[0] < difference < interval[1]
    reference = stats.bootstrap(
        (OURS, THEIRS), lambda x, y, axis: x.mean(axis) - y.mean(axis), method="percentile", n_resamples=10_000, rng=0
    ).confidence_interval
    assert interval == pytest.approx((reference.low, reference.high), abs=0.2)


@given(st.lists(st.none() | st.floats(0, 1), max_size=12))
def test_holm_never_lowers_a_p_value_and_keeps_their_order(p_values):
    corrected = correct_holm(p_values)
    pairs = sorted((p, c) for p, c in zip(p_values, corrected, strict=True) if p is not None)
    assert all(p <= c <= 1 for p, c in pairs)
    assert [c for _, c in pairs] == sorted(c for _, c in pairs)
    assert all((p is None) == (c is None) for p, c in zip(p_values, corrected, strict=True))
    if pairs:
        assert pairs[0][1] == pytest.approx(min(1, pairs[0][0] * len(pairs)))
