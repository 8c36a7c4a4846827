"""What commands share: --import, --json, --set, run folders and missing data."""

import os
import re
import sys
from contextlib import suppress
from pathlib import Path

import pytest
import typer
from PIL import Image
from typer.testing import CliRunner

from asrnorm.cli.main import app, main
from asrnorm.cli.options import (
    check_data,
    find_kept,
    import_modules,
    json_lines,
    json_output,
    open_run,
    read_assignments,
)
from asrnorm.core import files
from asrnorm.core.config import dump_config
from asrnorm.core.errors import InputError, StorageError, UnknownNameError, WrongCallError
from asrnorm.norms import NORMS
from asrnorm.recipes import recipe
from helpers import tiny_run


def test_settings_are_names_and_text_and_the_last_of_a_name_counts():
    words = ["suite.root=/a=b", "norm=bn", "norm=bn_test"]
    assert read_assignments(words, ["suite", "norm"]) == {"suite.root": "/a=b", "norm": "bn_test"}


@pytest.mark.parametrize("word", ["norm", "=bn", ""])
def test_a_word_without_a_name_or_a_value_is_a_wrong_call(word):
    with pytest.raises(typer.BadParameter, match="not of the form name=value"):
        read_assignments([word], ["norm"])


def test_a_setting_that_the_command_cannot_change_is_answered_with_the_nearest():
    with pytest.raises(UnknownNameError, match="did you mean 'norm'"):
        read_assignments(["nrom.eps=1"], ["norm", "suite"])


def test_a_folder_without_a_finished_run_is_named_with_what_it_lacks(tmp_path):
    with pytest.raises(WrongCallError, match="asrnorm train"):
        open_run(tmp_path / "nowhere")
    with pytest.raises(WrongCallError, match=r"config\.yaml"):
        open_run(tmp_path)
    (tmp_path / "config.yaml").touch()
    with pytest.raises(WrongCallError, match="a file"):
        open_run(tmp_path / "config.yaml")
    with pytest.raises(InputError, match=r"model\.safetensors; asrnorm train"):
        open_run(tmp_path)
    (tmp_path / "divergence.json").touch()
    with pytest.raises(InputError, match=r"divergence\.json"):
        open_run(tmp_path)


def test_kept_results_are_those_of_the_working_directory_then_of_the_package_then_of_its_checkout(
    tmp_path, monkeypatch
):
    package = tmp_path / "checkout" / "src" / "asrnorm"
    monkeypatch.setattr("asrnorm.cli.options.__file__", str(package / "cli" / "options.py"))
    monkeypatch.chdir(tmp_path)
    assert find_kept() is None
    (tmp_path / "checkout" / "results").mkdir(parents=True)
    assert find_kept() == tmp_path / "checkout" / "results"
    (package / "studies" / "kept").mkdir(parents=True)
    assert find_kept() == package / "studies" / "kept"
    (tmp_path / "results").mkdir()
    assert find_kept().resolve() == tmp_path / "results"


def test_lines_are_printed_one_by_one_or_written_together_also_after_an_error(capsys, tmp_path):
    with json_lines(Path("-")) as write:
        typer.echo("table")
        write("1")
        assert capsys.readouterr().out == "1\n"
    with suppress(InputError), json_lines(tmp_path / "lines.jsonl") as write:
        write("1")
        write("2")
        raise InputError("the third")
    assert (tmp_path / "lines.jsonl").read_text() == "1\n2\n"


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

    monkeypatch.setattr(files.os, "fsync", fail)
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
        raise InputError("one domain was not scored")

    with pytest.raises(InputError, match="one domain"), json_output(Path("-")) as write:
        work(write)
    assert capsys.readouterr().out == "[1]\n"


def test_work_that_fails_at_once_prints_nothing(capsys):
    with pytest.raises(InputError), json_output(Path("-")):
        raise InputError("no such run")
    assert capsys.readouterr().out == ""


def test_a_file_that_cannot_be_written_is_refused_before_the_work(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    for file, error in ((tmp_path, InputError), (tmp_path / "file" / "scores.json", StorageError)):
        with pytest.raises(error, match=f"^{re.escape(str(file))}: "), json_output(file):
            pytest.fail("the work was begun")
    monkeypatch.setattr("asrnorm.cli.options.os.access", lambda folder, mode: not mode & os.W_OK)
    with pytest.raises(StorageError, match="give --json another file"), json_output(tmp_path / "scores.json"):
        pytest.fail("the work was begun")


def test_missing_weights_are_told_with_a_file_that_can_be_had(tmp_path, monkeypatch):
    monkeypatch.setenv("ASRNORM_DATA", str(tmp_path))
    weights = recipe("pacs.erm_asr").weights
    config = recipe("digits_mini.erm_bn", weights=weights)
    with pytest.raises(InputError, match=r"asrnorm data fetch resnet18, and --set weig"):
        check_data([config])
    (tmp_path / weights).parent.mkdir()
    (tmp_path / weights).touch()
    check_data([config])


NORM = """
from asrnorm.norms import NORMS
from asrnorm.norms.group import GroupNorm


@NORMS.register("own_norm_of_a_test")
class Own(GroupNorm):
    '''A norm that no registry of the package holds.'''
"""
TAKES_IT = ("train", "evaluate", "predict", "export", "audit", "report", "reproduce", "list")


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return tmp_path


@pytest.mark.parametrize("command", TAKES_IT)
def test_every_command_that_may_need_it_takes_it_before_it_works(command, here, capsys):
    words = {"predict": ["a.png"], "export": ["--format", "onnx"], "audit": ["--data", "."]}.get(command, [])
    name = {"train": "digits.erm_bn", "report": "table1", "reproduce": "table1", "list": "norms"}.get(command, "run")
    assert main([command, name, *words, "--import", "no_such_module_here"]) == 2
    assert "--import no_such_module_here: no such module" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["./my_norm.py", "my_norm.py", "folder/my_norm", ".my_norm", "", "my norm"])
def test_a_path_in_place_of_a_module_is_answered_with_how_to_name_it(name, here, capsys):
    (here / "my_norm.py").touch()
    assert main(["list", "norms", "--import", name]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"asrnorm: --import {name}: write it as in an import statement, my_norm for my_norm.py")
    assert "a bug" not in said


def test_modules_are_found_in_the_current_folder(here):
    (here / "own_module_of_a_test.py").write_text("LOADED = True\n")
    import_modules(["own_module_of_a_test"])
    assert sys.modules.pop("own_module_of_a_test").LOADED


def test_a_module_that_needs_another_is_told_from_one_that_is_not_there(here):
    (here / "needs_more.py").write_text("import not_installed_here\n")
    with pytest.raises(InputError, match="it needs not_installed_here"):
        import_modules(["needs_more"])
    with pytest.raises(UnknownNameError, match="no such module"):
        import_modules(["needs_more_still"])


def forget():
    sys.modules.pop("my_norm_of_a_test", None)
    NORMS._entries.pop("own_norm_of_a_test", None)


@pytest.fixture
def run(here, monkeypatch):
    """A run with a norm of the user's own, as a later process finds it."""
    for registry, name, entry in tiny_run.entries():
        monkeypatch.setitem(registry._entries, name, entry)
    (here / "my_norm_of_a_test.py").write_text(NORM)
    (here / "config.yaml").write_text(dump_config(tiny_run.tiny_config(steps=2)))
    words = ["train", "--config", "config.yaml", "--set", "norm=own_norm_of_a_test", "--out", "run"]
    assert main([*words, "--import", "my_norm_of_a_test"]) == 0
    forget()
    yield here / "run"
    forget()


@pytest.mark.parametrize(
    "words",
    [("evaluate", "run"), ("predict", "run", "a.png"), ("export", "run", "--format", "safetensors")],
    ids=lambda words: words[0],
)
def test_a_run_with_a_norm_of_ones_own_is_opened(words, run, capsys):
    Image.new("RGB", (8, 8)).save("a.png")
    assert main([*words]) == 2
    error = capsys.readouterr().err
    assert "'own_norm_of_a_test'" in error
    assert "needs --import MODULE" in error
    assert error.count("\n") == 1
    assert main([*words, "--import", "my_norm_of_a_test"]) == 0


def test_help_names_it():
    for command in TAKES_IT:
        shown = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "200"})
        assert "--import" in shown.output
