from dataclasses import replace

import pytest

from asrnorm.report.entry import lay_out, show, show_measured, show_p, show_printed, show_signed
from asrnorm.studies import Printed, Row, collect, get_study
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


def test_only_our_best_is_marked(sheet):
    best = {label for (label, column), entry in sheet.entries.items() if column == "SVHN" and entry.best}
    means = {row.label: sheet.entries[row.label, "SVHN"].measured for row in sheet.rows}
    highest = max((m.mean, label) for label, m in means.items() if m)[1]
    assert best == {highest}


def test_lower_is_best_where_the_measure_says_so(small):
    rows = tuple(
        Row(
            label=row.label,
            group=row.group,
            not_run=row.not_run,
            cells={c: replace(cell, measure=replace(cell.measure, better="lower")) for c, cell in row.cells.items()},
        )
        for row in small.study.rows
    )
    sheet = lay_out(replace(small, study=replace(small.study, rows=rows)))
    assert sheet.entries["ERM", "SVHN"].best
    assert not sheet.entries["RSDA + ASR-Norm", "SVHN"].best


def test_numbers_that_are_printed_alike_are_both_best(small):
    first, second = small.cells["ERM", "SVHN"], small.cells["RSDA", "SVHN"]
    alike = {("ERM", "SVHN"): replace(first, mean=90.02), ("RSDA", "SVHN"): replace(second, mean=90.04)}
    sheet = lay_out(replace(small, cells={**small.cells, **alike}))
    assert {row for (row, column), entry in sheet.entries.items() if column == "SVHN" and entry.best} == {"ERM", "RSDA"}


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


@pytest.mark.parametrize("change", [{"quantity": "brier"}, {"better": "lower"}])
def test_numbers_of_two_kinds_have_no_best(small, change):
    def changed(row):
        cells = {c: replace(cell, measure=replace(cell.measure, **change)) for c, cell in row.cells.items()}
        return replace(row, cells=cells) if row.label == "ERM" else row

    rows = tuple(map(changed, small.study.rows))
    sheet = lay_out(replace(small, study=replace(small.study, rows=rows)))
    assert not any(entry.best for entry in sheet.entries.values())


def test_no_number_of_parameters_is_the_best(small):
    def counted(row):
        measures = {c: replace(cell.measure, quantity="parameters") for c, cell in row.cells.items()}
        return replace(row, cells={c: replace(cell, measure=measures[c]) for c, cell in row.cells.items()})

    sheet = lay_out(replace(small, study=replace(small.study, rows=tuple(map(counted, small.study.rows)))))
    assert not any(entry.best for entry in sheet.entries.values())


def test_a_p_value_is_below_a_thousandth_where_three_decimals_would_be_zero():
    assert [show_p(p) for p in (0.00049, 0.00051, 0.0014, 0.004)] == ["< 0.001", "0.001", "0.001", "0.004"]
