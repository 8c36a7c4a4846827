"""A finished run on a user's own images, which are then moved, added to or exchanged."""

import json
import shutil

import pytest

from asrnorm.cli.main import main
from asrnorm.cli.study_choice import change_runs
from asrnorm.studies import Cell, Measure, Row, RunSpec, Study, archive
from asrnorm.studies.spec import STUDIES


@pytest.fixture
def train(photos, tmp_path, monkeypatch):
    monkeypatch.setenv("ASRNORM_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    options = ["--scale", "smoke", "--source", "factory_a", *settings(photos)]

    def call(out, *more):
        return main(["train", "folder.erm_bn", *options, "--out", str(tmp_path / out), *more])

    assert call("runs/a") == 0
    return call


def grow(photos):
    picture = photos / "factory_a" / "good" / "0.png"
    picture.with_name("late.png").write_bytes(picture.read_bytes())


def settings(photos):
    """Options of a small run on the images."""
    fields = {"suite.root": photos, "suite.size": 32, "model": "digits_convnet", "steps": 2}
    return [word for name, value in fields.items() for word in ("--set", f"{name}={value}")]


def planning(photos):
    return ["reproduce", "own", "--seeds", "1", "--scale", "smoke", "--runs", "runs", "--dry-run", *settings(photos)]


def own_study():
    spec = RunSpec(recipe="folder.erm_bn", options={"source": "factory_a"})
    cell = Cell(measure=Measure(quantity="accuracy"), runs=(spec,))
    row = Row(label="a", cells={"Avg.": cell})
    return Study(name="own", title="own", caption="", columns=("Avg.",), rows=(row,))


def test_a_finished_run_is_no_answer_for_other_images(photos, train, capsys):
    assert train("runs/a") == 0  # the same images: at once
    grow(photos)
    capsys.readouterr()
    assert train("runs/a") == 1
    assert "started with 24 source images, now there are 25" in capsys.readouterr().err
    assert train("runs/a", "--fresh") == 0
    shutil.rmtree(photos)
    assert train("runs/a") == 0  # gone, they change nothing


def test_images_that_were_trained_on_are_never_scored_as_held_out(photos, train, tmp_path, capsys):
    run = str(tmp_path / "runs/a")
    assert main(["evaluate", run]) == 0
    grow(photos)
    capsys.readouterr()
    assert main(["evaluate", run, "--as", "later"]) == 1
    assert "now there are 25; restore the original ones, or score the images" in capsys.readouterr().err
    assert not (tmp_path / "runs/a/evaluations").exists()
    assert main(["evaluate", run, "--data", str(photos / "factory_b")]) == 0


@pytest.mark.parametrize("option", ["suite.source=factory_b", "suite.seed=3", "suite.validation=0.4"])
@pytest.mark.parametrize("moved", [False, True])
def test_another_way_to_the_same_images_holds_out_no_others(photos, train, tmp_path, capsys, option, moved):
    there = tmp_path / "there"
    if moved:
        photos.rename(there)
    else:
        there.symlink_to(photos)
    run = str(tmp_path / "runs/a")
    assert main(["evaluate", run, "--set", f"suite.root={there}", "--set", option]) == 2
    assert "decides which images a run is trained on" in capsys.readouterr().err
    assert main(["evaluate", run, "--set", f"suite.root={there}"]) == 0


def test_images_that_are_gone_are_told_with_the_two_ways_on(photos, train, tmp_path, capsys):
    photos.rename(tmp_path / "there")
    assert main(["evaluate", str(tmp_path / "runs/a")]) == 1
    error = capsys.readouterr().err
    assert "--set suite.root=DIR" in error
    assert "--data DIR" in error


def test_a_run_without_its_classes_says_which_file_is_missing(photos, train, tmp_path, capsys):
    picture = tmp_path / "new.png"
    shutil.copy(photos / "factory_b/bad/0.png", picture)
    (tmp_path / "runs/a/env.json").unlink()
    assert main(["predict", str(tmp_path / "runs/a"), str(picture)]) == 0  # the images have them too
    shutil.rmtree(photos)
    capsys.readouterr()
    assert main(["predict", str(tmp_path / "runs/a"), str(picture)]) == 1
    assert "runs/a/env.json: cannot be read for the classes of the run, and " in capsys.readouterr().err


def test_a_report_names_a_run_that_it_leaves_out(photos, train, tmp_path, capsys):
    assert train("runs/b") == 0
    grow(photos)
    assert train("runs/c") == 0
    capsys.readouterr()
    assert main(["report", "runs", "--out", "report"]) == 0
    error = capsys.readouterr().err
    assert "warning: b: the config and seed of a, with the same numbers; left out" in error
    (line,) = [line for line in error.splitlines() if line.startswith("warning: c: ")]
    same = json.loads((tmp_path / "runs/a/result.json").read_text())["domains"]
    other = json.loads((tmp_path / "runs/c/result.json").read_text())["domains"]
    assert same != other
    assert line == "warning: c: the config and seed of a, with other numbers; left out"
    assert "1 finished run;" in (tmp_path / "report/report.md").read_text()


def test_a_study_of_ones_own_shows_no_runs_on_other_images(photos, train, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(STUDIES._entries, "own", own_study)
    words = planning(photos)
    assert main(words) == 0
    assert "1 of 1 runs are done" in capsys.readouterr().out
    grow(photos)
    assert main(words) == 1
    assert "started with 24 source images, now there are 25" in capsys.readouterr().err


def test_kept_results_of_ones_own_images_are_of_those_images(photos, train, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(STUDIES._entries, "own", own_study)
    (tmp_path / "results").mkdir()
    monkeypatch.setattr("asrnorm.cli.reproduce.find_kept", lambda: tmp_path / "results")
    study = change_runs(own_study(), dict(word.split("=") for word in settings(photos)[1::2]))
    archive(study, runs=tmp_path / "runs", kept=tmp_path / "results", scale="smoke", seeds=[0])
    shutil.rmtree(tmp_path / "runs")
    words = planning(photos)
    assert main(words) == 0
    assert "1 of them kept before" in capsys.readouterr().out
    grow(photos)
    assert main(words) == 1
    assert "the source images have changed since its result was kept; restore them" in capsys.readouterr().err
    assert main([*words, "--ignore-kept"]) == 0
    shutil.rmtree(photos)
    assert main(words) == 0
