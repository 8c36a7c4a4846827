"""The demo, whole, at the scale of seconds."""

import json
import re

import pytest

from asrnorm.cli.demo import ROWS
from asrnorm.cli.main import main
from asrnorm.core.config import run_name
from asrnorm.recipes import recipe


def test_the_demo_trains_compares_and_reports(tmp_path, capsys, monkeypatch):
    for name in ("mlxtend", "sklearn", "skimage", "matplotlib"):
        pytest.importorskip(name, reason=f"{name} is not installed: pip install 'asrnorm[data]'")
    monkeypatch.setenv("COLUMNS", "120")
    assert main(["demo", "--out", str(tmp_path), "--scale", "smoke"]) == 0
    out = capsys.readouterr().out
    assert all(row in out for row in ROWS)
    assert "unseen, average" in out
    text = (tmp_path / "report.html").read_text()
    assert text.count("<svg") == 2
    assert "data:image/png;base64," in text
    assert not re.search(r"https?://(?!www\.w3\.org|purl\.org|creativecommons\.org|matplotlib\.org)", text)
    results = [json.loads(path.read_text()) for path in tmp_path.glob("*/result.json")]
    assert {result["recipe"] for result in results} == set(ROWS.values())
    folders = {path.parent.name for path in tmp_path.glob("*/result.json")}
    assert folders == {run_name(recipe(name, scale="smoke")) for name in ROWS.values()}  # of another scale: others
    with next(tmp_path.glob("*/log.jsonl")).open("a") as log:
        log.write('{"step": 9, "lo')  # as a kill leaves it
    capsys.readouterr()
    words = ["demo", "--out", str(tmp_path), "--scale", "smoke", "--json", "-"]
    assert main(words) == 0  # done runs are not trained again
    told = json.loads(capsys.readouterr().out)
    assert {row: result["recipe"] for row, result in told.items()} == ROWS
