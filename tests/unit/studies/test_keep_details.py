"""What is kept of runs besides their results: curves, statistics and divergences."""

import io
import shutil

import numpy as np
import pytest

from asrnorm.core.config import run_name
from asrnorm.core.errors import InputError
from asrnorm.studies import ANALYSIS_FILES, get_study, keep, plan
from asrnorm.studies.curve import read_log
from asrnorm.studies.keep import COMPONENTS, reduce_statistics
from helpers.made_up_run import make_up_divergence, make_up_runs, make_up_statistics, write_log
from helpers.study_case import put_result


def keep_and_train_again(tmp_path):
    """A figure whose runs are kept, and the folder of one that has other numbers at another commit since."""
    study = get_study("fig-lambda-pacs")
    place = {"runs": tmp_path / "runs", "kept": tmp_path / "results", "scale": "smoke"}
    make_up_runs(study, place["runs"], seeds=[0])
    keep(study, **place)
    spec = study.rows[0].cells["Photo"].runs[0]
    folder = put_result(place["runs"], spec, 0, {"sketch": 0.5}, scale="smoke", commit="b" * 40)
    return study, place, spec, folder


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
    study, place, spec, folder = keep_and_train_again(tmp_path)
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


def test_a_figure_of_lambdas_keeps_curves_beside_the_lines(tmp_path):
    study = get_study("fig-lambda-pacs")
    make_up_runs(study, tmp_path / "runs", seeds=[0])
    keep(study, runs=tmp_path / "runs", kept=tmp_path / "results", scale="smoke")
    curves = sorted((tmp_path / "results" / "details").glob("*/curves.csv"))
    assert len(curves) == 8
    assert all(path.stat().st_size < 20_000 for path in curves)
    log = read_log(tmp_path / "runs" / curves[0].parent.name)
    kept = read_log(curves[0].parent)
    assert kept[-1]["step"] == log[-1]["step"]
    assert any("lambdas" in row for row in kept)


def test_a_table_keeps_the_curves_that_a_figure_needs_of_the_runs_they_share(tmp_path):
    study = get_study("table3")
    make_up_runs(study, tmp_path / "runs", seeds=[0, 1])
    keep(study, runs=tmp_path / "runs", kept=tmp_path / "results", scale="smoke")
    names = {path.parent.name.split("--")[0] for path in (tmp_path / "results" / "details").glob("*/curves.csv")}
    assert names == {"pacs.rsc_asr"}
    figure, gone = get_study("fig-lambda-pacs"), tmp_path / "no"
    found = plan(figure, seeds=[0, 1], scale="smoke", runs=gone, kept=tmp_path / "results")
    assert (found.count("kept"), found.count("pending")) == (8, 8)  # those without decay on lambdas are its own


def test_curves_of_a_replaced_run_go_where_the_new_one_has_none(tmp_path):
    study, place, _, folder = keep_and_train_again(tmp_path)
    (folder / "log.jsonl").unlink()
    assert len(keep(study, renew=True, **place).replaced) == 1
    left = {path.parent.name for path in place["kept"].glob("details/*/curves.csv")}
    assert len(left) == 7
    assert folder.name not in left


def test_statistics_are_kept_small_and_near_what_they_were(tmp_path):
    study = get_study("fig-tsne")
    make_up_runs(study, tmp_path / "runs", seeds=[0])
    spec = study.rows[0].cells["Photo"].runs[0]
    make_up_statistics(spec, tmp_path / "runs", 0)
    keep(study, runs=tmp_path / "runs", kept=tmp_path / "results", scale="smoke")
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


def test_damaged_statistics_are_one_line(tmp_path):
    path = tmp_path / "statistics.npz"
    path.write_bytes(b"PK\x03\x04 torn")
    with pytest.raises(InputError, match=r"statistics.npz: damaged"):
        reduce_statistics(path)


def test_a_run_that_diverged_is_kept_where_that_is_an_outcome(tmp_path):
    study = get_study("ablation-residual")
    spec = study.rows[1].cells["Unseen"].runs[0]
    make_up_divergence(spec, tmp_path / "runs", 0)
    keep(study, runs=tmp_path / "runs", kept=tmp_path / "results", scale="smoke")
    tasks = plan(study, seeds=[0], scale="smoke", runs=tmp_path / "no", kept=tmp_path / "results").tasks
    assert [task.spec for task in tasks if task.state == "kept"] == [spec]
