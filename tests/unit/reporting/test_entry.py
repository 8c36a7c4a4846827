from dataclasses import replace

import pytest

from asrnorm.reporting.cell_table import cell_table
from asrnorm.reporting.entry import lay_out, show, show_measured, show_p, show_printed, show_signed, show_spread
from asrnorm.reporting.latex import to_latex_table
from asrnorm.reporting.table import to_markdown
from asrnorm.studies import Printed, collect, get_study
from helpers.made_up_run import make_up_runs


@pytest.fixture
def sheet(small):
    return lay_out(small)


def test_every_cell_has_its_state(sheet):
    states = {row.label: [entry.state for entry in sheet.of(row)] for row in sheet.rows}
    assert states["ERM"] == ["measured"] * 3
    assert states["CCSA"] == ["not run"] * 3
    assert states["ADA"] == ["missing"] * 3


def test_a_row_that_ran_without_the_images_of_a_column_is_not_missing_there(tmp_path):
    study = get_study("table1")
    make_up_runs(study, tmp_path, seeds=[0], gone=["syn"], skip=lambda spec, seed: "ada_" in spec.recipe)
    sheet = lay_out(collect(study, runs=tmp_path, scale="smoke", seeds=[0]))
    states = {label: entry.state for (label, column), entry in sheet.entries.items() if column == "SYN"}
    assert (states["RSDA"], states["ADA"], states["CCSA"]) == ("no data", "missing", "not run")
    assert sheet.entries["RSDA", "USPS"].state == "measured"


def test_the_difference_is_ours_less_the_papers_and_absent_without_both(sheet):
    entry = sheet.entries["ERM", "SVHN"]
    assert entry.difference == pytest.approx(entry.measured.mean - 27.8)
    assert sheet.entries["ADA", "SVHN"].difference is None
    assert sheet.entries["RSDA + IN", "SVHN"].difference is None


def test_footnotes_are_numbered_once_and_say_where_a_number_is_from_and_what_slipped(sheet):
    assert sheet.footnotes[:2] == ("The paper's number is copied from M-ADA.", "It averages to 65.3.")
    assert sheet.entries["ERM", "SVHN"].marks == sheet.entries["CCSA", "SVHN"].marks == (1,)
    assert sheet.entries["RSDA", "Avg."].marks == (2,)
    assert sheet.entries["RSDA", "SVHN"].marks == ()
    assert sheet.notes[0] == "A remark on the whole."


def test_a_diverged_cell_is_an_outcome_not_a_gap(small):
    sheet = lay_out(replace(small, diverged={("ADA", "SVHN"): (0, 2)}))
    assert sheet.entries["ADA", "SVHN"].state == "diverged"
    assert sheet.entries["ADA", "SVHN"].diverged == (0, 2)


def test_numbers_are_shown_in_full_width(small):
    measured = small.cells["ERM", "SVHN"]
    assert show_measured(measured, 1) == f"{measured.mean:.1f} ± {measured.deviation:.1f}"
    assert "±" not in show_measured(replace(measured, deviation=None), 1)
    assert show(-1.25, 2) == "\N{MINUS SIGN}1.25"
    assert show_signed(0.01, 1) == "0.0"
    assert show_p(0.0004) == "< 0.001"
    assert show_printed(Printed(value=11.18), 2) == "11.18"


def test_a_p_value_is_below_a_thousandth_where_three_decimals_would_be_zero():
    assert [show_p(p) for p in (0.00049, 0.00051, 0.0014, 0.004)] == ["< 0.001", "0.001", "0.001", "0.004"]


def test_a_deviation_is_zero_only_where_nothing_spreads(small):
    assert [show_spread(value, 1) for value in (0.0, 0.04, 0.06, 1.25)] == ["0.0", "0.04", "0.1", "1.2"]
    measured = replace(small.cells["ERM", "SVHN"], mean=0.02434, deviation=0.00003)
    assert show_measured(measured, 4) == "0.0243 ± 0.00003"


def test_our_brier_scores_have_a_decimal_more_than_the_papers(tmp_path):
    study = get_study("table6")
    make_up_runs(study, tmp_path)
    found = collect(study, runs=tmp_path, scale="smoke", seeds=[0, 1, 2])
    entry = lay_out(found).entries["ADA + ASR-Norm", "Level 5"]
    mean, deviation = entry.measured.mean, entry.measured.deviation
    assert f"{mean:.4f} ± {deviation:.4f}**<br>(0.037)" in to_markdown(found)
    assert rf"{mean:.4f}$\pm${deviation:.4f}" in to_latex_table(found)
    assert f'{mean:.4f} <span class="spread">± {deviation:.4f}<' in cell_table(lay_out(found), lambda entry: [])
    test = next(test for test in found.tests if test.column == "Level 5")
    assert f"| Level 5 | {show_signed(test.difference, 4)} | {show(test.low, 4)} to " in to_markdown(found)
