"""The examples run as they stand, each in a process of its own, and print what they promise; so does the notebook."""

import ast
import json
import os
import shlex
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import asrnorm
from asrnorm.core.config import from_mapping, load_config, to_mapping
from asrnorm.training.assembly import check_config

ROOT = Path(__file__).parents[1]
SCRIPTS = sorted((ROOT / "examples").glob("*.py"))
# What a line of the output holds.
EXPECTED = {
    "convert_a_network": "the norms are BatchNorm again",
    "corrupt_images": "wrote",
    "own_folder": "asrnorm train folder.best --data ",
    "own_model_own_loop": "accuracy 100%",
    "with_accelerate": "inverted: accuracy",
    "with_lightning": "accuracy: mnist",
    "with_timm": "norm layers converted to 'asr' by preset 'early'",
    "with_transformers": "accuracy: mnist",
}
# Libraries that a script is about; they have warnings and lines on standard error of their own.
NEEDS = {
    "with_accelerate": ("accelerate", "mlxtend"),
    "with_lightning": ("lightning", "mlxtend"),
    "with_timm": ("timm", "torchvision", "mlxtend"),
    "with_transformers": ("transformers", "accelerate", "mlxtend"),
}


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.yaml")), ids=lambda path: path.stem)
def test_a_config_can_be_started(path):
    config = load_config(path)
    check_config(config)
    assert from_mapping(to_mapping(config)) == config


def test_every_example_is_expected():
    assert {path.stem for path in SCRIPTS} == set(EXPECTED)


def run_example(path, tmp_path):
    text, needed = EXPECTED[path.stem], NEEDS.get(path.stem, ())
    for library in needed:
        if find_spec(library) is None:
            pytest.skip(f"{library} is not installed")
    warnings = "default" if needed else "error"
    environment = {**os.environ, "ASRNORM_CACHE": str(tmp_path / "cache"), "PYTHONWARNINGS": warnings}
    done = subprocess.run(
        [sys.executable, str(path), str(tmp_path / "out")], capture_output=True, text=True, env=environment, timeout=240
    )
    assert done.returncode == 0, done.stderr
    assert text in done.stdout
    assert needed or not done.stderr
    return done


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_it_runs_in_seconds_and_says_what_it_did(path, tmp_path):
    run_example(path, tmp_path)


@pytest.mark.gpu
@pytest.mark.parametrize("path", [path for path in SCRIPTS if path.stem in NEEDS], ids=lambda path: path.stem)
def test_a_framework_runs_on_a_gpu(path, tmp_path):
    assert run_example(path, tmp_path).stderr.count("compiling GPU kernels") == 1


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_it_is_short_and_uses_public_names_only(path):
    text = path.read_text()
    assert len(text.splitlines()) <= 60
    tree = ast.parse(text)
    used = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "asrnorm"
    }
    assert used <= set(asrnorm.__all__)
    imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name for name in imported if name and name.startswith("asrnorm")} <= {
        "asrnorm.methods",
        "asrnorm.evaluation",
    }


def test_the_notebook_runs_from_top_to_bottom(tmp_path):
    notebook = json.loads((ROOT / "examples" / "tour.ipynb").read_text())
    cells = notebook["cells"]
    assert len(cells) == 10
    assert not any(cell.get("outputs") for cell in cells)  # what a run prints is not kept
    code = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    environment = {**os.environ, "ASRNORM_CACHE": str(tmp_path / "cache"), "PYTHONWARNINGS": "error"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, cwd=tmp_path, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert "2 of 2 norm layers converted to 'asr'" in done.stdout
    assert "inverted  accuracy" in done.stdout


def test_the_command_that_an_example_prints_trains(tmp_path, monkeypatch, capsys):
    from asrnorm.cli.main import main

    monkeypatch.setenv("ASRNORM_CACHE", str(tmp_path / "cache"))
    command = [sys.executable, str(ROOT / "examples" / "own_folder.py"), str(tmp_path / "images")]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[-1]
    program, *words = shlex.split(printed)
    assert program == "asrnorm"
    monkeypatch.chdir(tmp_path)
    assert main(words) == 0, capsys.readouterr().err
    assert len(list(tmp_path.glob("runs/*/result.json"))) == 1
