"""The lock keeps others out, and is dropped with the process that holds it."""

import errno
import subprocess
import sys
import threading

import pytest

from asrnorm.data import lock
from asrnorm.data.lock import hold_lock


def test_only_one_is_inside(tmp_path):
    path = tmp_path / "x.lock"
    entered = threading.Event()

    def second():
        with hold_lock(path):
            entered.set()

    thread = threading.Thread(target=second)
    with hold_lock(path):
        thread.start()
        assert not entered.wait(0.2)
    thread.join(10)
    assert entered.is_set()


def test_a_process_that_dies_inside_drops_it(tmp_path):
    program = (
        "import os, sys; from pathlib import Path; from asrnorm.data.lock import hold_lock\n"
        "with hold_lock(Path(sys.argv[1])): os._exit(9)"
    )
    path = tmp_path / "x.lock"
    assert subprocess.run([sys.executable, "-c", program, str(path)], check=False).returncode == 9
    with hold_lock(path):
        pass


def test_a_file_system_without_locks_is_no_obstacle(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOLCK, "no locks")

    monkeypatch.setattr(lock.fcntl, "flock", refuse)
    with hold_lock(tmp_path / "x.lock"):
        pass


def test_other_failures_are_passed_on(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.EIO, "broken disk")

    monkeypatch.setattr(lock.fcntl, "flock", refuse)
    with pytest.raises(OSError, match="broken disk"), hold_lock(tmp_path / "x.lock"):
        pass
