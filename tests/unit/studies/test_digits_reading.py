"""Readings of ASR-Norm on Digits: one change of the recipe each, compared by source images."""

import pytest

from asrnorm.core.config import content_hash
from asrnorm.studies import collect, get_study
from asrnorm.studies.digits import OURS
from asrnorm.studies.digits_reading import CHANGES
from asrnorm.studies.reading import CHOOSE_BY, COLUMNS, SHOWN
from helpers.study_case import put_result


@pytest.fixture
def study():
    return get_study("digits-reading")


def config_of(row, scale="paper"):
    (run,) = row.cells[SHOWN].runs
    return run.config(0, scale)


def test_what_may_be_chosen_by_stands_first_and_is_of_the_source(study):
    assert study.columns == COLUMNS
    assert study.shown_only == (SHOWN,)
    for row in study.rows:
        assert [row.cells[column].measure.quantity for column in COLUMNS] == ["validation", "validation", "accuracy"]
        assert [row.cells[column].measure.rule for column in CHOOSE_BY.values()] == list(CHOOSE_BY)


def test_rows_are_different_runs_and_the_first_three_those_of_the_tables(study):
    hashes = {row.label: content_hash(config_of(row)) for row in study.rows}
    assert hashes.pop(f"{OURS}, confined") == hashes[OURS]  # scored in another way
    assert len(set(hashes.values())) == len(hashes)
    printed = {row.label: row for row in get_study("table9").rows}
    for row in study.rows[:3]:
        (run,) = printed[row.label].cells["Avg."].runs
        assert content_hash(run.config(0, "paper")) == content_hash(config_of(row))


@pytest.mark.parametrize(("number", "fields"), list(enumerate(CHANGES.values(), start=3)))
def test_a_reading_changes_what_it_names_and_nothing_else(study, number, fields):
    plain, changed = config_of(study.rows[2]), config_of(study.rows[number])
    norm = {name.removeprefix("norm."): value for name, value in fields.items() if name.startswith("norm.")}
    optim = {name.removeprefix("optim."): value for name, value in fields.items() if name.startswith("optim.")}
    assert len(norm) + len(optim) == len(fields)
    assert changed.norm.args == {**plain.norm.args, **norm}
    assert {name: getattr(changed.optim, name) for name in optim} == optim
    same = ("suite", "model", "method", "steps", "batch_size", "precision", "selection")
    assert [getattr(changed, name) for name in same] == [getattr(plain, name) for name in same]


@pytest.mark.parametrize("scale", ["paper", "short"])
def test_the_last_row_looks_at_the_source_often_enough_to_choose(study, scale):
    config = config_of(study.rows[-1], scale)
    assert config.selection == "shifted-val"
    assert config.steps % config.evaluate_every == 0
    assert config.steps // config.evaluate_every >= 10


def test_the_confined_row_is_that_of_the_tables(study):
    (here,), (there,) = (
        next(row for row in one.rows if row.label == f"{OURS}, confined").cells.popitem()[1].runs
        for one in (study, get_study("table9"))
    )
    assert here == there
    assert here.scored_config(0, "paper").confine == 2_000


def test_scores_on_the_source_are_read_from_the_results(study, tmp_path):
    row = study.rows[0]
    (run,) = row.cells[SHOWN].runs
    put_result(tmp_path, run, 0, {"svhn": 0.4, "usps": 0.8}, validation={"source-val": 0.99, "shifted-val": 0.97})
    cells = collect(study, runs=tmp_path, seeds=[0]).cells
    assert [cells[row.label, column].mean for column in COLUMNS] == pytest.approx([99, 97, 60])
