import math
from dataclasses import replace

from asrnorm.reporting.runs import curve, gather_runs, identify, lambda_curves, make_sparkline
from asrnorm.studies import Evaluation, RunSpec
from asrnorm.studies.store import read_log, subsample


def test_cells_of_one_run_share_a_block_with_all_its_seeds(small):
    blocks = gather_runs(small)
    assert [block.spec.recipe for block in blocks.values()] == [
        "digits.erm_none",
        "digits.rsda_none",
        "digits.rsda_asr",
        "digits.rsda_in",
    ]
    assert all([record.seed for record in block.records] == [0, 1, 2] for block in blocks.values())


def test_an_evaluation_is_another_block_and_an_analysis_is_not():
    plain = RunSpec(recipe="digits.rsda_bn")
    again = replace(plain, evaluation=Evaluation(name="bn_test-16", overrides={"norm": "bn_test"}))
    assert identify(plain) != identify(again)
    assert identify(plain) == identify(replace(plain, analyses=("statistics",)))


def test_a_kept_result_has_a_config_and_no_curve(small):
    block = next(iter(gather_runs(small).values()))
    kept = replace(block, records=tuple(replace(record, folder=None) for record in block.records))
    assert len(block.sparklines) == 2
    assert kept.sparklines == []
    assert "recipe: digits.erm_none" in kept.config


def test_a_result_of_an_unknown_recipe_still_has_a_block(small):
    block = next(iter(gather_runs(small).values()))
    odd = RunSpec(recipe="digits.gone_none")
    records = tuple(replace(record, folder=None, spec=odd) for record in block.records)
    assert "unknown recipe" in replace(block, spec=odd, records=records).config


def test_a_log_that_a_kill_cut_short_ends_there(tmp_path):
    (tmp_path / "log.jsonl").write_text('{"step": 1, "loss": 2.0}\n{"step": 2, "loss": NaN}\n{"step": 3, "lo')
    rows = read_log(tmp_path)
    assert [row["step"] for row in rows] == [1, 2]
    assert len(curve(rows, "loss")) == 2
    assert curve(rows, "accuracy") == []


def test_no_folder_and_no_file_are_an_empty_log(tmp_path):
    assert read_log(None) == read_log(tmp_path) == []


def test_lambdas_keep_the_order_of_the_layers():
    rows = [{"step": s, "lambdas": {"b": {"lambda_mu": 0.1 * s}, "a": {"lambda_mu": 0.2}}} for s in (1, 2)]
    assert list(lambda_curves(rows)["lambda_mu"]) == ["b", "a"]
    assert lambda_curves(rows)["lambda_mu"]["b"] == [(1, 0.1), (2, 0.2)]


def test_thinning_keeps_both_ends():
    points = [(i, float(i)) for i in range(1000)]
    few = subsample(points, 50)
    assert len(few) == 50
    assert (few[0], few[-1]) == (points[0], points[-1])
    assert subsample(points[:5], 50) == points[:5]


def points(line):
    return [tuple(map(float, point.split(","))) for point in line.split()]


def test_a_chart_has_a_line_a_curve_inside_its_axes():
    chart = make_sparkline([[(0, 2.0), (50, 1.0), (100, 0.5)], [(0, 1.5), (100, 0.2)]], "loss")
    assert len(chart.lines) == 2
    assert all(40 <= x <= 292 and 8 <= y <= 88 for line in chart.lines for x, y in points(line))
    assert (chart.low, chart.high, chart.first, chart.last) == ("0.2", "2", 0, 100)


def test_nan_is_marked_where_it_came():
    assert make_sparkline([[(0, 2.0), (10, 1.0), (20, math.nan)]], "loss").broken == ("292.0",)
    assert make_sparkline([[(0, 2.0), (10, 1.0)]], "loss").broken == ()


def test_nothing_to_draw_is_nothing():
    assert make_sparkline([], "loss") is None
    assert make_sparkline([[(0, math.nan)]], "loss") is None


def test_a_flat_curve_and_a_single_point_do_not_divide_by_zero():
    assert make_sparkline([[(5, 1.0)]], "loss").lines
    assert make_sparkline([[(0, 1.0), (5, 1.0)]], "loss").lines


def test_higher_values_and_later_steps_are_drawn_higher_and_further_right():
    (line,) = make_sparkline([[(0, 2.0), (50, 1.0), (100, 0.5)]], "loss").lines
    drawn = points(line)
    assert drawn == sorted(drawn)
    assert [y for _, y in drawn] == sorted(y for _, y in drawn)  # down the page, as the loss falls
