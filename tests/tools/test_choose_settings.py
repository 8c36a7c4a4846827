"""The choice among the rows of a search: paired gains, the rule, and changes of several groups in one config."""

from types import SimpleNamespace

import pytest

from asrnorm.studies import get_study
from asrnorm.studies.spec import scored_hash
from tools.choose_settings import SCORE, Gain, choose, combine, read_gains

STUDY = get_study("pacs-search")
POINTS = {
    "IN": [9] * 8,  # a norm is never chosen
    "stages": [1, -1, 1, -1, 1, -1, 1, -1],  # no gain
    "Weight 6": [1, 2, 1, 2, 1, 2, 1, 2],
    "Weight 0": [5, -4, 5, -4, 5, -4, 5, -4],  # a smaller gain than the other weight
    "lr .02": [8, -7, 8, -7, 8, -7, 8, -7],  # a gain below its standard error
    "Photometric .9": [2, 3, 2, 3, 2, 3, 2, 3],
    "Pro-RandConv .3": [1, 2, 1, 2],
    "With affine maps": [1, 2, 1, 2],
}


@pytest.fixture(scope="module")
def store():
    def runs(label):
        return next(row for row in STUDY.rows if row.label == label).cells["Score"].runs

    base = [scored_hash(run, 0, "paper") for run in runs("As it was")]
    values = dict.fromkeys(base, 0.5)
    for label, points in POINTS.items():
        own = [scored_hash(run, 0, "paper") for run in runs(label)]
        changed = [identity for identity in own if identity not in base]
        values |= {identity: 0.5 + gain / 100 for identity, gain in zip(changed, points, strict=True)}
    result = {k: SimpleNamespace(result=SimpleNamespace(validation={SCORE: v})) for k, v in values.items()}
    return SimpleNamespace(results=result)


def test_gains_are_over_the_runs_that_differ(store):
    gains = {gain.label: gain for gain in read_gains(STUDY, store)}
    assert gains.keys() == POINTS.keys()  # rows without results are left out
    assert (gains["Weight 6"].mean, gains["Weight 6"].pairs) == (pytest.approx(1.5), 8)
    assert (gains["Pro-RandConv .3"].mean, gains["Pro-RandConv .3"].pairs) == (pytest.approx(1.5), 4)
    assert gains["Weight 6"].error == pytest.approx((2 / 7) ** 0.5 / 2 / 2**0.5)


def test_only_runs_of_the_given_scale_are_read(store):
    assert read_gains(STUDY, store, "short") == []


def test_a_row_is_chosen_where_it_gains_more_than_the_standard_error(store):
    chosen = [gain.label for gain in choose(read_gains(STUDY, store))]
    assert chosen == ["Weight 6", "Photometric .9", "Pro-RandConv .3", "With affine maps"]


def test_changes_of_all_groups_come_together(store):
    fields = combine(STUDY, choose(read_gains(STUDY, store)))
    plain, view = fields.pop("method.views")
    assert fields == {"method.weight": 6.0}
    assert plain == "none"
    assert view == [
        {"name": "photometric", "share": 0.9},
        {"name": "edges", "share": 0.25},
        {"name": "pro_randconv", "share": 0.3},
        {"name": "fourier", "share": 0.3},
        "affine",
    ]


NOISE, RANDCONV = {"name": "noise", "share": 0.25}, {"name": "randconv", "share": 0.25}


@pytest.mark.parametrize(
    ("label", "views"),
    [
        ("One changed view", ["none", ["augmix", NOISE]]),
        ("No noise in images", ["none", ["augmix"], ["augmix"]]),
        ("With RandConv", ["none", ["augmix", NOISE, RANDCONV], ["augmix", NOISE, RANDCONV]]),
    ],
)
def test_all_changed_views_follow_a_chosen_row_in_content_and_number(label, views):
    study = get_study("cifar-search")
    run = next(row for row in study.rows if row.label == label).cells["Score"].runs[0]
    gain = Gain(label, "Parts", 1.0, 0.5, 2, {"method.views": run.overrides["method.views"]})
    assert combine(study, [gain]) == {"method.views": views}
