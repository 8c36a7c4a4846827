from dataclasses import replace

import pytest

from asrnorm.reporting.folder import collect_folder
from asrnorm.reporting.sheet import build_sheet, describe_unmarked
from asrnorm.reporting.text import format_number, format_signed
from asrnorm.studies import Evaluation, Row, RunSpec, collect, get_study
from helpers.made_up_run import make_up_runs


@pytest.fixture
def sheet(small):
    return build_sheet(small)


def test_every_cell_has_its_state(sheet):
    states = {row.label: [cell.state for cell in sheet.in_row(row)] for row in sheet.rows}
    assert states["ERM"] == ["measured"] * 3
    assert states["CCSA"] == ["not run"] * 3
    assert states["ADA"] == ["missing"] * 3


def test_a_row_that_ran_without_the_images_of_a_column_is_not_missing_there(tmp_path):
    study = get_study("table1")
    make_up_runs(study, tmp_path, seeds=[0], gone=["syn"], skip=lambda spec, seed: "ada_" in spec.recipe)
    sheet = build_sheet(collect(study, runs=tmp_path, scale="smoke", seeds=[0]))
    states = {label: cell.state for (label, column), cell in sheet.cells.items() if column == "SYN"}
    assert (states["RSDA"], states["ADA"]) == ("no data", "missing")
    assert sheet.cells["RSDA", "USPS"].state == "measured"


def test_the_difference_is_ours_less_the_papers_and_absent_without_both(sheet):
    cell = sheet.cells["ERM", "SVHN"]
    assert cell.gap == pytest.approx(cell.measured.mean - 27.8)
    assert cell.difference == f"{cell.gap:+.1f}"
    assert sheet.cells["ADA", "SVHN"].difference == ""
    assert sheet.cells["RSDA + IN", "SVHN"].gap is None


def test_footnotes_are_numbered_once_and_say_where_a_number_is_from_and_what_slipped(sheet):
    assert sheet.footnotes[:2] == ("The paper's number is copied from M-ADA.", "It averages to 65.3.")
    assert sheet.cells["ERM", "SVHN"].marks == sheet.cells["CCSA", "SVHN"].marks == (1,)
    assert sheet.cells["RSDA", "Avg."].marks == (2,)
    assert sheet.cells["RSDA", "SVHN"].marks == ()
    assert sheet.notes[0] == "A remark on the whole."


def test_a_diverged_cell_is_an_outcome_not_a_gap(small):
    sheet = build_sheet(replace(small, diverged={("ADA", "SVHN"): (0, 2)}))
    assert sheet.cells["ADA", "SVHN"].state == "diverged"
    assert sheet.cells["ADA", "SVHN"].diverged == (0, 2)


def test_our_brier_scores_have_a_decimal_more_than_the_papers(tmp_path):
    study = get_study("table6")
    make_up_runs(study, tmp_path)
    found = collect(study, runs=tmp_path, scale="smoke", seeds=[0, 1, 2])
    sheet = build_sheet(found)
    cell = sheet.cells["ADA + ASR-Norm", "Level 5"]
    assert cell.ours == f"{cell.measured.mean:.4f} ± {cell.measured.deviation:.4f}"
    assert cell.paper == "0.037"
    test = next(test for test in sheet.tests if test.result.column == "Level 5")
    assert test.texts["difference"] == format_signed(test.result.difference, 4)
    assert test.texts["95 % interval"].startswith(f"{format_number(test.result.low, 4)} to ")


def best_of(collected, column):
    return {label for (label, other), cell in build_sheet(collected).cells.items() if other == column and cell.best}


def test_only_our_best_is_marked(small):
    sheet = build_sheet(small)
    best = {label for (label, column), cell in sheet.cells.items() if column == "SVHN" and cell.best}
    means = {row.label: sheet.cells[row.label, "SVHN"].measured for row in sheet.rows}
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
    sheet = build_sheet(replace(small, study=replace(small.study, rows=rows)))
    assert sheet.cells["ERM", "SVHN"].best
    assert not sheet.cells["RSDA + ASR-Norm", "SVHN"].best


def test_numbers_that_are_printed_alike_are_both_best(small):
    first, second = small.cells["ERM", "SVHN"], small.cells["RSDA", "SVHN"]
    alike = {("ERM", "SVHN"): replace(first, mean=90.02), ("RSDA", "SVHN"): replace(second, mean=90.04)}
    sheet = build_sheet(replace(small, cells={**small.cells, **alike}))
    assert {row for (row, column), cell in sheet.cells.items() if column == "SVHN" and cell.best} == {"ERM", "RSDA"}


@pytest.mark.parametrize("change", [{"quantity": "brier"}, {"better": "lower"}])
def test_numbers_of_two_kinds_have_no_best(small, change):
    def changed(row):
        cells = {c: replace(cell, measure=replace(cell.measure, **change)) for c, cell in row.cells.items()}
        return replace(row, cells=cells) if row.label == "ERM" else row

    rows = tuple(map(changed, small.study.rows))
    sheet = build_sheet(replace(small, study=replace(small.study, rows=rows)))
    assert not any(cell.best for cell in sheet.cells.values())


def test_no_number_of_parameters_is_the_best(small):
    def counted(row):
        measures = {c: replace(cell.measure, quantity="parameters") for c, cell in row.cells.items()}
        return replace(row, cells={c: replace(cell, measure=measures[c]) for c, cell in row.cells.items()})

    sheet = build_sheet(replace(small, study=replace(small.study, rows=tuple(map(counted, small.study.rows)))))
    assert not any(cell.best for cell in sheet.cells.values())


def replace_records(small, label, change):
    """Return the study with the records of a row changed; its numbers are far above all others."""
    cells = {
        (row, column): replace(cell, mean=99.0, records=tuple(map(change, cell.records))) if row == label else cell
        for (row, column), cell in small.cells.items()
    }
    return replace(small, cells=cells)


def test_a_row_that_sees_test_batches_takes_no_part_and_the_legend_says_so(small):
    spec = RunSpec(recipe="digits.erm_bn", evaluation=Evaluation(name="x", overrides={"norm": "bn_test"}))
    found = replace_records(small, "ERM", lambda record: replace(record, spec=spec))
    assert best_of(found, "SVHN") == {"RSDA + ASR-Norm"}
    assert describe_unmarked(found) == ", not counting rows that see whole batches of test images"
    assert describe_unmarked(small) == ""


def test_a_row_chosen_by_the_targets_takes_no_part_either(small):
    def choose(record):
        return replace(record, result=replace(record.result, selection="oracle"))

    found = replace_records(small, "ERM", choose)
    assert best_of(found, "SVHN") == {"RSDA + ASR-Norm"}
    assert describe_unmarked(found) == ", not counting rows whose epochs are chosen on the targets"


def test_a_row_whose_settings_were_found_on_the_targets_is_never_the_best(small):
    found = replace_records(small, "ERM", lambda record: record)
    assert best_of(found, "SVHN") == {"ERM"}
    rows = tuple(replace(row, found_on_targets=row.label == "ERM") for row in found.study.rows)
    found = replace(found, study=replace(found.study, rows=rows))
    assert best_of(found, "SVHN") == {"RSDA + ASR-Norm"}
    assert describe_unmarked(found) == ", not counting rows whose settings were found on the targets"


def with_seeds(small, label, n):
    """Return the study with fewer seeds behind a row, whose numbers are far above all others."""
    cells = {
        (row, column): replace(cell, mean=99.0, n=n) if row == label else cell
        for (row, column), cell in small.cells.items()
    }
    return replace(small, cells=cells)


def test_a_single_run_is_not_the_best_beside_means_of_many_and_the_legend_says_so(small):
    assert all(cell.n >= 3 for cell in small.cells.values()), "the others have enough"
    for few in (1, 2):
        found = with_seeds(small, "ERM", few)
        assert best_of(found, "SVHN") == set(), "nor is another, which is not the best"
        assert describe_unmarked(found) == ", none where a row of fewer than 3 seeds is better"
    enough = with_seeds(small, "ERM", 3)
    assert best_of(enough, "SVHN") == {"ERM"}
    assert describe_unmarked(enough) == ""


def test_a_row_of_few_seeds_takes_the_mark_from_none_that_is_better_or_reads_alike(small):
    highest = max(cell.mean for (_, column), cell in small.cells.items() if column == "SVHN")
    for mean in (highest, highest - 5):
        found = with_seeds(small, "ERM", 2)
        cells = {place: replace(cell, mean=mean) if place[0] == "ERM" else cell for place, cell in found.cells.items()}
        assert best_of(replace(found, cells=cells), "SVHN") == {"RSDA + ASR-Norm"}


@pytest.mark.parametrize("few", [1, 2])
def test_where_all_have_equally_few_seeds_one_is_the_best(small, few):
    found = replace(small, cells={place: replace(cell, n=few) for place, cell in small.cells.items()})
    assert best_of(found, "SVHN") == best_of(small, "SVHN")
    assert describe_unmarked(found) == ""


def test_a_single_run_is_not_the_best_beside_means_of_two_either(small):
    cells = {place: replace(cell, n=2 - (place[0] == "RSDA + ASR-Norm")) for place, cell in small.cells.items()}
    assert best_of(small, "SVHN") == {"RSDA + ASR-Norm"}
    assert best_of(replace(small, cells=cells), "SVHN") == set()


def test_test_batches_are_seen_in_a_folder_of_runs_too(tmp_path):
    study = get_study("table9")
    make_up_runs(study, tmp_path, seeds=[0])
    folder = next(tmp_path.glob("digits.rsda_bn--*"))
    config = (folder / "config.yaml").read_text()
    (folder / "config.yaml").write_text(config.replace("name: bn\n", "name: bn_test\n"))
    assert describe_unmarked(collect_folder(tmp_path)) == ", not counting rows that see whole batches of test images"


@pytest.mark.parametrize("name", ["cifar-reading", "digits-reading", "pacs-reading", "pacs-multi-reading"])
def test_nothing_is_marked_where_nothing_may_be_chosen_by(name, tmp_path):
    study = get_study(name)
    make_up_runs(study, tmp_path, seeds=[0])
    found = collect(study, runs=tmp_path, scale="smoke", seeds=[0])
    marked = {column for (_, column), cell in build_sheet(found).cells.items() if cell.best}
    assert not marked & set(study.columns[2:])
    assert best_of(replace(found, study=replace(study, shown_only=())), "Unseen")
