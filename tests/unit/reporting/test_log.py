from asrnorm.reporting.log import curve, lambda_curves, thin
from asrnorm.studies.store import read_log


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
    few = thin(points, 50)
    assert len(few) == 50
    assert (few[0], few[-1]) == (points[0], points[-1])
    assert thin(points[:5], 50) == points[:5]
