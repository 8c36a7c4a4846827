import json

import pytest
import typer
from typer.testing import CliRunner

from asrnorm.cli.data import check
from asrnorm.data.download import catalog
from helpers.toy_set import FILES, toy_set

app = typer.Typer()
app.command()(check)


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setitem(catalog.CATALOG, "toy", toy_set("http://toy.invalid{}".format))
    monkeypatch.setenv("COLUMNS", "200")
    (tmp_path / "toy").mkdir()
    (tmp_path / "toy" / "one.bin").write_bytes(FILES["one.bin"])
    return tmp_path


def call(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def test_the_table_shows_each_file_and_a_missing_one_is_a_failure(root):
    done = call("toy", "--root", root)
    assert done.exit_code == 1
    lines = done.output.splitlines()
    assert any("toy/one.bin" in line and "present" in line for line in lines)
    assert any("toy/two.bin" in line and "missing" in line for line in lines)


def test_a_complete_set_is_a_success(root):
    (root / "toy" / "two.bin").write_bytes(FILES["two.bin"])
    assert call("toy", "--root", root).exit_code == 0


def test_a_damaged_file_is_a_failure(root):
    (root / "toy" / "two.bin").write_bytes(b"x")
    done = call("toy", "--root", root, "--json", "-")
    assert done.exit_code == 1
    rows = json.loads(done.output)
    assert [row["state"] for row in rows] == ["present", "damaged"]
    assert set(rows[0]) == {"set", "file", "state", "detail"}


def test_without_names_every_set_is_checked(root, monkeypatch):
    monkeypatch.setenv("ASRNORM_DATA", str(root))
    done = call("--json", "-")
    assert {row["set"] for row in json.loads(done.output)} == set(catalog.CATALOG)


def test_on_a_narrow_terminal_words_stay_whole_and_a_folder_that_is_not_there_is_told(root, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    (root / "toy" / "two.bin").write_bytes(FILES["two.bin"])
    lines = call("toy", "--root", root).output.splitlines()
    assert all(len(line) <= 80 for line in lines[1:])
    assert any(line.split()[:2] == ["toy", "present"] for line in lines)
    assert "(not there)" not in lines[0]
    assert call("toy", "--root", root / "nowhere").output.splitlines()[0].endswith("nowhere (not there)")
