"""The stand-in of SYN is scored apart: on the runs of the paper's tables, in a study of its own."""

import pytest

from asrnorm.core.config import content_hash
from asrnorm.studies import get_study, keep
from asrnorm.studies.collect import collect
from asrnorm.studies.digits_stand_in import _LEFT_OUT
from asrnorm.studies.plan import iterate_specs, plan
from helpers.study_case import put_result

PRESENT = {"svhn": 0.5, "mnist_m": 0.8, "usps": 0.9}


@pytest.fixture
def study():
    return get_study("digits-syn-like")


def run_of(study, label, column):
    (run,) = next(row for row in study.rows if row.label == label).cells[column].runs
    return run


def test_it_has_the_runs_of_both_tables_and_no_other(study):
    def hashes(*names):
        return {content_hash(spec.config(2, "paper")) for name in names for spec in iterate_specs(get_study(name))}

    assert hashes("digits-syn-like") == hashes("table1", "table9")


def test_what_it_leaves_out_is_a_row_of_the_tables_and_a_run_of_another_row(study):
    rows = {row.label: row for name in ("table1", "table9") for row in get_study(name).rows}
    assert {row.label for row in study.rows} | set(_LEFT_OUT) == {
        label for label, row in rows.items() if not row.not_run
    }
    assert not {row.label for row in study.rows} & set(_LEFT_OUT)


def test_a_run_is_scored_as_in_its_table_but_for_the_stand_in(study):
    for label, table in (("M-ADA", "table1"), ("RSDA + BN-Test", "table9"), ("RSDA + ASR-Norm", "table9")):
        usual = run_of(get_study(table), label, "Avg.").scored_config(2, "paper")
        scored = run_of(study, label, "SYN-like").scored_config(2, "paper")
        assert scored.suite.args == {**usual.suite.args, "syn_like": True}
        assert (scored.norm, scored.evaluate_batch) == (usual.norm, usual.evaluate_batch)


def test_the_paper_has_no_number_for_it(study):
    assert all(cell.printed is None for row in study.rows for cell in row.cells.values())


def test_the_average_beside_it_leaves_it_out(study, tmp_path):
    put_result(tmp_path, run_of(study, "RSDA", "SYN-like"), 0, {**PRESENT, "syn_like": 0.1}, missing=["syn"])
    cells = collect(study, runs=tmp_path, seeds=[0]).cells
    assert cells["RSDA", "SYN-like"].mean == pytest.approx(10)
    assert cells["RSDA", "SVHN, MNIST-M, USPS"].mean == pytest.approx(100 * (0.5 + 0.8 + 0.9) / 3)


def test_a_run_that_is_kept_without_it_is_still_kept_for_the_paper_s_table(tmp_path):
    table = get_study("table1")
    put_result(tmp_path / "runs", run_of(table, "RSDA", "Avg."), 0, PRESENT, missing=["syn"])
    keep(table, runs=tmp_path / "runs", kept=tmp_path / "kept", scale="paper", seeds=[0])
    planned = plan(table, seeds=[0], scale="paper", runs=tmp_path / "gone", kept=tmp_path / "kept")
    assert [task.spec.recipe for task in planned.tasks if task.state == "kept"] == ["digits.rsda_none"]
