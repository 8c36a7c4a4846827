from dataclasses import replace

from asrnorm.core.results import read_result, write_result
from asrnorm.reporting.folder import collect_folder
from asrnorm.reporting.text import (
    describe_provenance,
    format_deviation,
    format_measured,
    format_number,
    format_p,
    format_printed,
    format_signed,
)
from asrnorm.studies import Printed, collect, get_study
from helpers.made_up_run import make_up_runs


def test_numbers_are_shown_in_full_width(small):
    measured = small.cells["ERM", "SVHN"]
    assert format_measured(measured, 1) == f"{measured.mean:.1f} ± {measured.deviation:.1f}"
    assert "±" not in format_measured(replace(measured, deviation=None), 1)
    assert format_number(-1.25, 2) == "\N{MINUS SIGN}1.25"
    assert format_signed(0.01, 1) == "0.0"
    assert format_p(0.0004) == "< 0.001"
    assert format_printed(Printed(value=11.18), 2) == "11.18"


def test_a_p_value_is_below_a_thousandth_where_three_decimals_would_be_zero():
    assert [format_p(p) for p in (0.00049, 0.00051, 0.0014, 0.004)] == ["< 0.001", "0.001", "0.001", "0.004"]


def test_a_deviation_is_zero_only_where_nothing_spreads(small):
    assert [format_deviation(value, 1) for value in (0.0, 0.04, 0.06, 1.25)] == ["0.0", "0.04", "0.1", "1.2"]
    measured = replace(small.cells["ERM", "SVHN"], mean=0.02434, deviation=0.00003)
    assert format_measured(measured, 4) == "0.0243 ± 0.00003"


def test_nothing_measured_has_no_provenance(small):
    nothing = replace(small, cells={})
    assert describe_provenance(nothing) == ""


def test_results_have_seeds_steps_selection_and_commit(small):
    steps = {record.result.steps for cell in small.cells.values() for record in cell.records}
    (count,) = steps
    assert describe_provenance(small) == (
        f"12 results, n = 3 per cell; seeds 0 to 2; smoke scale: {count:,} steps; selection last; commit f1c710000000."
    )


def test_results_say_what_they_were_made_on_as_far_as_they_know(small):
    def with_origins(origins):
        records = [record for cell in small.cells.values() for record in cell.records]
        told = {record.result.config_hash: origin for record, origin in zip(records, origins, strict=False)}

        def change(record):
            return replace(record, result=replace(record.result, origin=told.get(record.result.config_hash, {})))

        cells = {place: replace(c, records=tuple(map(change, c.records))) for place, c in small.cells.items()}
        return describe_provenance(replace(small, cells=cells))

    h200 = {"device": "NVIDIA H200", "torch": "2.11.0", "day": "2026-11-16", "edition": "generated, seed 0"}
    assert with_origins([h200] * 100).endswith("; on NVIDIA H200, torch 2.11.0, 2026-11-16; generated, seed 0.")
    mixed = with_origins([h200, {"device": "cpu", "torch": "2.13.0", "day": "2026-11-14"}])
    assert "; some on NVIDIA H200, torch 2.11.0 and cpu, torch 2.13.0, 2026-11-14 to 2026-11-16; " in mixed
    assert mixed.endswith("; some on generated, seed 0."), "the second does not say"
    again = with_origins([h200, {**h200, "scored": "abc1234 on cpu"}, {**h200, "scored": "abc1234 on cpu"}])
    assert "; 2 scored again by abc1234 on cpu; " in again
    assert with_origins([]).endswith("commit f1c710000000.")


def test_one_result_is_one_and_other_steps_are_a_range(small):
    def shorten(cell, steps):
        (record, *_) = cell.records
        record = replace(record, result=replace(record.result, steps=steps, config_hash=str(steps)))
        return replace(cell, records=(record,), seeds=(0,), values=cell.values[:1], n=1)

    cells = [(place, cell) for place, cell in small.cells.items() if place[1] == "SVHN"]
    first, second = (
        (place, shorten(cell, steps)) for (place, cell), steps in zip(cells, (15_640, 200_000), strict=False)
    )
    assert describe_provenance(replace(small, cells=dict([first]))).startswith(
        "1 result, n = 1 per cell; seed 0; smoke scale: 15,640 steps; "
    )
    assert "2 results, n = 1 per cell; seed 0; smoke scale: 15,640 to 200,000 steps;" in describe_provenance(
        replace(small, cells=dict([first, second]))
    )


def test_where_an_epoch_is_chosen_the_steps_are_those_of_the_training(tmp_path):
    study = get_study("table4-chosen")
    make_up_runs(study, tmp_path, scale="paper", seeds=[0])
    for path in tmp_path.glob("*/result.json"):
        write_result(path, replace(read_result(path), steps=30))
    assert "paper scale: 1,260 to 1,740 steps; selection source-val;" in describe_provenance(
        collect(study, runs=tmp_path)
    )
    assert "; seed 0; selection source-val;" in describe_provenance(collect_folder(tmp_path)), "and nobody's scale"
