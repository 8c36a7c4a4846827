import json

import pytest
import typer
from typer.testing import CliRunner

from asrnorm.cli.data import fetch, show_progress
from asrnorm.core.errors import UnknownNameError
from asrnorm.data.download import catalog
from helpers.flaky_server import Page, serve
from helpers.toy_set import FILES, TAR, toy_set

app = typer.Typer()
app.command()(fetch)


@pytest.fixture
def server(monkeypatch):
    with serve() as running:
        monkeypatch.setitem(catalog.CATALOG, "toy", toy_set(running.url))
        yield running


def call(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def test_a_set_is_fetched_into_the_folder_that_is_given(server, tmp_path):
    server.pages["/toy.tar.gz"] = Page(TAR)
    done = call("toy", "--root", tmp_path)
    assert done.exit_code == 0
    assert f"toy: 2 files in {tmp_path / 'toy'}, the published file. Licence: CC0" in done.output
    assert (tmp_path / "toy" / "one.bin").read_bytes() == FILES["one.bin"]
    rows = json.loads(call("toy", "--data", tmp_path, "--json", "-").stdout)
    assert {(row["set"], row["file"], row["state"]) for row in rows} == {
        ("toy", f"toy/{name}", "present") for name in FILES
    }


def test_the_environment_names_the_folder(server, tmp_path, monkeypatch):
    server.pages["/toy.tar.gz"] = Page(TAR)
    monkeypatch.setenv("ASRNORM_DATA", str(tmp_path))
    assert call("toy").exit_code == 0
    assert (tmp_path / "toy" / "two.bin").exists()


def test_one_set_that_fails_does_not_stop_the_next(server, tmp_path, monkeypatch):
    server.pages["/toy.tar.gz"] = Page(TAR)
    monkeypatch.setitem(catalog.CATALOG, "broken", toy_set(server.url, name="broken", sources=()))
    done = call("broken", "toy", "--root", tmp_path)
    assert done.exit_code == 1
    lines = [line for line in done.output.splitlines() if line.startswith("asrnorm: ")]
    assert len(lines) == 1
    assert lines[0].startswith("asrnorm: broken: ")
    assert (tmp_path / "toy" / "one.bin").exists()


def test_a_file_downloaded_by_hand_is_placed(server, tmp_path):
    (tmp_path / "hand.tgz").write_bytes(TAR)
    done = call("toy", "--from-archive", tmp_path / "hand.tgz", "--root", tmp_path / "data")
    assert done.exit_code == 0
    assert server.requests == []
    assert (tmp_path / "data" / "toy" / "one.bin").exists()


def test_what_a_file_by_hand_has_not_brought_is_told(server, tmp_path):
    (tmp_path / "one.bin").write_bytes(FILES["one.bin"])
    done = call("toy", "--from-archive", tmp_path / "one.bin", "--root", tmp_path / "data")
    assert done.exit_code == 0
    assert "toy: still missing: toy/two.bin" in done.output


def test_one_archive_is_for_one_set(server, tmp_path):
    done = call("toy", "mnist", "--from-archive", "x", "--root", tmp_path)
    assert done.exit_code == 2


def test_an_unknown_name_is_refused_before_anything_is_fetched(server, tmp_path):
    done = call("toy", "nothing", "--root", tmp_path)
    assert isinstance(done.exception, UnknownNameError)
    assert server.requests == []


def test_without_a_terminal_there_are_a_few_plain_lines(capsys):
    with show_progress("file.tar") as report:
        for done in range(0, 1_000_001, 1000):
            report(done, 1_000_000)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 11
    assert lines[:2] == ["fetching file.tar", "file.tar: 0.1 of 1.0 MB (10 %)"]
    assert lines[-1] == "file.tar: 1.0 of 1.0 MB (100 %)"


def test_an_unknown_total_is_one_line(capsys):
    with show_progress("file.tar") as report:
        for done in range(0, 10_000, 100):
            report(done, None)
    assert capsys.readouterr().err.splitlines() == ["fetching file.tar"]


def test_on_a_terminal_there_is_a_bar(capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    with show_progress("file.tar") as report:
        report(500, 1000)
    assert "file.tar" in capsys.readouterr().err
