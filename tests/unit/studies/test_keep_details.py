"""What is kept of runs besides their results: curves and statistics."""

import io
import shutil

import numpy as np
import pytest

from asrnorm.config import run_name
from asrnorm.studies import ANALYSIS_FILES, get_study, keep
from asrnorm.studies.curve import read_log
from asrnorm.studies.keep import COMPONENTS, reduce_statistics
from helpers.made_up_run import make_up_runs, make_up_statistics, write_log
from helpers.study_case import put_result


def test_statistics_of_a_replaced_run_are_those_of_the_new_one(tmp_path):
    study = get_study("fig-tsne")
    place = {"runs": tmp_path / "runs", "kept": tmp_path / "results", "scale": "smoke"}
    spec = study.rows[0].cells["Photo"].runs[0]
    make_up_runs(study, place["runs"], seeds=[0])
    make_up_statistics(spec, place["runs"], 0, samples=40)
    keep(study, **place)
    shutil.rmtree(put_result(place["runs"], spec, 0, {"sketch": 0.5}, scale="smoke", commit="b" * 40) / "analyses")
    make_up_statistics(spec, place["runs"], 0, samples=30)
    assert len(keep(study, renew=True, **place).replaced) == 1
    path = place["kept"] / "details" / run_name(spec.config(0, "smoke")) / ANALYSIS_FILES["statistics"]
    assert len(np.load(path)["domain"]) == 4 * 30


def test_curves_of_a_replaced_run_are_those_of_the_new_one(tmp_path):
    study = get_study("fig-lambda-pacs")
    place = {"runs": tmp_path / "runs", "kept": tmp_path / "results", "scale": "smoke"}
    make_up_runs(study, place["runs"], seeds=[0])
    keep(study, **place)
    spec = study.rows[0].cells["Photo"].runs[0]
    folder = put_result(place["runs"], spec, 0, {"sketch": 0.5}, scale="smoke", commit="b" * 40)
    before = read_log(place["kept"] / "details" / folder.name)
    write_log(folder / "log.jsonl", spec.config(0, "smoke"), seed=7)
    keep(study, renew=True, **place)
    after = read_log(place["kept"] / "details" / folder.name)
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
    place = {"runs": tmp_path / "runs", "kept": tmp_path / "results", "scale": "smoke"}
    make_up_runs(study, place["runs"], seeds=[0])
    spec = study.rows[0].cells["Photo"].runs[0]
    log = put_result(place["runs"], spec, 0, {"sketch": 0.5}, scale="smoke") / "log.jsonl"
    text = log.read_text()
    log.unlink()
    keep(study, **place)
    put_result(place["runs"], spec, 0, {"sketch": 0.9}, scale="smoke")
    log.write_text(text)
    assert len(keep(study, **place).differing) == 1
    assert not (place["kept"] / "details" / log.parent.name / "curves.csv").exists()
