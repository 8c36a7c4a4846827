"""The store finds every result once, by the hash of its config, and kept curves give figures what the log would."""

import json
import math
from dataclasses import asdict, replace
from itertools import pairwise

import pytest

from asrnorm.studies import Evaluation, RunSpec
from asrnorm.studies.store import CURVES_FILE, MAX_CURVE_ROWS, find_results, format_curves, parse_curves, read_log
from helpers.study_case import make_result, put_result

BN = RunSpec(recipe="digits.erm_bn")
BN_TEST = replace(BN, evaluation=Evaluation(name="bn_test-16", overrides={"norm": "bn_test", "evaluate_batch": 16}))


def test_runs_and_their_evaluations_are_told_apart(tmp_path):
    folder = put_result(tmp_path, BN, 0, {"usps": 0.5})
    put_result(tmp_path, BN_TEST, 0, {"usps": 0.6})
    found = sorted(find_results(tmp_path).results.values(), key=lambda one: one.scored_again)
    assert [one.result.average_accuracy for one in found] == [0.5, 0.6]
    assert [one.folder for one in found] == [folder, folder]
    assert [one.scored_again for one in found] == [False, True]


def test_a_run_folder_goes_before_a_kept_result(tmp_path):
    put_result(tmp_path / "runs", BN, 0, {"usps": 0.5})
    kept = tmp_path / "kept"
    kept.mkdir()
    lines = [json.dumps(asdict(make_result(BN, seed, {"usps": 0.9}))) for seed in (0, 1)]
    (kept / "a.jsonl").write_text("\n".join(lines))
    found = find_results(tmp_path / "runs", kept).results.values()
    assert {(one.result.seed, one.result.average_accuracy, one.folder is None) for one in found} == {
        (0, 0.5, False),
        (1, 0.9, True),
    }


def test_what_cannot_be_read_is_named_and_the_rest_goes_on(tmp_path):
    put_result(tmp_path, BN, 0, {"usps": 0.5})
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "result.json").write_text('{"schema": 99}')
    (tmp_path / "unfinished").mkdir()
    (tmp_path / "a file").touch()
    store = find_results(tmp_path)
    assert len(store.results) == 1
    assert len(store.problems) == 1
    assert "other/result.json: not a result of schema 1" in store.problems[0]


LAYERS = [f"layer{i}.norm" for i in range(12)]
NAMES = ("lambda_mu", "lambda_sigma", "lambda_beta", "lambda_gamma")


def log(steps, every=1):
    rows = []
    for step in range(1, steps + 1):
        row = {"step": step, "loss": 2 / step, "accuracy": 1 - 1 / step, "lr": 0.1, "seconds": 3.0}
        if step % every == 0:
            row["lambdas"] = {layer: dict.fromkeys(NAMES, step / (steps + 1)) for layer in LAYERS}
        rows.append(row)
    return rows


def test_curves_read_back_as_the_rows_of_a_log(tmp_path):
    rows = log(30)
    (tmp_path / CURVES_FILE).write_text(format_curves(rows))
    found = read_log(tmp_path)
    assert [row["step"] for row in found] == [row["step"] for row in rows]
    for kept, row in zip(found, rows, strict=True):
        assert kept["loss"] == pytest.approx(row["loss"], rel=1e-3)
        assert list(kept["lambdas"]) == LAYERS
        assert kept["lambdas"]["layer3.norm"] == pytest.approx(row["lambdas"]["layer3.norm"], rel=1e-3)
    assert set(found[0]) == {"step", "loss", "accuracy", "lambdas"}


def test_a_long_log_is_subsampled_to_a_few_kilobytes_and_keeps_both_ends():
    text = format_curves(log(5000, every=40))
    steps = [row["step"] for row in parse_curves(text)]
    assert (steps[0], steps[-1]) == (1, 5000)
    assert len(steps) <= 2 * MAX_CURVE_ROWS
    assert sum("lambdas" in row for row in parse_curves(text)) >= MAX_CURVE_ROWS
    assert len(format_curves(log(30))) < 12_000


def test_a_loss_that_was_lost_is_still_lost():
    (first, last) = parse_curves(format_curves([{"step": 1, "loss": 2.0}, {"step": 2, "loss": math.nan}]))
    assert first == {"step": 1, "loss": 2.0}
    assert math.isnan(last["loss"])


def test_the_log_itself_goes_first(tmp_path):
    (tmp_path / CURVES_FILE).write_text(format_curves(log(3)))
    (tmp_path / "log.jsonl").write_text(json.dumps({"step": 9, "loss": 1.0}) + "\n")
    assert [row["step"] for row in read_log(tmp_path)] == [9]


@pytest.mark.parametrize("tail", ["2,0.5", "2,0.5,x,0.1", "two,0.5,0.1,0.1", "<<<<<<< HEAD"])
def test_a_row_that_is_not_whole_ends_the_curves(tail):
    text = f"step,loss,accuracy,norm/lambda_mu\n1,0.5,0.1,0.1\n{tail}\n3,0.5,0.1,0.1\n"
    assert [row["step"] for row in parse_curves(text)] == [1]


def test_a_log_without_anything_gives_a_head_alone():
    assert list(parse_curves(format_curves([]))) == list(parse_curves("")) == []


def test_what_is_left_of_a_long_log_lies_at_even_distances():
    rows = [{"step": step, "loss": 2 / step} for step in range(1, 5001)]
    steps = [row["step"] for row in parse_curves(format_curves(rows))]
    assert len(steps) == MAX_CURVE_ROWS
    assert max(b - a for a, b in pairwise(steps)) <= min(b - a for a, b in pairwise(steps)) + 1
