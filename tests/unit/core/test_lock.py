"""The lock keeps others out, and is dropped with the process that holds it."""

import errno
import fcntl
import subprocess
import sys
import threading

import pytest

from asrnorm.core.files import hold_lock, take_lock


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
        "import os, sys; from pathlib import Path; from asrnorm.core.files import hold_lock\n"
        "with hold_lock(Path(sys.argv[1])): os._exit(9)"
    )
    path = tmp_path / "x.lock"
    assert subprocess.run([sys.executable, "-c", program, str(path)], check=False).returncode == 9
    with hold_lock(path):
        pass


def test_a_file_system_without_locks_is_no_obstacle(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOLCK, "no locks")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with hold_lock(tmp_path / "x.lock") as held:
        assert not held


@pytest.mark.parametrize("number", [errno.EAGAIN, errno.EACCES])
def test_a_lock_that_another_holds_is_busy_by_either_name(tmp_path, monkeypatch, number):
    def refuse(*_):
        raise OSError(number, "held")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with (tmp_path / "x.lock").open("ab") as file, pytest.raises(BlockingIOError, match="held"):
        take_lock(file)


def test_two_may_share_a_lock_and_a_third_may_not_have_it_alone(tmp_path):
    files = [(tmp_path / "x.lock").open("ab") for _ in range(3)]
    assert take_lock(files[0], shared=True)
    assert take_lock(files[1], shared=True)
    with pytest.raises(BlockingIOError):
        take_lock(files[2])
    for file in files:
        file.close()


def test_other_failures_are_passed_on(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.EIO, "broken disk")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(OSError, match="broken disk"), hold_lock(tmp_path / "x.lock"):
        pass
