"""Rows that table 1 copies from M-ADA and ME-ADA: one difference between programs each."""

import dataclasses

import pytest

from asrnorm.core.config import content_hash
from asrnorm.studies import get_study
from asrnorm.studies.digits import COLUMNS

METHODS = ("ERM", "M-ADA", "ME-ADA")


@pytest.fixture
def rows():
    return {row.label: row for row in get_study("digits-protocol").rows}


def config_of(row, seed=0):
    (run,) = row.cells["Avg."].runs
    return run.config(seed, "paper")


@pytest.mark.parametrize("method", METHODS)
def test_the_plain_rows_are_the_runs_and_the_numbers_of_table_1(rows, method):
    there = {row.label: row for row in get_study("table1").rows}[method]
    assert content_hash(config_of(rows[method])) == content_hash(config_of(there))
    for row in rows.values():
        if row.label.split(",")[0] == method:
            assert [row.cells[column].printed for column in COLUMNS] == [
                there.cells[column].printed for column in COLUMNS
            ]


@pytest.mark.parametrize("method", METHODS)
def test_another_initialization_changes_the_network_alone(rows, method):
    plain, changed = config_of(rows[method]), config_of(rows[f"{method}, PyTorch's initialization"])
    assert changed.model.args == {"init": "torch"}
    assert dataclasses.replace(changed, model=plain.model) == plain


def test_the_oracle_row_is_the_same_training_looked_at_every_100_steps(rows):
    last = config_of(rows["ME-ADA, PyTorch's initialization"])
    oracle = config_of(rows["ME-ADA, PyTorch's initialization, oracle"])
    assert (oracle.selection, oracle.evaluate_every) == ("oracle", 100)
    assert dataclasses.replace(oracle, selection=last.selection, evaluate_every=last.evaluate_every) == last


def test_the_shuffled_row_takes_images_in_another_order_alone(rows):
    ordered = config_of(rows["ERM, PyTorch's initialization"])
    shuffled = config_of(rows["ERM, PyTorch's initialization, shuffled"])
    assert (ordered.shuffle, shuffled.shuffle) == (False, True)
    assert dataclasses.replace(shuffled, shuffle=False) == ordered
