"""Collecting: what stands in a cell is of its own run, seed and scale, and the reader is told what is odd about it."""

import json
from dataclasses import asdict, replace

import pytest

from asrnorm.core.config import run_name
from asrnorm.data import create_suite
from asrnorm.studies import Cell, Comparison, Evaluation, Measure, Row, RunSpec, Study, archive, collect, get_study
from helpers.made_up_run import make_up_divergence
from helpers.study_case import DIGITS, make_result, put_result

ERM = RunSpec(recipe="digits.erm_none")
ASR = RunSpec(recipe="digits.rsda_asr")
RSDA = RunSpec(recipe="digits.rsda_none")
FULL = {"svhn": 0.5, "mnist_m": 0.8, "syn": 0.6, "usps": 0.9}
PARTLY = {name: value for name, value in FULL.items() if name != "syn"}


def shift(accuracies, by):
    return {name: value + by for name, value in accuracies.items()}


def test_a_cell_is_mean_and_deviation_over_its_seeds_in_its_unit(tmp_path):
    for seed, by in enumerate((0.0, 0.01, 0.03)):
        put_result(tmp_path, ASR, seed, shift(FULL, by))
    found = collect(get_study("table1"), runs=tmp_path)
    cell = found.cells["RSDA + ASR-Norm", "SVHN"]
    assert cell.values == pytest.approx((50, 51, 53))
    assert (cell.seeds, cell.n) == ((0, 1, 2), 3)
    assert (cell.mean, cell.deviation) == pytest.approx((51.3333, 1.5275), abs=1e-4)
    assert found.cells["RSDA + ASR-Norm", "Avg."].values[0] == pytest.approx(70)
    assert [record.folder.name for record in cell.records] == [run_name(ASR.config(s, "paper")) for s in range(3)]
    assert ("RSDA", "SVHN") not in found.cells
    assert {task.spec.recipe for task in found.missing} >= {"digits.rsda_none", "digits.erm_none"}
    assert len([task for task in found.missing if task.spec == ASR]) == 2


def without_runs(row):
    return replace(row, cells={column: replace(cell, runs=()) for column, cell in row.cells.items()})


def test_rows_that_are_not_run_keep_the_papers_numbers(tmp_path):
    study = get_study("table1")
    rows = tuple(replace(row, not_run="not run: why") if row.label == "CCSA" else row for row in study.rows)
    rows = tuple(without_runs(row) if row.not_run else row for row in rows)
    found = collect(replace(study, rows=rows), runs=tmp_path, seeds=[0])
    assert not found.cells
    assert found.printed["CCSA", "USPS"].value == 83.7
    assert "digits.ccsa_none" not in {task.spec.recipe for task in found.missing}
    assert len(found.missing) == 11


def test_a_missing_domain_leaves_its_cell_and_both_averages_are_over_the_others(tmp_path):
    put_result(tmp_path, ASR, 0, PARTLY, missing=["syn"])
    put_result(tmp_path, RSDA, 0, FULL)
    found = collect(get_study("table1"), runs=tmp_path, seeds=[0])
    assert ("RSDA + ASR-Norm", "SYN") not in found.cells
    expected = 100 * (0.5 + 0.8 + 0.9) / 3
    assert found.cells["RSDA + ASR-Norm", "Avg."].mean == pytest.approx(expected)
    # The other row has SYN; its average is over the same three all the same.
    assert found.cells["RSDA", "Avg."].mean == pytest.approx(expected)
    assert found.cells["RSDA", "SYN"].mean == pytest.approx(60)
    assert found.printed["RSDA + ASR-Norm", "Avg."].value == pytest.approx((52.8 + 80.8 + 82.4) / 3, abs=0.01)
    assert "available domains" in found.printed["RSDA + ASR-Norm", "Avg."].note
    assert found.printed["CCSA", "Avg."].value == pytest.approx((25.9 + 49.3 + 83.7) / 3, abs=0.01)
    assert found.printed["RSDA", "SYN"].value == 62.0
    assert any("Not available: syn" in note and "ours and the paper's" in note for note in found.footnotes)
    assert any("over all its domains: " in note and "RSDA + ASR-Norm 70.1" in note for note in found.footnotes)
    gaps = {column: number.value for (_, _, column), number in found.differences.items()}
    assert gaps == {"SVHN": 5.4, "MNIST-M": -0.7, "SYN": 2.5, "USPS": -0.7, "Avg.": pytest.approx(1.33)}  # 72.0 - 70.67


def test_with_all_domains_nothing_is_said_of_them(tmp_path):
    put_result(tmp_path, ASR, 0, FULL)
    study = get_study("table1")
    found = collect(study, runs=tmp_path, seeds=[0])
    assert found.footnotes == study.footnotes
    (row,) = (row for row in study.rows if row.label == "RSDA")
    assert found.printed["RSDA", "Avg."] is row.cells["Avg."].printed


def test_missing_corruptions_cannot_be_taken_out_of_the_papers_levels(tmp_path):
    spec = RunSpec(recipe="cifar10c.ada_asr")
    put_result(tmp_path, spec, 0, {"fog/5": 0.6, "snow/4": 0.8}, missing=["frost/5"])
    found = collect(get_study("table6"), runs=tmp_path, seeds=[0])
    assert found.cells["ADA + ASR-Norm", "Level 5"].mean == pytest.approx(0.05)
    assert found.printed["ADA + ASR-Norm", "Avg."].value == 0.024
    assert any("the paper's are over all of them" in note for note in found.footnotes)
    assert {column for _, _, column in found.differences} == {f"Level {level}" for level in range(1, 5)}


def test_without_printed_numbers_the_paper_is_left_out_of_it(tmp_path):
    study = get_study("ablation-residual")
    (spec,) = study.rows[0].cells["Unseen"].runs
    put_result(tmp_path, spec, 0, PARTLY, missing=["syn"])
    assert "Not available: syn. Averages are over the other domains." in collect(study, runs=tmp_path).footnotes


def test_another_scale_is_counted_and_never_shown(tmp_path):
    put_result(tmp_path, ASR, 0, FULL, scale="short")
    found = collect(get_study("table1"), runs=tmp_path, seeds=[0])
    assert not found.cells
    assert "1 result missing here exists at scale 'short'; it is not shown" in found.warnings
    put_result(tmp_path, RSDA, 0, FULL, scale="short")
    several = collect(get_study("table1"), runs=tmp_path, seeds=[0]).warnings
    assert "2 results missing here exist at scale 'short'; they are not shown" in several
    shown = collect(get_study("table1"), runs=tmp_path, seeds=[0], scale="short")
    assert shown.cells
    assert not any("not shown" in warning for warning in shown.warnings)
    assert any("short scale has fewer steps" in warning for warning in shown.warnings)


def test_further_seeds_are_counted_and_never_shown(tmp_path):
    for seed in (0, 3):
        put_result(tmp_path, ASR, seed, FULL)
    found = collect(get_study("table1"), runs=tmp_path, seeds=[0])
    assert found.cells["RSDA + ASR-Norm", "SVHN"].seeds == (0,)
    assert "1 result of further seeds exists; it is not shown" in found.warnings
    put_result(tmp_path, RSDA, 7, FULL)
    assert (
        "2 results of further seeds exist; they are not shown"
        in collect(get_study("table1"), runs=tmp_path, seeds=[0]).warnings
    )
    whole = collect(get_study("table1"), runs=tmp_path, seeds=range(8))
    assert not any("further seeds" in warning for warning in whole.warnings)
    other = collect(get_study("table1"), runs=tmp_path, seeds=[0], scale="short")
    assert not any("further seeds" in warning for warning in other.warnings), "of another scale"


def test_a_result_under_a_false_scale_is_not_taken(tmp_path):
    folder = put_result(tmp_path, ASR, 0, FULL)
    text = (folder / "result.json").read_text().replace('"scale": "paper"', '"scale": "smoke"')
    (folder / "result.json").write_text(text)
    assert not collect(get_study("table1"), runs=tmp_path, seeds=[0]).cells


def test_mixed_commits_changed_files_and_few_seeds_are_warned_of(tmp_path):
    put_result(tmp_path, ASR, 0, FULL, commit="a" * 40)
    assert any("fewer than 3" in w for w in collect(get_study("table1"), runs=tmp_path).warnings)
    put_result(tmp_path, ASR, 1, FULL, commit="b" * 40)
    (warning,) = (w for w in collect(get_study("table1"), runs=tmp_path).warnings if "commits" in w)
    assert "a" * 12 in warning
    assert "b" * 12 in warning
    for seed in (0, 1):
        put_result(tmp_path, ASR, seed, FULL, commit="c" * 40 + "+")
    assert any("differ from commit cccccccccccc" in w for w in collect(get_study("table1"), runs=tmp_path).warnings)
    put_result(tmp_path, RSDA, 0, FULL, commit="c" * 40 + "+")
    assert any("varies from 1 to 2" in w for w in collect(get_study("table1"), runs=tmp_path).warnings)


def test_kept_results_fill_what_the_folders_lack(tmp_path):
    kept = tmp_path / "results"
    kept.mkdir()
    results = [make_result(ASR, seed, shift(FULL, 0.01 * seed)) for seed in range(3)]
    lines = [json.dumps(asdict(result)) for result in results]
    (kept / "table1.jsonl").write_text("\n".join([*lines, '{"schema": 0}', "{"]) + "\n")
    put_result(tmp_path / "runs", ASR, 0, shift(FULL, 0.1))
    found = collect(get_study("table1"), runs=tmp_path / "runs", kept=kept, seeds=range(3))
    cell = found.cells["RSDA + ASR-Norm", "SVHN"]
    assert cell.values == pytest.approx((60, 51, 52)), "the run folder goes first"
    assert [record.folder is None for record in cell.records] == [False, True, True]
    assert not [task for task in found.missing if task.spec == ASR]
    assert any("line 4" in warning for warning in found.warnings)
    assert any("line 5" in warning for warning in found.warnings)


def test_a_kept_result_does_not_stand_for_files_made_of_its_run(tmp_path):
    kept = tmp_path / "results"
    kept.mkdir()
    study = get_study("fig-tsne")
    specs = study.rows[0].cells["Avg."].runs
    lines = [json.dumps(asdict(make_result(spec, 0, {"x": 0.5}))) for spec in specs]
    (kept / "x.jsonl").write_text("\n".join(lines))
    found = collect(study, runs=tmp_path / "runs", kept=kept)
    assert [task.kind for task in found.missing] == ["analysis"] * 4
    assert found.cells["RSC + ASR-Norm", "Avg."].mean == pytest.approx(50)


def test_a_damaged_result_is_a_warning(tmp_path):
    folder = put_result(tmp_path, ASR, 0, FULL)
    (folder / "result.json").write_text("{")
    found = collect(get_study("table1"), runs=tmp_path, seeds=[0])
    assert not found.cells
    assert any("damaged" in warning for warning in found.warnings)


def test_averages_over_runs_are_taken_seed_by_seed_and_only_of_whole_seeds(tmp_path):
    sources = ("art_painting", "cartoon", "sketch", "photo")
    specs = [RunSpec(recipe="pacs.rsc_asr", options={"source": source}) for source in sources]
    for seed in (0, 1):
        for place, spec in enumerate(specs[: 4 - seed]):
            put_result(tmp_path, spec, seed, {"x": 0.1 * (place + 1), "y": 0.1 * (place + 1)})
    found = collect(get_study("table3-chosen"), runs=tmp_path, seeds=[0, 1])
    average = found.cells["RSC + ASR-Norm", "Avg."]
    assert (average.seeds, average.values) == ((0,), pytest.approx((25,)))
    assert len(average.records) == 4
    assert found.cells["RSC + ASR-Norm", "Artpaint"].n == 2


def test_evaluations_are_found_in_the_folder_of_their_run(tmp_path):
    bn = RunSpec(recipe="digits.rsda_bn")
    again = replace(bn, evaluation=Evaluation(name="bn_test-16", overrides={"norm": "bn_test", "evaluate_batch": 16}))
    put_result(tmp_path, bn, 0, FULL)
    put_result(tmp_path, again, 0, shift(FULL, 0.05))
    found = collect(get_study("table9"), runs=tmp_path, seeds=[0])
    assert found.cells["RSDA + BN", "SVHN"].mean == pytest.approx(50)
    assert found.cells["RSDA + BN-Test (16)", "SVHN"].mean == pytest.approx(55)
    assert ("RSDA + BN-Test", "SVHN") not in found.cells


def test_comparisons_are_tested_column_by_column_and_corrected_together(tmp_path):
    for seed in range(5):
        put_result(tmp_path, ASR, seed, shift(FULL, 0.010 * seed))
        put_result(tmp_path, RSDA, seed, shift(FULL, 0.011 * seed - 0.05))
    tests = collect(get_study("table1"), runs=tmp_path).tests
    assert [test.column for test in tests] == ["SVHN", "MNIST-M", "SYN", "USPS", "Avg."]
    assert all(test.row == "RSDA + ASR-Norm" and test.against == "RSDA" and test.n == 5 for test in tests)
    assert all(test.pooled < 0.05 and test.paired < test.pooled and test.holm > test.pooled for test in tests)
    assert all(0 < test.low < test.difference < test.high for test in tests)


def test_lower_is_better_for_the_brier_score(tmp_path):
    for seed in range(3):
        for recipe, brier in (("cifar10c.ada_asr", 0.02), ("cifar10c.ada_bn", 0.04)):
            spec = RunSpec(recipe=recipe)
            result = make_result(spec, seed, {"fog/1": 0.9})
            domains = (replace(result.domains[0], brier=brier + 0.001 * seed),)
            kept = tmp_path / f"{recipe}-{seed}"
            kept.mkdir()
            (kept / "result.json").write_text(json.dumps(asdict(replace(result, domains=domains))))
    test = next(t for t in collect(get_study("table6"), runs=tmp_path, seeds=range(3)).tests if t.column == "Level 1")
    assert (test.better, test.difference) == ("lower", pytest.approx(-0.02))
    assert test.pooled < 0.001


def test_parameters_are_shown_in_millions_and_as_a_share_above_the_baseline(tmp_path):
    study = get_study("table8")
    for row in study.rows:
        for spec in row.cells["Avg."].runs:
            put_result(tmp_path, spec, 0, {"x": 0.5}, parameters=11_180_103 if row.label == "BN" else 13_007_991)
    found = collect(study, runs=tmp_path, seeds=[0])
    last = study.rows[-1].label
    assert round(found.cells[last, "# Params"].mean, 2) == 13.01
    assert round(found.cells[last, "Params ↑"].mean, 1) == 16.3
    assert found.cells["BN", "Params ↑"].mean == 0
    assert {test.column for test in found.tests} == {"Avg."}


def test_source_and_attack_are_read_from_their_places(tmp_path):
    spec = RunSpec(recipe="cifar10c.ada_bn")
    put_result(tmp_path, spec, 0, {"fog/1": 0.5})
    found = collect(get_study("table7"), runs=tmp_path, seeds=[0])
    assert found.cells["ADA + BN", "In-domain"].mean == pytest.approx(99)
    assert found.cells["ADA + BN", "Adversarial"].mean == pytest.approx(30)
    assert ("ADA + BN", "fgsm-8") not in found.cells


def test_runs_that_lost_their_loss_are_named(tmp_path):
    study = get_study("ablation-residual")
    row = next(row for row in study.rows if row.label == "Digits, ERM + ASR-Norm, no residual")
    (spec,) = row.cells["Unseen"].runs
    for seed in (0, 2):
        folder = tmp_path / run_name(spec.config(seed, "paper"))
        folder.mkdir()
        (folder / "divergence.json").write_text('{"schema": 1, "message": "step 3: the loss is nan"}')
    found = collect(study, runs=tmp_path)
    assert found.diverged == {(row.label, "Source"): (0, 2), (row.label, "Unseen"): (0, 2)}
    assert not [task for task in found.missing if task.spec == spec and task.seed in (0, 2)]


def test_a_study_without_runs_is_collected_too(tmp_path):
    found = collect(get_study("fig-samples"), runs=tmp_path)
    assert not found.cells
    assert not found.missing
    assert not found.warnings


def test_measures_of_a_study_of_ones_own(tmp_path):
    def column(quantity):
        return Cell(measure=Measure(quantity=quantity, domains=("s*",), unit="plain"), runs=(ERM,))

    cells = {"nll": column("nll"), "ece": column("ece")}
    rows = (Row(label="a", cells=cells),)
    pair = (Comparison(row="a", against="a"),)
    study = Study(name="x", title="x", caption="x", columns=("nll", "ece"), rows=rows, comparisons=pair)
    put_result(tmp_path, ERM, 0, dict.fromkeys(DIGITS, 0.5))
    found = collect(study, runs=tmp_path, seeds=[0])
    assert (found.cells["a", "nll"].mean, found.cells["a", "ece"].mean) == (1.0, 0.1)
    assert all(test.pooled is None and test.difference == 0 for test in found.tests)


def test_a_seed_at_which_one_of_the_runs_lacks_the_number_is_left_out(tmp_path):
    cell = Cell(measure=Measure(quantity="accuracy", domains=("usps",)), runs=(ERM, RSDA))
    study = Study(name="x", title="x", caption="x", columns=("A",), rows=(Row(label="a", cells={"A": cell}),))
    for seed, second in enumerate(("usps", "svhn")):
        put_result(tmp_path, ERM, seed, {"usps": 0.5})
        put_result(tmp_path, RSDA, seed, {second: 0.9})
    found = collect(study, runs=tmp_path, seeds=[0, 1]).cells["a", "A"]
    assert (found.seeds, found.values, len(found.records)) == ((0,), pytest.approx((70,)), 2)


def test_results_of_another_scale_are_not_missed_where_this_one_is_there(tmp_path):
    for scale in ("paper", "short"):
        put_result(tmp_path, ASR, 0, FULL, scale=scale)
    found = collect(get_study("table1"), runs=tmp_path, seeds=[0])
    assert found.cells
    assert not any("not shown" in warning for warning in found.warnings)


def test_a_kept_divergence_is_named_as_one_whose_folder_is_there(tmp_path):
    study = get_study("ablation-residual")
    make_up_divergence(study.rows[1].cells["Unseen"].runs[0], tmp_path / "runs", 0)
    archive(study, runs=tmp_path / "runs", kept=tmp_path / "results", scale="smoke")
    there = collect(study, runs=tmp_path / "runs", scale="smoke", seeds=[0]).diverged
    gone = collect(study, runs=tmp_path / "no", kept=tmp_path / "results", scale="smoke", seeds=[0]).diverged
    assert gone == there == {(study.rows[1].label, column): (0,) for column in ("Source", "Unseen")}


def test_levels_are_over_the_corruptions_that_all_rows_have(tmp_path):
    everything = {"fog/5": 0.6, "frost/5": 0.2}
    put_result(tmp_path, RunSpec(recipe="cifar10c.ada_bn"), 0, everything)
    put_result(tmp_path, RunSpec(recipe="cifar10c.ada_asr"), 0, {"fog/5": 0.7}, missing=absent_targets("frost"))
    found = collect(get_study("table5"), runs=tmp_path, seeds=[0])
    for column in ("Level 5", "Avg."):
        assert found.cells["ADA + BN", column].mean == pytest.approx(60)
        assert found.cells["ADA + ASR-Norm", column].mean == pytest.approx(70)


def absent_targets(corruption):
    """What a run writes where a corruption's file is not there."""
    missing = create_suite("cifar10c", root="nowhere").missing_targets
    return [name for name in missing if name.startswith(f"{corruption}/")]


def test_two_editions_of_the_test_images_in_one_table_are_warned_of(tmp_path):
    for recipe, images in (("cifar10c.ada_bn", "generated"), ("cifar10c.ada_asr", "as found")):
        put_result(tmp_path, RunSpec(recipe=recipe), 0, {"fog/5": 0.6}, env={"edition": images})
    warned = [w for w in collect(get_study("table5"), runs=tmp_path, seeds=[0]).warnings if "editions" in w]
    assert warned == ["the table mixes runs scored on 2 editions of the test images: as found; generated"]
    only = [w for w in collect(get_study("fig-lambda-cifar"), runs=tmp_path).warnings if "editions" in w]
    assert not only
