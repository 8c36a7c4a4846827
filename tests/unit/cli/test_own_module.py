"""`--import MODULE`: a run with a norm of the user's own opens in every command that takes a run."""

import sys

import pytest
from PIL import Image
from typer.testing import CliRunner

from asrnorm.cli.main import app, main
from asrnorm.cli.options import import_modules
from asrnorm.core.config import dump_config
from asrnorm.core.errors import InputError, UnknownNameError
from asrnorm.norms import NORMS
from helpers import tiny_run

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
    assert said.startswith(
        f"asrnorm: --import {name}: a module is named as in an import statement, my_norm for my_norm.py"
    )
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
