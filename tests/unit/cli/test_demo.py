"""The demo, whole, at the scale of seconds, and what it trains at its full size."""

import json
import re

import pytest

from asrnorm.cli.demo import ROWS, STEPS, config
from asrnorm.cli.main import main
from asrnorm.core.config import content_hash, run_name
from asrnorm.launch import Failure, Outcome
from asrnorm.recipes import recipe

WORDS = ["demo", "--scale", "smoke", "--seeds", "1", "--out"]


@pytest.fixture
def demo_data():
    for name in ("mlxtend", "sklearn", "skimage", "matplotlib"):
        pytest.importorskip(name, reason=f"{name} is not installed: pip install 'asrnorm[data]'")


@pytest.mark.usefixtures("demo_data")
def test_the_demo_trains_compares_and_reports(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    assert main([*WORDS, str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert all(row in out for row in ROWS)
    assert "unseen, average" in out
    text = (tmp_path / "report.html").read_text()
    assert text.count("<svg") == 1
    assert "data:image/png;base64," in text
    assert not re.search(r"https?://(?!www\.w3\.org|purl\.org|creativecommons\.org|matplotlib\.org)", text)
    results = {path: json.loads(path.read_text()) for path in tmp_path.glob("*/result.json")}
    assert {result["recipe"] for result in results.values()} == set(ROWS.values())
    # Runs of another scale have other folders.
    assert {path.parent.name for path in results} == {run_name(recipe(name, scale="smoke")) for name in ROWS.values()}
    threads = [json.loads(path.with_name("env.json").read_text())["threads"] for path in results]
    assert threads == [1] * len(ROWS)
    finished = {path: path.stat().st_mtime_ns for path in results}
    assert main([*WORDS, str(tmp_path), "--json", "-"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert {row: [result["recipe"] for result in found] for row, found in told.items()} == {
        row: [name] for row, name in ROWS.items()
    }
    assert finished == {path: path.stat().st_mtime_ns for path in results}  # not trained again


@pytest.mark.usefixtures("demo_data")
@pytest.mark.parametrize("ends_by", ["failure", "signal"])
def test_a_demo_that_fails_or_is_stopped_writes_no_report(tmp_path, monkeypatch, capsys, ends_by):
    def launch(jobs, executor, view):
        executor.close()
        if ends_by == "failure":
            return Outcome((), (Failure(jobs[0], "no room on disk"),), tuple(jobs[1:]))
        return Outcome((), (), tuple(jobs))

    monkeypatch.setattr("asrnorm.launch.launch", launch)
    assert main([*WORDS, str(tmp_path)]) == 1
    assert ("no room on disk" if ends_by == "failure" else f"0 of {len(ROWS)} trainings") in capsys.readouterr().err
    assert not (tmp_path / "report.html").exists()


def test_the_demo_has_its_own_number_of_steps_and_leaves_those_of_the_recipes():
    for name in ROWS.values():
        assert config(name).steps == STEPS < recipe(name).steps
        assert content_hash(config(name)) != content_hash(recipe(name))
    assert content_hash(recipe("digits_mini.erm_bn")) == "b1f522eadb"  # results of the recipe itself keep their name
