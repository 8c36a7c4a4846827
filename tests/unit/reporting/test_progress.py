from asrnorm.reporting.progress import render_progress
from asrnorm.studies import get_study, keep
from helpers.made_up_run import make_up_runs


def test_rows_with_a_number_are_counted_by_scale_with_their_seeds(tmp_path):
    study, runs = get_study("table3"), tmp_path / "runs"
    make_up_runs(study, runs, seeds=[0, 1], scale="paper", skip=lambda spec, seed: spec.recipe == "pacs.erm_bn")
    make_up_runs(study, runs, seeds=[0, 1], scale="short", skip=lambda spec, seed: seed == 1 and "rsc" in spec.recipe)
    for scale in ("paper", "short"):
        keep(study, runs=runs, kept=tmp_path / "results", scale=scale, seeds=[0, 1])
    (line,) = render_progress(tmp_path / "results", ["table3"]).splitlines()[2:]
    assert line == "| [`table3`](studies/table3.md) | 7 | 6 of them, n 2 | all, n 1 to 2 |"


def test_a_study_that_runs_nothing_is_left_out(tmp_path):
    assert len(render_progress(tmp_path, ["fig-samples", "table6"]).splitlines()) == 3
