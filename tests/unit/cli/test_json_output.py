"""Numbers for programs: in a file, or alone on the standard output."""

import sys
from pathlib import Path

import pytest
import typer

from asrnorm.cli.options import json_output
from asrnorm.core import files as storage
from asrnorm.core.errors import InputError, StorageError


def test_without_a_file_nothing_is_written(capsys):
    with json_output(None) as write:
        write("[1]")
        typer.echo("table")
    assert capsys.readouterr().out == "table\n"


def test_a_file_is_made_with_its_folder_and_the_rest_is_printed_as_ever(tmp_path, capsys):
    file = tmp_path / "new" / "numbers.json"
    with json_output(file) as write:
        write("[1]")
        assert file.read_text() == "[1]"  # at once: what follows may fail
        write("[1, 2]")
        typer.echo("table")
    assert file.read_text() == "[1, 2]"
    assert capsys.readouterr().out == "table\n"


def test_a_file_is_whole_or_as_it_was(tmp_path, monkeypatch):
    file = tmp_path / "numbers.json"
    with json_output(file) as write:
        write("[1]")

    def fail(*_args, **_kwargs):
        raise OSError("disk full")

    monkeypatch.setattr(storage.os, "fsync", fail)
    with pytest.raises((OSError, StorageError), match="disk full"), json_output(file) as write:
        write("[1, 2]")
    assert file.read_text() == "[1]"
    assert [path.name for path in tmp_path.iterdir()] == ["numbers.json"]


def test_a_dash_prints_the_last_numbers_alone(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    before = sys.stdout
    with json_output(Path("-")) as write:
        typer.echo("table")
        write("[1]\n")
        write("[1, 2]")
    assert sys.stdout is before
    printed = capsys.readouterr()
    assert printed.out == "[1, 2]\n"
    assert printed.err == "table\n"
    assert not list(tmp_path.iterdir())


def test_numbers_of_work_that_fails_later_are_printed_too(capsys):
    def work(write):
        write("[1]")
        raise InputError("one place was not scored")

    with pytest.raises(InputError, match="one place"), json_output(Path("-")) as write:
        work(write)
    assert capsys.readouterr().out == "[1]\n"


def test_work_that_fails_at_once_prints_nothing(capsys):
    with pytest.raises(InputError), json_output(Path("-")):
        raise InputError("no such run")
    assert capsys.readouterr().out == ""


def test_a_folder_is_refused_before_the_work(tmp_path):
    with pytest.raises(InputError, match="a folder; give --json a file"), json_output(tmp_path):
        pytest.fail("the work was begun")
