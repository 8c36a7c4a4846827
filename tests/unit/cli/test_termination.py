"""SIGTERM ends a command as Ctrl-C does."""

import os
import signal
import subprocess
import sys
import threading
import time

import pytest
import torch

from asrnorm.cli import main as module
from asrnorm.cli.main import main, terminating_in_order
from asrnorm.core.files import replacing


def wait_for_the_end():
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(10)


def test_a_terminated_command_says_one_line_and_leaves_no_temporary_file(tmp_path, monkeypatch, capsys):
    def command(**_):
        with replacing(tmp_path / "table.csv") as temporary:
            temporary.write_text("half of it")
            wait_for_the_end()

    monkeypatch.setattr(module, "app", command)
    assert main(["report", "table3"]) == 1
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
    with pytest.raises(KeyboardInterrupt), terminating_in_order():
        wait_for_the_end()
    assert waited == [True]


def test_handlers_of_the_caller_and_other_threads_are_left_alone():
    mine = lambda number, frame: None  # noqa: E731
    before = signal.signal(signal.SIGTERM, mine)
    try:
        with terminating_in_order():
            assert signal.getsignal(signal.SIGTERM) is mine
    finally:
        signal.signal(signal.SIGTERM, before)
    errors = []

    def elsewhere():
        try:
            with terminating_in_order():
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
