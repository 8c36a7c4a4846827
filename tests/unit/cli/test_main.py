"""The command line as a user meets it: output, error lines, exit status."""

import json
import subprocess
import sys

import pytest

from asrnorm import __version__
from asrnorm.cli import listing
from asrnorm.cli.main import app, main
from asrnorm.core.errors import InputError
from asrnorm.norms import NORMS


@pytest.fixture
def run(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")

    def call(*words):
        status = main(words)
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return call


def test_list_norms(run):
    status, out, _ = run("list", "norms")
    assert status == 0
    for name in NORMS.names():
        assert f"\n{name} " in out
    assert "stan_ratio=2" in out


def test_list_as_json_has_every_name_with_summary_and_options(run):
    for kind in listing.REGISTRIES:
        status, out, _ = run("list", kind, "--json")
        rows = json.loads(out)
        assert status == 0
        assert all(row["summary"] for row in rows)
    norms = {row["name"]: row for row in json.loads(run("list", "norms", "--json")[1])}
    assert set(norms) == set(NORMS.names())
    assert norms["asr"]["options"]["stan_ratio"] == 2
    assert "device" not in norms["asr"]["options"]


def test_doctor(run):
    status, out, _ = run("doctor")
    assert status == 0
    assert "pip install 'asrnorm[ray]'" in out or "ray" in out
    names = [row["name"] for row in json.loads(run("doctor", "--json")[1])]
    assert names[:2] == ["python", "torch"]


def test_doctor_fails_where_something_everything_needs_is_broken(run, monkeypatch):
    from asrnorm.cli import doctor
    from asrnorm.cli.doctor import Check

    broken = [Check("torch", "broken", "fails to import", "pip install torch", True)]
    monkeypatch.setattr(doctor, "examine", lambda: broken)
    assert run("doctor")[0] == 1


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("lst",), "asrnorm: No such command 'lst'"),
        (("list",), "asrnorm: Missing argument"),
        (("list", "nroms"), "asrnorm: unknown registry 'nroms'; did you mean 'norms'? Known: "),
        (("list", "norms", "--jsn"), "asrnorm: No such option: --jsn"),
        (("train", "digits_mini.erm_bn", "--set", "steps=abc"), "asrnorm: --set: steps must be int, not 'abc'"),
        (("train", "--config", "nowhere.yaml"), "asrnorm: nowhere.yaml: no such config file"),
        (
            ("data", "corrupt", "cifar10c", "--corruption", "fogg"),
            "asrnorm: unknown corruption 'fogg'; did you mean 'fog'",
        ),
    ],
    ids=" ".join,
)
def test_a_wrong_call_is_answered_in_one_line_with_status_2(run, words, line):
    status, out, err = run(*words)
    assert status == 2
    assert err.startswith(line)
    assert err.count("\n") == 1
    assert not out


def test_work_that_fails_is_one_line_with_status_1_and_a_traceback_only_on_demand(run, monkeypatch):
    def fail():
        raise InputError("weights.pth: damaged\nor so")

    command = next(c for c in app.registered_commands if c.name == "doctor")
    monkeypatch.setattr(command, "callback", fail)
    status, _, err = run("doctor")
    assert (status, err) == (1, "asrnorm: weights.pth: damaged or so\n")
    _, _, err = run("doctor", "--debug")
    assert "Traceback" in err
    assert err.endswith("asrnorm: weights.pth: damaged or so\n")


@pytest.mark.parametrize(
    ("words", "command"),
    [
        (("lst",), "asrnorm"),
        (("list",), "asrnorm list"),
        (("export", "run", "--jsn"), "asrnorm export"),
        (("data", "corrupt", "cifar10c", "--jsn"), "asrnorm data corrupt"),
    ],
    ids=" ".join,
)
def test_the_hint_names_the_command_that_was_called(run, words, command):
    assert run(*words)[2].endswith(f"; see {command} --help\n")


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (
            ZeroDivisionError("division by zero"),
            "asrnorm: ZeroDivisionError (division by zero): a bug in asrnorm, or in a file of your own",
        ),
        (MemoryError(), "asrnorm: MemoryError: the memory of this machine or of its GPU did not suffice"),
        (
            RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"),
            "asrnorm: RuntimeError: the memory of this machine or of its GPU did not suffice",
        ),
    ],
)
def test_an_error_that_nobody_foresaw_is_a_line_too_and_shows_its_traceback_on_demand(run, monkeypatch, error, line):
    def fail():
        raise error

    command = next(c for c in app.registered_commands if c.name == "doctor")
    monkeypatch.setattr(command, "callback", fail)
    status, _, err = run("doctor")
    assert status == 1
    (said,) = err.splitlines()
    assert said.startswith(line)
    status, _, err = run("doctor", "--debug")
    assert status == 1
    assert err.startswith("Traceback")
    assert err.splitlines()[-1].startswith(line)


def test_a_folder_that_is_gone_is_told(run, monkeypatch):
    def gone():
        raise FileNotFoundError(2, "No such file or directory")

    monkeypatch.setattr("os.getcwd", gone)
    assert run("doctor")[0::2] == (1, "asrnorm: the current folder has been removed; change to another\n")


def test_a_home_of_nobody_is_told(run, monkeypatch):
    monkeypatch.setenv("ASRNORM_DATA", "~nobody-of-that-name/x")
    status, _, err = run("doctor")
    assert (status, err) == (
        1,
        "asrnorm: a path begins with ~ and a name that no user here has, or HOME is not set: write the path out\n",
    )


def test_the_home_is_meant_behind_an_equals_sign_too(run, monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    status, _, said = run("train", "--config=~/none.yaml")
    assert status != 0
    assert str(tmp_path / "none.yaml") in said


def test_a_process_that_lost_another_points_to_it(run, monkeypatch):
    def fail():
        raise RuntimeError("[gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:1234")

    command = next(c for c in app.registered_commands if c.name == "doctor")
    monkeypatch.setattr(command, "callback", fail)
    assert "a bug in asrnorm" in run("doctor")[2]
    monkeypatch.setenv("RANK", "1")
    assert run("doctor")[2] == (
        "asrnorm: another process of this run ended before this one; what it said is the reason\n"
    )


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("device=meta", "device 'meta' cannot be used: it must be one of auto, cpu, cuda, mps"),
        ("model.channels=3", "option 'channels' of model 'digits_convnet' must be [int, int], not 3"),
        ("model.channels=[4,x]", "option 'channels' of model 'digits_convnet' must be [int, int], not [4, 'x']"),
    ],
)
def test_a_wrong_setting_is_one_line(run, monkeypatch, tmp_path, setting, said):
    monkeypatch.chdir(tmp_path)
    status, _, err = run("train", "digits_mini.erm_asr", "--scale", "smoke", "--set", setting)
    assert status != 0
    assert err.startswith("asrnorm: ")
    assert err.endswith(f"{said}\n")
    assert err.count("\n") == 1


def test_an_interrupt_is_not_a_traceback(run, monkeypatch):
    def interrupt():
        raise KeyboardInterrupt

    command = next(c for c in app.registered_commands if c.name == "doctor")
    monkeypatch.setattr(command, "callback", interrupt)
    status, _, err = run("doctor")
    assert status == 1
    assert err.strip().endswith("asrnorm: interrupted")


def test_version_and_help(run):
    assert run("--version")[1] == f"asrnorm {__version__}\n"
    status, out, _ = run("--help")
    assert status == 0
    assert "doctor" in out
    assert "Example" in run("list", "--help")[1]
    assert run()[0] in (0, 2)


def test_a_default_in_words_stands_in_one_pair_of_parentheses(run):
    helps = {command.name: run(command.name, "--help")[1] for command in app.registered_commands}
    assert "[default: (all)]" in helps["list"]
    assert not [name for name, text in helps.items() if "((" in text]


def test_python_dash_m_runs_it_and_starts_without_torch():
    script = "import sys; from asrnorm.cli.main import main; main(['--version']); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
    done = subprocess.run([sys.executable, "-m", "asrnorm", "list", "zzz"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1


def test_an_interrupt_while_it_is_loaded_is_not_a_traceback():
    script = (
        "import sys; from asrnorm.__main__ import run\n"
        "class Stop:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'typer': raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Stop()); sys.exit(run())"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "asrnorm: interrupted\n")
