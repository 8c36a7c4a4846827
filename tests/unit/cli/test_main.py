"""The command line as a user meets it: output, error lines, exit status, repeated options, SIGTERM."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time

import pytest
import torch
import yaml

from asrnorm import __version__
from asrnorm.cli import listing
from asrnorm.cli.main import app, main, sigterm_as_interrupt
from asrnorm.core.errors import InputError
from asrnorm.core.files import replacing
from asrnorm.norms import NORMS


@pytest.fixture
def run(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")

    def call(*words):
        status = main(words)
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return call


def replace_doctor(monkeypatch, function):
    """Let `asrnorm doctor` call another function."""
    command = next(command for command in app.registered_commands if command.name == "doctor")
    monkeypatch.setattr(command, "callback", function)


def test_list_norms(run):
    status, out, _ = run("list", "norms")
    assert status == 0
    for name in NORMS.names():
        assert f"\n{name} " in out
    assert "stan_ratio=2" in out


def test_list_as_json_has_every_name_with_summary_and_options(run):
    for kind in listing.REGISTRIES:
        status, out, _ = run("list", kind, "--json", "-")
        rows = json.loads(out)
        assert status == 0
        assert all(row["summary"] for row in rows)
    norms = {row["name"]: row for row in json.loads(run("list", "norms", "--json", "-")[1])}
    assert set(norms) == set(NORMS.names())
    assert norms["asr"]["options"]["stan_ratio"] == 2
    assert "device" not in norms["asr"]["options"]


def test_doctor(run):
    status, out, _ = run("doctor")
    assert status == 0
    assert "pip install 'asrnorm[ray]'" in out or "ray" in out
    names = [row["name"] for row in json.loads(run("doctor", "--json", "-")[1])]
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
        (("predict",), "asrnorm: Missing argument"),
        (("list", "norms", "--json"), "asrnorm: --json takes the path of a file, or - to print"),
        (("list", "nroms"), "asrnorm: unknown kind of names 'nroms'; did you mean 'norms'? Known: "),
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

    replace_doctor(monkeypatch, fail)
    status, _, err = run("doctor")
    assert (status, err) == (1, "asrnorm: weights.pth: damaged or so\n")
    _, _, err = run("doctor", "--debug")
    assert "Traceback" in err
    assert err.endswith("asrnorm: weights.pth: damaged or so\n")


@pytest.mark.parametrize(
    ("words", "command"),
    [
        (("lst",), "asrnorm"),
        (("predict",), "asrnorm predict"),
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
        (MemoryError(), "asrnorm: MemoryError: this machine or its GPU has not enough memory"),
        (
            RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"),
            "asrnorm: RuntimeError: this machine or its GPU has not enough memory",
        ),
    ],
)
def test_an_error_that_nobody_foresaw_is_a_line_too_and_shows_its_traceback_on_demand(run, monkeypatch, error, line):
    def fail():
        raise error

    replace_doctor(monkeypatch, fail)
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
        "asrnorm: a path begins with ~ and the name of no user, or HOME is not set: write out the path\n",
    )


def test_the_home_is_meant_behind_an_equals_sign_too(run, monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    status, _, said = run("train", "--config=~/none.yaml")
    assert status != 0
    assert str(tmp_path / "none.yaml") in said


def test_a_process_that_lost_another_points_to_it(run, monkeypatch):
    def fail():
        raise RuntimeError("[gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:1234")

    replace_doctor(monkeypatch, fail)
    assert "a bug in asrnorm" in run("doctor")[2]
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert run("doctor")[2] == (
        "asrnorm: another process of this run ended before this one; its message is the reason\n"
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

    replace_doctor(monkeypatch, interrupt)
    status, _, err = run("doctor")
    assert status == 1
    assert err.strip().endswith("asrnorm: interrupted")


def test_version_and_help(run):
    assert run("--version")[1] == f"asrnorm {__version__}\n"
    status, out, _ = run("--help")
    assert status == 0
    assert "doctor" in out
    assert "Example" in run("list", "--help")[1]
    assert "<bool>" not in "".join(run()[1:])  # alone, it shows the same help
    assert run()[0] in (0, 2)


def every_command():
    groups = {(): app, **{(group.name,): group.typer_instance for group in app.registered_groups}}
    return [
        (*words, command.name or command.callback.__name__)
        for words, group in groups.items()
        for command in group.registered_commands
    ]


@pytest.mark.parametrize("words", every_command(), ids=" ".join)
def test_every_help_has_an_example_and_json_and_names_no_types_of_python(run, words):
    status, out, _ = run(*words, "-h")
    assert status == 0
    assert "Example" in out
    assert re.search(r"--json +PATH", out)
    assert not re.search(r"<(bool|str|int|float|path|list)\b|x>=", out)


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("asrnorm train digits_mini.erm_b", {f"digits_mini.erm_{norm}" for norm in ("bin", "bn", "bn_test")}),
        ("asrnorm report table1", {"table1", "table10"}),
        ("asrnorm reproduce fig-l", {"fig-lambda-cifar", "fig-lambda-pacs", "fig-levels"}),
        ("asrnorm train digits.erm_bn --set norm=as", {"norm=as", "norm=asr"}),
        ("asrnorm list no", {"norms"}),
    ],
)
def test_tab_completes_names_without_torch(typed, offered):
    code = "import sys; sys.modules['torch'] = None; from asrnorm.__main__ import run; run()"
    variables = {"_ASRNORM_COMPLETE": "complete_bash", "COMP_WORDS": typed, "COMP_CWORD": str(typed.count(" "))}
    done = subprocess.run([sys.executable, "-c", code], env=os.environ | variables, capture_output=True, text=True)
    assert set(done.stdout.split()) == offered, done.stderr


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


@pytest.mark.parametrize(
    ("words", "option"),
    [
        (["train", "digits_mini.erm_bn", "--seed", "1", "--seed", "2"], "--seed"),
        (["train", "digits_mini.erm_bn", "--scale=smoke", "--dry-run", "--scale", "short"], "--scale"),
        (["evaluate", "run", "--data", "a", "--data=b"], "--data"),
        (["audit", "net.onnx", "--data", "a", "--mean", "1", "1", "1", "--data", "b"], "--data"),
        (["data", "corrupt", "photos", "--out", "a", "--out", "b"], "--out"),
        (["bench", "layers", "--json", "a", "--json", "b"], "--json"),
    ],
)
def test_the_last_value_is_not_taken_in_silence(words, option, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(words) == 2
    assert capsys.readouterr().err == f"asrnorm: {option} is given more than once, and takes one value\n"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "words",
    [
        ["train", "digits_mini.erm_bn", "--dry-run", "--set", "steps=3", "--set", "steps=4"],
        ["train", "digits_mini.erm_bn", "--dry-run", "--dry-run"],  # says the same
        [
            "train",
            "folder.erm_bn",
            "--dry-run",
            *["--source", "day", "--source", "dusk", "--target", "a", "--target", "b"],
        ],
        ["train", "digits_mini.erm_bn", "--dry-run", "--out", "--seed", "--seed", "1"],  # a folder called --seed
    ],
)
def test_what_may_be_given_again_is_taken(words, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(words) == 0
    assert "more than once" not in capsys.readouterr().err


def test_several_sources_are_all_trained_on(capsys):
    assert main(["train", "folder.erm_bn", "--dry-run", "--source", "day", "--source", "dusk"]) == 0
    assert "source: day,dusk" in capsys.readouterr().out


def test_several_with_commas_of_their_own_stay_apart(capsys):
    words = ["--source", "Bern, day", "--source", "dusk", "--target", "Bern, night"]
    assert main(["train", "folder.erm_bn", "--dry-run", *words]) == 0
    suite = yaml.safe_load(capsys.readouterr().out)["suite"]["args"]
    assert (suite["source"], suite["target"]) == (["Bern, day", "dusk"], "Bern, night")


def test_help_is_shown_whatever_else_is_given(capsys):
    assert main(["train", "x", "--seed", "1", "--seed", "2", "--help"]) == 0
    assert "Example" in capsys.readouterr().out


@pytest.mark.parametrize("words", [[], ["nothing"], ["--seed"], ["train", "--", "--seed", "--seed"]])
def test_calls_that_name_no_command_are_no_repetition(words, capsys):
    assert main(words) == 2
    assert "more than once" not in capsys.readouterr().err


def wait_for_the_end():
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(10)


def test_a_terminated_command_says_one_line_and_leaves_no_temporary_file(tmp_path, monkeypatch, capsys):
    def command():
        with replacing(tmp_path / "table.csv") as temporary:
            temporary.write_text("half of it")
            wait_for_the_end()

    replace_doctor(monkeypatch, command)
    assert main(["doctor"]) == 1
    assert capsys.readouterr().err == "asrnorm: interrupted\n"
    assert list(tmp_path.iterdir()) == []
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_the_gpu_finishes_what_it_was_given_and_one_that_failed_is_not_waited_for(monkeypatch):
    waited = []

    def synchronize():
        waited.append(True)
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "synchronize", synchronize)
    with pytest.raises(KeyboardInterrupt), sigterm_as_interrupt():
        wait_for_the_end()
    assert waited == [True]


def test_handlers_of_the_caller_and_other_threads_are_left_alone():
    mine = lambda number, frame: None  # noqa: E731
    before = signal.signal(signal.SIGTERM, mine)
    try:
        with sigterm_as_interrupt():
            assert signal.getsignal(signal.SIGTERM) is mine
    finally:
        signal.signal(signal.SIGTERM, before)
    errors = []

    def elsewhere():
        try:
            with sigterm_as_interrupt():
                pass
        except ValueError as error:  # Python lets the main thread alone set handlers
            errors.append(error)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert errors == []


def test_a_real_process_ends_with_status_1(tmp_path):
    (tmp_path / "slow.py").write_text("import time\nprint('there', flush=True)\ntime.sleep(60)\n")
    words = [sys.executable, "-m", "asrnorm", "list", "norms", "--import", "slow"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    with subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "there\n"
        process.terminate()
        _, said = process.communicate(timeout=30)
    assert (process.returncode, said) == (1, "asrnorm: interrupted\n")
