"""Keeping: results outlive their run folders, once each, and nothing is lost or overwritten unasked."""

import json
import math
from dataclasses import replace

import pytest

from asrnorm.core.config import content_hash
from asrnorm.core.errors import InputError
from asrnorm.core.results import read_result, write_result
from asrnorm.studies import (
    Cell,
    Evaluation,
    Measure,
    Row,
    RunSpec,
    Study,
    collect,
    keep,
    plan,
)
from asrnorm.studies.keep import format_lines
from asrnorm.studies.store import find_results
from helpers.study_case import make_result, put_result

BN = RunSpec(recipe="digits.erm_bn")
BN_TEST = replace(BN, evaluation=Evaluation(name="bn_test-16", overrides={"norm": "bn_test", "evaluate_batch": 16}))
ASR = RunSpec(recipe="digits.erm_asr")
USPS = {"usps": 0.5}


def study_of(*specs, name="mini", **facts):
    cell = Measure(quantity="accuracy")
    rows = tuple(Row(label=str(i), cells={"A": Cell(measure=cell, runs=(spec,))}) for i, spec in enumerate(specs))
    return Study(name=name, title=name, caption="", columns=("A",), rows=rows, seeds=2, **facts)


@pytest.fixture
def place(tmp_path):
    for seed in (0, 1):
        for spec in (BN, BN_TEST, ASR):
            put_result(tmp_path / "runs", spec, seed, USPS, commit="a" * 40)
    return {"runs": tmp_path / "runs", "kept": tmp_path / "results"}


def texts(kept):
    return {str(path.relative_to(kept)): path.read_bytes() for path in sorted(kept.rglob("*")) if path.is_file()}


def test_runs_and_evaluations_become_lines_and_twice_changes_nothing(place):
    study = study_of(BN, BN_TEST, ASR)
    done = keep(study, **place)
    assert (len(done.added), done.path.name) == (6, "mini.jsonl")
    before = texts(place["kept"])
    assert set(before) == {"mini.jsonl"}
    again = keep(study, **place)
    assert (again.added, len(again.same)) == ((), 6)
    assert texts(place["kept"]) == before
    nowhere = place["runs"].parent / "nowhere"
    found = find_results(nowhere, place["kept"])
    assert found.results.keys() == find_results(place["runs"]).results.keys()
    assert {
        task.state for task in plan(study, seeds=[0, 1], scale="paper", runs=nowhere, kept=place["kept"]).tasks
    } == {"kept"}


def test_lines_stand_in_an_order_of_their_own(place):
    keep(study_of(ASR), seeds=[1], **place)
    keep(study_of(ASR, BN), **place)
    lines = [json.loads(line) for line in (place["kept"] / "mini.jsonl").read_text().splitlines()]
    assert [(line["recipe"], line["seed"]) for line in lines] == [
        ("digits.erm_asr", 0),
        ("digits.erm_asr", 1),
        ("digits.erm_bn", 0),
        ("digits.erm_bn", 1),
    ]


def test_lines_from_another_machine_are_put_in_order(place):
    study = study_of(BN, ASR)
    keep(study, **place)
    path = place["kept"] / "mini.jsonl"
    before = path.read_text()
    path.write_text(before + "".join(reversed(before.splitlines(keepends=True))))
    keep(study, runs=place["runs"] / "no", kept=place["kept"])
    assert path.read_text() == before


def test_a_damaged_result_is_left_out(place):
    folder = put_result(place["runs"], BN, 0, USPS)
    (folder / "result.json").write_text("{")
    assert keep(study_of(BN), **place).added == (content_hash(BN.config(1, "paper")),)


def test_a_run_that_two_studies_share_is_kept_once(place):
    keep(study_of(BN), **place)
    second = keep(study_of(BN, ASR, name="other"), **place)
    assert (len(second.added), len(second.same)) == (2, 2)
    assert len((place["kept"] / "other.jsonl").read_text().splitlines()) == 2


def test_other_numbers_replace_those_of_another_commit_and_only_where_asked(place):
    study = study_of(BN)
    keep(study, **place)
    put_result(place["runs"], BN, 0, {"usps": 0.9}, commit="b" * 40)
    put_result(place["runs"], BN, 1, {"usps": 0.9}, commit="a" * 40)
    before = texts(place["kept"])
    assert len(keep(study, **place).differing) == 2
    assert texts(place["kept"]) == before
    renewed = keep(study, renew=True, **place)
    assert renewed.replaced == (content_hash(BN.config(0, "paper")),)
    assert renewed.differing == (content_hash(BN.config(1, "paper")),)
    found = find_results(place["runs"] / "no", place["kept"]).results.values()
    assert sorted(one.result.average_accuracy for one in found) == [0.5, 0.9]


def test_the_same_numbers_at_another_commit_are_called_the_same_numbers(place):
    study = study_of(BN)
    keep(study, **place)
    before = texts(place["kept"])
    put_result(place["runs"], BN, 0, USPS, commit="b" * 40)
    found, identity = keep(study, **place), content_hash(BN.config(0, "paper"))
    assert (found.repeated, found.differing, texts(place["kept"])) == ((identity,), (), before)
    assert keep(study, renew=True, **place).replaced == (identity,)


def test_numbers_of_several_commits_are_replaced_by_those_of_one(place):
    study = study_of(BN)
    first, second = "a" * 40, "b" * 40
    put_result(place["runs"], BN, 0, {"usps": 0.5}, commit=first, env={"resumed": [{"commit": second}]})
    keep(study, **place)
    put_result(place["runs"], BN, 0, {"usps": 0.9}, commit=first, env={})
    assert keep(study, renew=True, **place).replaced == (content_hash(BN.config(0, "paper")),)


def test_numbers_of_changed_files_are_replaced_by_others_of_the_same_commit(place):
    study = study_of(BN)
    put_result(place["runs"], BN, 0, {"usps": 0.5}, commit="c" * 40 + "+")
    keep(study, **place)
    put_result(place["runs"], BN, 0, {"usps": 0.9}, commit="c" * 40 + "+")
    assert keep(study, renew=True, **place).replaced == (content_hash(BN.config(0, "paper")),)


def test_a_replaced_run_stays_in_the_file_it_was_kept_in(place):
    keep(study_of(BN), **place)
    put_result(place["runs"], BN, 0, {"usps": 0.9}, commit="b" * 40)
    keep(study_of(BN, name="other"), renew=True, **place)
    assert set(texts(place["kept"])) == {"mini.jsonl"}


def test_evaluations_of_a_replaced_run_go_with_it(place):
    study = study_of(BN, BN_TEST)
    keep(study, **place)
    for path in place["runs"].glob("*/evaluations/*.json"):
        path.unlink()
    put_result(place["runs"], BN, 0, {"usps": 0.9}, commit="b" * 40)
    states = {task.key: task.state for task in plan(study, seeds=[0], scale="paper", **place).tasks}
    assert sorted(states.values()) == ["done", "pending"]  # the kept one is of the other training
    keep(study, renew=True, **place)
    left = find_results(place["runs"] / "no", place["kept"]).results
    assert content_hash(BN_TEST.scored_config(0, "paper")) not in left
    assert content_hash(BN_TEST.scored_config(1, "paper")) in left


def test_a_run_without_targets_is_kept_and_read_again(place):
    path = put_result(place["runs"], ASR, 0, USPS) / "result.json"
    write_result(path, replace(read_result(path), domains=(), average_accuracy=math.nan))
    keep(study_of(ASR), **place)
    assert len(keep(study_of(ASR), **place).same) == 2


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b'{"schema": 1, "recipe": "x"', "not a line of JSON"),
        (b"<<<<<<< HEAD", "not a line of JSON"),
        (b'{"schema": 7}', "not a result of schema 1"),
        (b"\xff\xfe", "not a line of JSON"),
        (b"[" * 100_000, "not a line of JSON"),
    ],
)
def test_a_torn_line_is_one_error_and_nothing_is_rewritten(place, line, said):
    keep(study_of(BN), **place)
    path = place["kept"] / "mini.jsonl"
    path.write_bytes(path.read_bytes() + line + b"\n")
    before = texts(place["kept"])
    with pytest.raises(InputError, match=rf"mini.jsonl, line 3: {said}") as caught:
        keep(study_of(BN, ASR), **place)
    assert "mend or remove" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert texts(place["kept"]) == before
    (problem,) = find_results(place["runs"] / "no", place["kept"]).problems
    assert said in problem


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"average_accuracy": 94.6}, "average"),
        ({"average_accuracy": 0.987}, "average_accuracy"),
        ({"config_hash": "../../etc"}, "not the hash of a config"),
        ({"seed": "0"}, "seed must be int"),
    ],
)
def test_a_line_with_what_no_run_gives_is_told(place, change, said):
    keep(study_of(BN), seeds=[0], **place)
    path = place["kept"] / "mini.jsonl"
    path.write_text(json.dumps(json.loads(path.read_text()) | change) + "\n")
    store = find_results(place["runs"] / "no", place["kept"])
    assert not store.results
    assert said in store.problems[0]


def test_two_lines_of_a_run_are_told_where_they_differ(place):
    keep(study_of(BN), seeds=[0], **place)
    path = place["kept"] / "mini.jsonl"
    line = path.read_text()
    path.write_text(line + line)  # as a merge may leave it
    assert not find_results(place["runs"] / "no", place["kept"]).problems
    path.write_text(line + line.replace("0.5", "0.7"))
    store = find_results(place["runs"] / "no", place["kept"])
    assert "line 2: run" in store.problems[0]
    assert [one.result.average_accuracy for one in store.results.values()] == [0.5]
    with pytest.raises(InputError, match="line 2: run"):
        keep(study_of(ASR), **place)


def test_of_a_run_in_two_files_the_first_counts_here_too(tmp_path):
    kept = tmp_path / "results"
    kept.mkdir()
    for name, value in (("a", 0.5), ("b", 0.9)):
        (kept / f"{name}.jsonl").write_text(format_lines([make_result(BN, 0, {"usps": value})]))
    put_result(tmp_path / "runs", BN, 0, {"usps": 0.9})
    found = keep(study_of(BN), runs=tmp_path / "runs", kept=kept, seeds=[0])
    assert (len(found.differing), found.same) == (1, ())


def test_a_kept_line_says_where_and_of_what_it_was_made(place):
    env = {"device": "cuda", "gpu": "NVIDIA H200", "torch": "2.11.0", "day": "2026-11-15", "edition": "", "cores": 16}
    resumed = [{"day": "2026-11-16"}, {"edition": "19 of 19 corruptions generated, seed 0"}]
    put_result(place["runs"], BN, 0, USPS, commit="a" * 40, env={**env, "resumed": resumed})
    keep(study_of(BN, BN_TEST), **place)
    nowhere = place["runs"].parent / "nowhere"
    kept = find_results(nowhere, place["kept"]).results
    for identity in (content_hash(BN.config(0, "paper")), content_hash(BN_TEST.scored_config(0, "paper"))):
        assert kept[identity].result.origin == {
            "device": "NVIDIA H200",
            "torch": "2.11.0",
            "day": "2026-11-16",
            "edition": "19 of 19 corruptions generated, seed 0",
        }
    assert kept[content_hash(BN.config(1, "paper"))].result.origin == {}


def test_the_commits_at_which_a_run_was_gone_on_with_are_kept_and_warned_of(place):
    parts = [{"commit": "b" * 40}, {"day": "2026-11-16"}, {"commit": "a" * 40}]
    put_result(place["runs"], BN, 0, USPS, commit="a" * 40, env={"commit": "a" * 40, "resumed": parts})
    keep(study_of(BN), **place)
    nowhere = place["runs"].parent / "nowhere"
    kept = find_results(nowhere, place["kept"]).results
    assert kept[content_hash(BN.config(0, "paper"))].result.commits == ("a" * 40, "b" * 40)
    warnings = collect(study_of(BN), runs=nowhere, kept=place["kept"], seeds=[0]).warnings
    assert f"the table mixes runs of 2 commits: {'a' * 12}, {'b' * 12}" in warnings


def test_a_line_kept_before_origins_were_is_the_same_line(place):
    keep(study_of(BN), **place)
    before = texts(place["kept"])
    put_result(place["runs"], BN, 0, USPS, commit="a" * 40, env={"device": "cpu"})
    assert len(keep(study_of(BN), **place).same) == 2
    assert texts(place["kept"]) == before


@pytest.mark.parametrize("text", ["", "[]", '{"resumed": 3}', '{"resumed": [1]}', "\xff"])
def test_a_damaged_environment_costs_the_origin_alone(place, text):
    folder = put_result(place["runs"], BN, 0, USPS)
    (folder / "env.json").write_text(text, encoding="latin-1")
    assert find_results(place["runs"]).results[content_hash(BN.config(0, "paper"))].result.origin == {}
