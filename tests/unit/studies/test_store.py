"""The store: every result once, by the hash of its config, wherever it lies."""

import json
from dataclasses import asdict, replace

from asrnorm.studies import Evaluation, RunSpec
from asrnorm.studies.store import find_results
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
