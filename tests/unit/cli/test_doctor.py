import importlib
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from asrnorm.cli import doctor
from asrnorm.cli.doctor import Check
from asrnorm.cli.main import app
from asrnorm.core import settings

ROOT = Path(__file__).parents[3]


def by_name():
    return {check.name: check for check in doctor.examine()}


def test_a_sound_machine():
    checks = by_name()
    assert checks["python"].state == checks["torch"].state == "ok"
    libraries = {name for name, *_ in doctor.OPTIONAL}
    assert {"gpu", "triton", "data", *libraries} <= set(checks)
    assert all(check.state in ("ok", "missing", "broken") for check in checks.values())
    assert all(check.remedy for check in checks.values() if check.state != "ok")


def refuse(monkeypatch, name, error):
    real = importlib.import_module

    def importer(module, *args):
        if module == name:
            raise error
        return real(module, *args)

    monkeypatch.setattr(doctor, "import_module", importer)


@pytest.mark.parametrize(("library", "extra"), [("ray", "ray"), ("submitit", "slurm")])
def test_a_missing_library_comes_with_the_command_that_installs_it(monkeypatch, library, extra):
    refuse(monkeypatch, library, ModuleNotFoundError(f"No module named {library!r}", name=library))
    monkeypatch.setattr(doctor, "_version", lambda name: None)
    check = by_name()[library]
    assert check.state == "missing"
    assert check.remedy == f"pip install 'asrnorm[{extra}]'"


def test_every_extra_of_a_user_is_looked_at():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert {extra for *_, extra in doctor.OPTIONAL} == set(project["optional-dependencies"]) - {"dev", "docs"}


def test_a_library_that_is_installed_and_fails_to_import_is_broken(monkeypatch):
    refuse(monkeypatch, "onnxruntime", OSError("libcudart.so.13: cannot open\nmore"))
    monkeypatch.setattr(doctor, "_version", lambda name: "1.0")
    check = by_name()["onnxruntime"]
    assert check.state == "broken"
    assert "libcudart.so.13: cannot open" in check.detail
    assert "\n" not in check.detail


def test_without_torch_the_doctor_still_answers(monkeypatch):
    refuse(monkeypatch, "torch", ModuleNotFoundError("No module named 'torch'", name="torch"))
    check = by_name()["torch"]
    assert check.required
    assert check.state != "ok"
    assert "pip install 'torch>=2.11'" in check.remedy
    assert "gpu" not in by_name()


def test_an_old_python_is_said(monkeypatch):
    monkeypatch.setattr(sys, "version_info", (3, 10, 0))
    assert by_name()["python"].state == "broken"


def test_data_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("ASRNORM_DATA", str(tmp_path / "absent"))
    assert by_name()["data"].state == "missing"
    (tmp_path / "MNIST").mkdir()
    monkeypatch.setenv("ASRNORM_DATA", str(tmp_path))
    assert by_name()["data"].detail == f"{tmp_path}: MNIST"
    monkeypatch.delenv("ASRNORM_DATA")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert settings.data_folder() == tmp_path / ".cache" / "asrnorm" / "data"


def test_a_gpu_is_named(monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda index: "Testing 3000")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (9, 0))
    assert "Testing 3000" in by_name()["gpu"].detail


@pytest.fixture
def machine_with_gpu(monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(doctor, "_try_import", lambda name: (type("Triton", (), {"__version__": "3"}), ""))
    return torch


@pytest.mark.parametrize(
    ("capability", "state", "said"),
    [
        ((6, 1), "missing", "not used: this GPU has compute capability 6.1, the kernels need 8.0"),
        ((7, 5), "missing", "augmentations alone: this GPU has compute capability 7.5, the kernels need 8.0"),
        ((9, 0), "ok", "run in kernels"),
    ],
)
def test_the_doctor_says_which_layers_run(machine_with_gpu, monkeypatch, capability, state, said):
    monkeypatch.setattr(machine_with_gpu.cuda, "get_device_capability", lambda: capability)
    check = doctor._examine_triton(machine_with_gpu)
    assert check.state == state
    assert said in check.detail


def test_the_doctor_says_that_the_reference_was_asked_for(machine_with_gpu, monkeypatch):
    monkeypatch.setenv("ASRNORM_BACKEND", "reference")
    assert "ASRNORM_BACKEND=reference" in doctor._examine_triton(machine_with_gpu).detail


@pytest.mark.parametrize(
    ("value", "state"), [("auto", "ok"), ("reference", "ok"), ("triton", "ok"), ("cuda", "broken")]
)
def test_a_backend_that_does_not_exist_is_said(monkeypatch, value, state):
    monkeypatch.setenv("ASRNORM_BACKEND", value)
    check = by_name()["ASRNORM_BACKEND"]
    assert check.state == state
    assert check.required == (state == "broken")
    if state == "broken":
        assert check.remedy == "unset ASRNORM_BACKEND, or set it to auto, reference or triton"


def test_nothing_is_said_of_a_backend_that_nobody_chose(monkeypatch):
    monkeypatch.delenv("ASRNORM_BACKEND", raising=False)
    assert "ASRNORM_BACKEND" not in by_name()


def test_the_doctor_answers_where_the_layers_refuse_the_backend():
    environment = {**os.environ, "ASRNORM_BACKEND": "cuda"}
    command = [sys.executable, "-m", "asrnorm", "doctor"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "ASRNORM_BACKEND" in done.stdout
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("required", "word", "fine"),
    [(False, "optional", True), (True, "missing", False)],
)
def test_what_nothing_needs_is_optional(monkeypatch, required, word, fine):
    ray = Check("ray", "missing", "no runs on a Ray cluster", "pip install 'asrnorm[ray]'", required=required)
    monkeypatch.setattr(doctor, "examine", lambda: [ray])
    done = CliRunner().invoke(app, ["doctor"])
    assert done.exit_code == (0 if fine else 1)
    assert word in done.stdout.splitlines()[1]
    assert ("Everything that all commands need is installed" in done.stdout) is fine
    assert done.stdout.splitlines()[-1] == "In a checkout, install .[...] instead of asrnorm[...]."
