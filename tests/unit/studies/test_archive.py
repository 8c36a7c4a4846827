"""Archived results outlive their run folders, each run once, and nothing is lost or overwritten unasked."""

import io
import json
import math
import shutil
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from asrnorm.core.config import content_hash, run_name
from asrnorm.core.errors import InputError
from asrnorm.core.results import read_result, seal, write_result
from asrnorm.studies import (
    ANALYSIS_FILES,
    Cell,
    Evaluation,
    Measure,
    Row,
    RunSpec,
    Study,
    archive,
    collect,
    get_study,
    plan,
)
from asrnorm.studies.archive import COMPONENTS, format_lines, reduce_statistics
from asrnorm.studies.store import find_results, read_log
from helpers.made_up_run import make_up_divergence, make_up_runs, make_up_statistics, write_log
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
def folders(tmp_path):
    for seed in (0, 1):
        for spec in (BN, BN_TEST, ASR):
            put_result(tmp_path / "runs", spec, seed, USPS, commit="a" * 40)
    return {"runs": tmp_path / "runs", "kept": tmp_path / "results"}


def texts(kept):
    return {str(path.relative_to(kept)): path.read_bytes() for path in sorted(kept.rglob("*")) if path.is_file()}


def test_runs_and_evaluations_become_lines_and_twice_changes_nothing(folders):
    study = study_of(BN, BN_TEST, ASR)
    done = archive(study, **folders)
    assert (len(done.added), done.path.name) == (6, "mini.jsonl")
    before = texts(folders["kept"])
    assert set(before) == {"mini.jsonl"}
    again = archive(study, **folders)
    assert (again.added, len(again.same)) == ((), 6)
    assert texts(folders["kept"]) == before
    nowhere = folders["runs"].parent / "nowhere"
    found = find_results(nowhere, folders["kept"])
    assert found.results.keys() == find_results(folders["runs"]).results.keys()
    assert {
        task.state for task in plan(study, seeds=[0, 1], scale="paper", runs=nowhere, kept=folders["kept"]).tasks
    } == {"kept"}


def test_lines_stand_in_an_order_of_their_own(folders):
    archive(study_of(ASR), seeds=[1], **folders)
    archive(study_of(ASR, BN), **folders)
    lines = [json.loads(line) for line in (folders["kept"] / "mini.jsonl").read_text().splitlines()]
    assert [(line["recipe"], line["seed"]) for line in lines] == [
        ("digits.erm_asr", 0),
        ("digits.erm_asr", 1),
        ("digits.erm_bn", 0),
        ("digits.erm_bn", 1),
    ]


def test_lines_from_another_machine_are_put_in_order(folders):
    study = study_of(BN, ASR)
    archive(study, **folders)
    path = folders["kept"] / "mini.jsonl"
    before = path.read_text()
    path.write_text(before + "".join(reversed(before.splitlines(keepends=True))))
    archive(study, runs=folders["runs"] / "no", kept=folders["kept"])
    assert path.read_text() == before


def test_a_damaged_result_is_left_out(folders):
    folder = put_result(folders["runs"], BN, 0, USPS)
    (folder / "result.json").write_text("{")
    assert archive(study_of(BN), **folders).added == (content_hash(BN.config(1, "paper")),)


def test_a_run_that_two_studies_share_is_kept_once(folders):
    archive(study_of(BN), **folders)
    second = archive(study_of(BN, ASR, name="other"), **folders)
    assert (len(second.added), len(second.same)) == (2, 2)
    assert len((folders["kept"] / "other.jsonl").read_text().splitlines()) == 2


def test_other_numbers_replace_those_of_another_commit_and_only_where_asked(folders):
    study = study_of(BN)
    archive(study, **folders)
    put_result(folders["runs"], BN, 0, {"usps": 0.9}, commit="b" * 40)
    put_result(folders["runs"], BN, 1, {"usps": 0.9}, commit="a" * 40)
    before = texts(folders["kept"])
    assert len(archive(study, **folders).differing) == 2
    assert texts(folders["kept"]) == before
    renewed = archive(study, renew=True, **folders)
    assert renewed.replaced == (content_hash(BN.config(0, "paper")),)
    assert renewed.differing == (content_hash(BN.config(1, "paper")),)
    found = find_results(folders["runs"] / "no", folders["kept"]).results.values()
    assert sorted(one.result.average_accuracy for one in found) == [0.5, 0.9]


def test_the_same_numbers_at_another_commit_are_called_the_same_numbers(folders):
    study = study_of(BN)
    archive(study, **folders)
    before = texts(folders["kept"])
    put_result(folders["runs"], BN, 0, USPS, commit="b" * 40)
    found, identity = archive(study, **folders), content_hash(BN.config(0, "paper"))
    assert (found.repeated, found.differing, texts(folders["kept"])) == ((identity,), (), before)
    assert archive(study, renew=True, **folders).replaced == (identity,)


def test_numbers_of_several_commits_are_replaced_by_those_of_one(folders):
    study = study_of(BN)
    first, second = "a" * 40, "b" * 40
    put_result(folders["runs"], BN, 0, {"usps": 0.5}, commit=first, env={"resumed": [{"commit": second}]})
    archive(study, **folders)
    put_result(folders["runs"], BN, 0, {"usps": 0.9}, commit=first, env={})
    assert archive(study, renew=True, **folders).replaced == (content_hash(BN.config(0, "paper")),)


def test_numbers_of_changed_files_are_replaced_by_others_of_the_same_commit(folders):
    study = study_of(BN)
    put_result(folders["runs"], BN, 0, {"usps": 0.5}, commit="c" * 40 + "+")
    archive(study, **folders)
    put_result(folders["runs"], BN, 0, {"usps": 0.9}, commit="c" * 40 + "+")
    assert archive(study, renew=True, **folders).replaced == (content_hash(BN.config(0, "paper")),)


def test_a_replaced_run_stays_in_the_file_it_was_kept_in(folders):
    archive(study_of(BN), **folders)
    put_result(folders["runs"], BN, 0, {"usps": 0.9}, commit="b" * 40)
    archive(study_of(BN, name="other"), renew=True, **folders)
    assert set(texts(folders["kept"])) == {"mini.jsonl"}


def test_evaluations_of_a_replaced_run_go_with_it(folders):
    study = study_of(BN, BN_TEST)
    archive(study, **folders)
    for path in folders["runs"].glob("*/evaluations/*.json"):
        path.unlink()
    put_result(folders["runs"], BN, 0, {"usps": 0.9}, commit="b" * 40)
    states = {task.key: task.state for task in plan(study, seeds=[0], scale="paper", **folders).tasks}
    assert sorted(states.values()) == ["done", "pending"]  # the kept one is of the other training
    archive(study, renew=True, **folders)
    left = find_results(folders["runs"] / "no", folders["kept"]).results
    assert content_hash(BN_TEST.scored_config(0, "paper")) not in left
    assert content_hash(BN_TEST.scored_config(1, "paper")) in left


def test_a_run_without_targets_is_kept_and_read_again(folders):
    path = put_result(folders["runs"], ASR, 0, USPS) / "result.json"
    write_result(path, replace(read_result(path), domains=(), average_accuracy=math.nan))
    archive(study_of(ASR), **folders)
    assert len(archive(study_of(ASR), **folders).same) == 2


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
def test_a_torn_line_is_one_error_and_nothing_is_rewritten(folders, line, said):
    archive(study_of(BN), **folders)
    path = folders["kept"] / "mini.jsonl"
    path.write_bytes(path.read_bytes() + line + b"\n")
    before = texts(folders["kept"])
    with pytest.raises(InputError, match=rf"mini.jsonl, line 3: {said}") as caught:
        archive(study_of(BN, ASR), **folders)
    assert "mend or remove" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert texts(folders["kept"]) == before
    (problem,) = find_results(folders["runs"] / "no", folders["kept"]).problems
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
def test_a_line_with_what_no_run_gives_is_told(folders, change, said):
    archive(study_of(BN), seeds=[0], **folders)
    path = folders["kept"] / "mini.jsonl"
    path.write_text(json.dumps(json.loads(path.read_text()) | change) + "\n")
    store = find_results(folders["runs"] / "no", folders["kept"])
    assert not store.results
    assert said in store.problems[0]


def test_two_lines_of_a_run_are_told_where_they_differ(folders):
    archive(study_of(BN), seeds=[0], **folders)
    path = folders["kept"] / "mini.jsonl"
    line = path.read_text()
    path.write_text(line + line)  # as a merge may leave it
    assert not find_results(folders["runs"] / "no", folders["kept"]).problems
    path.write_text(line + line.replace("0.5", "0.7"))
    store = find_results(folders["runs"] / "no", folders["kept"])
    assert "line 2: run" in store.problems[0]
    assert [one.result.average_accuracy for one in store.results.values()] == [0.5]
    with pytest.raises(InputError, match="line 2: run"):
        archive(study_of(ASR), **folders)


def test_of_a_run_in_two_files_the_first_counts_here_too(tmp_path):
    kept = tmp_path / "results"
    kept.mkdir()
    for name, value in (("a", 0.5), ("b", 0.9)):
        (kept / f"{name}.jsonl").write_text(format_lines([make_result(BN, 0, {"usps": value})]))
    put_result(tmp_path / "runs", BN, 0, {"usps": 0.9})
    found = archive(study_of(BN), runs=tmp_path / "runs", kept=kept, seeds=[0])
    assert (len(found.differing), found.same) == (1, ())


def test_a_kept_line_says_where_and_of_what_it_was_made(folders):
    env = {"device": "cuda", "gpu": "NVIDIA H200", "torch": "2.11.0", "day": "2026-11-15", "edition": "", "cores": 16}
    resumed = [{"day": "2026-11-16"}, {"edition": "19 of 19 corruptions generated, seed 0"}]
    put_result(folders["runs"], BN, 0, USPS, commit="a" * 40, env={**env, "resumed": resumed})
    archive(study_of(BN, BN_TEST), **folders)
    nowhere = folders["runs"].parent / "nowhere"
    kept = find_results(nowhere, folders["kept"]).results
    for identity in (content_hash(BN.config(0, "paper")), content_hash(BN_TEST.scored_config(0, "paper"))):
        assert kept[identity].result.origin == {
            "device": "NVIDIA H200",
            "torch": "2.11.0",
            "day": "2026-11-16",
            "edition": "19 of 19 corruptions generated, seed 0",
        }
    assert kept[content_hash(BN.config(1, "paper"))].result.origin == {}


def test_the_commits_at_which_a_run_resumed_are_kept_and_warned_of(folders):
    parts = [{"commit": "b" * 40}, {"day": "2026-11-16"}, {"commit": "a" * 40}]
    put_result(folders["runs"], BN, 0, USPS, commit="a" * 40, env={"commit": "a" * 40, "resumed": parts})
    archive(study_of(BN), **folders)
    nowhere = folders["runs"].parent / "nowhere"
    kept = find_results(nowhere, folders["kept"]).results
    assert kept[content_hash(BN.config(0, "paper"))].result.commits == ("a" * 40, "b" * 40)
    warnings = collect(study_of(BN), runs=nowhere, kept=folders["kept"], seeds=[0]).warnings
    assert f"the table mixes runs of 2 commits: {'a' * 12}, {'b' * 12}" in warnings


def test_a_line_kept_before_origins_were_is_the_same_line(folders):
    archive(study_of(BN), **folders)
    before = texts(folders["kept"])
    put_result(folders["runs"], BN, 0, USPS, commit="a" * 40, env={"device": "cpu"})
    assert len(archive(study_of(BN), **folders).same) == 2
    assert texts(folders["kept"]) == before


@pytest.mark.parametrize("text", ["", "[]", '{"resumed": 3}', '{"resumed": [1]}', "\xff"])
def test_a_damaged_environment_costs_the_origin_alone(folders, text):
    folder = put_result(folders["runs"], BN, 0, USPS)
    (folder / "env.json").write_text(text, encoding="latin-1")
    assert find_results(folders["runs"]).results[content_hash(BN.config(0, "paper"))].result.origin == {}


def archive_and_train_again(tmp_path):
    """A figure whose runs are kept, and the folder of one that has other numbers at another commit since."""
    study = get_study("fig-lambda-pacs")
    folders = {"runs": tmp_path / "runs", "kept": tmp_path / "results", "scale": "smoke"}
    make_up_runs(study, folders["runs"], seeds=[0])
    archive(study, **folders)
    spec = study.rows[0].cells["Photo"].runs[0]
    folder = put_result(folders["runs"], spec, 0, {"sketch": 0.5}, scale="smoke", commit="b" * 40)
    return study, folders, spec, folder


def test_statistics_of_a_replaced_run_are_those_of_the_new_one(tmp_path):
    study = get_study("fig-tsne")
    folders = {"runs": tmp_path / "runs", "kept": tmp_path / "results", "scale": "smoke"}
    spec = study.rows[0].cells["Photo"].runs[0]
    make_up_runs(study, folders["runs"], seeds=[0])
    make_up_statistics(spec, folders["runs"], 0, samples=40)
    archive(study, **folders)
    shutil.rmtree(put_result(folders["runs"], spec, 0, {"sketch": 0.5}, scale="smoke", commit="b" * 40) / "analyses")
    make_up_statistics(spec, folders["runs"], 0, samples=30)
    assert len(archive(study, renew=True, **folders).replaced) == 1
    path = folders["kept"] / "details" / run_name(spec.config(0, "smoke")) / ANALYSIS_FILES["statistics"]
    assert len(np.load(path)["domain"]) == 4 * 30


def test_curves_of_a_replaced_run_are_those_of_the_new_one(tmp_path):
    study, folders, spec, folder = archive_and_train_again(tmp_path)
    before = read_log(folders["kept"] / "details" / folder.name)
    write_log(folder / "log.jsonl", spec.config(0, "smoke"), seed=7)
    archive(study, renew=True, **folders)
    after = read_log(folders["kept"] / "details" / folder.name)
    assert len(after) == len(before)
    assert after[0]["loss"] != before[0]["loss"]


def test_components_are_those_of_the_deviations_from_the_mean(tmp_path):
    path = tmp_path / "statistics.npz"
    np.savez(path, domain=np.zeros(60), mu_first=np.random.default_rng(0).normal(size=(60, 40)) + 50)
    kept = np.load(io.BytesIO(reduce_statistics(path)))["mu_first"].astype(float)
    assert kept.shape == (60, COMPONENTS)
    assert kept.mean(0) == pytest.approx(0, abs=1e-3)
    assert kept[:, 0].std() == pytest.approx(1, abs=1e-3)


def test_curves_do_not_stand_beside_the_numbers_of_another_training(tmp_path):
    study = get_study("fig-lambda-pacs")
    folders = {"runs": tmp_path / "runs", "kept": tmp_path / "results", "scale": "smoke"}
    make_up_runs(study, folders["runs"], seeds=[0])
    spec = study.rows[0].cells["Photo"].runs[0]
    log = put_result(folders["runs"], spec, 0, {"sketch": 0.5}, scale="smoke") / "log.jsonl"
    text = log.read_text()
    log.unlink()
    archive(study, **folders)
    put_result(folders["runs"], spec, 0, {"sketch": 0.9}, scale="smoke")
    log.write_text(text)
    assert len(archive(study, **folders).differing) == 1
    assert not (folders["kept"] / "details" / log.parent.name / "curves.csv").exists()


def test_a_figure_of_lambdas_keeps_curves_beside_the_lines(tmp_path):
    study = get_study("fig-lambda-pacs")
    make_up_runs(study, tmp_path / "runs", seeds=[0])
    archive(study, runs=tmp_path / "runs", kept=tmp_path / "results", scale="smoke")
    curves = sorted((tmp_path / "results" / "details").glob("*/curves.csv"))
    assert len(curves) == 8
    assert all(path.stat().st_size < 20_000 for path in curves)
    log = read_log(tmp_path / "runs" / curves[0].parent.name)
    kept = read_log(curves[0].parent)
    assert kept[-1]["step"] == log[-1]["step"]
    assert any("lambdas" in row for row in kept)


def test_a_table_keeps_the_curves_that_a_figure_needs_of_the_runs_they_share(tmp_path):
    study = get_study("table3-chosen")
    make_up_runs(study, tmp_path / "runs", seeds=[0, 1])
    archive(study, runs=tmp_path / "runs", kept=tmp_path / "results", scale="smoke")
    names = {path.parent.name.split("--")[0] for path in (tmp_path / "results" / "details").glob("*/curves.csv")}
    assert names == {"pacs.rsc_asr"}
    figure, gone = get_study("fig-lambda-pacs"), tmp_path / "no"
    found = plan(figure, seeds=[0, 1], scale="smoke", runs=gone, kept=tmp_path / "results")
    assert Counter(task.state for task in found.tasks) == {
        "kept": 8,
        "pending": 8,
    }  # those without decay on lambdas are its own


def test_curves_of_a_replaced_run_go_where_the_new_one_has_none(tmp_path):
    study, folders, _, folder = archive_and_train_again(tmp_path)
    (folder / "log.jsonl").unlink()
    assert len(archive(study, renew=True, **folders).replaced) == 1
    left = {path.parent.name for path in folders["kept"].glob("details/*/curves.csv")}
    assert len(left) == 7
    assert folder.name not in left


def test_statistics_are_kept_small_and_near_what_they_were(tmp_path):
    study = get_study("fig-tsne")
    make_up_runs(study, tmp_path / "runs", seeds=[0])
    spec = study.rows[0].cells["Photo"].runs[0]
    make_up_statistics(spec, tmp_path / "runs", 0)
    archive(study, runs=tmp_path / "runs", kept=tmp_path / "results", scale="smoke")
    name = run_name(spec.config(0, "smoke"))
    (path,) = (tmp_path / "results" / "details").glob("*/analyses/statistics.npz")
    assert path == tmp_path / "results" / "details" / name / ANALYSIS_FILES["statistics"]
    with np.load(path) as kept, np.load(tmp_path / "runs" / name / ANALYSIS_FILES["statistics"]) as whole:
        assert kept["domain"].tolist() == whole["domain"].tolist()
        assert kept["mu_first"].shape == (160, COMPONENTS)
        far, near = (distances(arrays["mu_first"]) for arrays in (kept, whole))
    assert np.corrcoef(far, near)[0, 1] > 0.999  # all 16 channels fit into the components


def distances(points):
    points = points.astype(float)
    return np.linalg.norm(points[:, None] - points[None], axis=-1).ravel()


@pytest.mark.parametrize("compression", [None, 77])
def test_damaged_statistics_are_one_line(tmp_path, compression):
    path = tmp_path / "statistics.npz"
    path.write_bytes(b"PK\x03\x04 torn")
    if compression:
        np.savez(path, domain=np.array(["photo"]))
        data = bytearray(path.read_bytes())
        data[data.index(b"PK\x01\x02") + 10] = compression
        path.write_bytes(data)
    with pytest.raises(InputError, match=r"statistics.npz: damaged"):
        reduce_statistics(path)


def test_a_run_that_diverged_is_kept_where_that_is_an_outcome(tmp_path):
    study = get_study("ablation-residual")
    spec = study.rows[1].cells["Unseen"].runs[0]
    make_up_divergence(spec, tmp_path / "runs", 0)
    archive(study, runs=tmp_path / "runs", kept=tmp_path / "results", scale="smoke")
    tasks = plan(study, seeds=[0], scale="smoke", runs=tmp_path / "no", kept=tmp_path / "results").tasks
    assert [task.spec for task in tasks if task.state == "kept"] == [spec]


def test_checksums_survive_archiving_and_guard_the_line(folders):
    for path in folders["runs"].rglob("*.json"):
        write_result(path, seal(replace(read_result(path), weights_sha256="a" * 64)))
    for folder in folders["runs"].iterdir():
        (folder / "env.json").write_text(json.dumps({"commit": "a" * 40, "torch": "2.9"}))
    archive(study_of(BN, BN_TEST, ASR), **folders)
    path = folders["kept"] / "mini.jsonl"
    kept = find_results(folders["kept"] / "none", folders["kept"])
    assert (len(kept.results), kept.problems) == (6, ())
    assert all(one.result.weights_sha256 and one.result.origin["torch"] == "2.9" for one in kept.results.values())
    path.write_text(path.read_text().replace('"steps": 1', '"steps": 2', 1))
    (problem,) = find_results(folders["kept"] / "none", folders["kept"]).problems
    assert "checksum" in problem


def test_a_result_with_checksums_is_the_same_as_its_kept_line_without(folders):
    study = study_of(BN)
    archive(study, **folders)
    before = texts(folders["kept"])
    for path in folders["runs"].glob("*/result.json"):
        write_result(path, seal(replace(read_result(path), weights_sha256="a" * 64)))
    assert len(archive(study, **folders).same) == 2
    assert texts(folders["kept"]) == before


def test_what_a_killed_process_left_is_no_kept_file(folders):
    study = study_of(BN)
    archive(study, **folders)
    expected = texts(folders["kept"])
    left = folders["kept"] / ".mini.jsonl.999999999.tmp.jsonl"
    (folders["kept"] / "mini.jsonl").rename(left)
    assert find_results(folders["runs"] / "none", folders["kept"]).results == {}
    assert len(archive(study, **folders).added) == 2
    assert texts(folders["kept"])["mini.jsonl"] == expected["mini.jsonl"]
