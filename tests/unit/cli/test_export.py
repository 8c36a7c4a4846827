"""`asrnorm export`: a file, its error on the screen, and one line for what goes wrong."""

import json
import shutil

import pytest

from asrnorm.cli.export import SUFFIXES
from asrnorm.cli.main import main
from asrnorm.core.config import Choice
from asrnorm.exporting import FORMATS
from asrnorm.exporting import export as verify
from asrnorm.training import run
from helpers import tiny_run


@pytest.fixture
def folder(tmp_path, monkeypatch):
    for registry, name, entry in tiny_run.entries():
        monkeypatch.setitem(registry._entries, name, entry)
    run(tiny_run.tiny_config(norm=Choice(name="asr"), steps=2, lambda_every=0), tmp_path / "run")
    return tmp_path / "run"


def test_the_formats_of_the_command_are_those_of_the_registry():
    assert {name: FORMATS[name].suffix for name in FORMATS} == SUFFIXES


def test_the_file_lies_in_the_run_and_its_error_is_printed(folder, capsys):
    assert main(["export", str(folder), "--format", "torch-export"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].startswith(f"{folder / 'export' / 'model.pt2'}: ")
    assert printed[1].startswith("relative error ")
    assert printed[2] == f"{folder / 'export' / 'model.pt2.json'}"
    assert (folder / "export" / "model.pt2").is_file()
    assert main(["export", str(folder), "--format", "torch-export", "--json", "-"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["files"] == [str(folder / "export" / name) for name in ("model.pt2", "model.pt2.json")]
    assert 0 <= told["relative_error"] <= told["tolerance"]


def test_size_batch_and_place_are_taken_from_the_line(folder, tmp_path, capsys):
    out = tmp_path / "there" / "small.pt2"
    words = ["export", str(folder), "--format", "torch-export", "--size", "8x8", "--batch", "3", "--out", str(out)]
    assert main(words) == 0
    assert "batches of 3" in capsys.readouterr().out
    assert out.is_file()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--format", "torch_export"), "did you mean 'torch-export'?"),
        (("--format", "onnx", "--size", "224"), "must be height and width, such as 224x224"),
        (("--format", "onnx", "--batch", "any"), "must be a number, or dynamic"),
        (("--format", "torch-export", "--out", "model.bin"), "ends in .pt2"),
        ((), "Missing option '--format'"),
    ],
)
def test_a_wrong_call_is_one_line_and_status_2(words, message, folder, capsys):
    assert main(["export", str(folder), *words]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line


def test_a_run_that_is_not_done_is_one_line_and_status_1(folder, tmp_path, capsys):
    shutil.copytree(folder, tmp_path / "half")
    (tmp_path / "half" / "model.safetensors").unlink()
    assert main(["export", str(tmp_path / "half"), "--format", "onnx"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "the run is not done" in line


@pytest.mark.parametrize(("tolerance", "warned"), [(1e-4, False), (0.19, True)])
def test_a_model_that_rounding_moves_far_is_warned_of(folder, capsys, monkeypatch, tolerance, warned):
    monkeypatch.setattr(verify, "TOLERANCE", tolerance)
    assert main(["export", str(folder), "--format", "torch-export"]) == 0
    assert ("larger images may help" in capsys.readouterr().err) is warned
