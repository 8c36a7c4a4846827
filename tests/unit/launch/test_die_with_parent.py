import os
import signal
import subprocess
import sys
import time

import pytest

from asrnorm.launch import die_with_parent as leash

PYTHON = [sys.executable, "-c"]


def test_the_command_is_run_and_its_status_returned():
    words = [sys.executable, leash.__file__, str(os.getpid()), *PYTHON, "raise SystemExit(7)"]
    assert subprocess.run(words).returncode == 7


def test_nothing_is_started_for_a_parent_that_is_gone(tmp_path):
    words = [sys.executable, leash.__file__, "1", *PYTHON, f"open({str(tmp_path / 'ran')!r}, 'w')"]
    assert subprocess.run(words).returncode == 1
    assert not (tmp_path / "ran").exists()


WATCH = "import sys; from asrnorm.launch.die_with_parent import watch; sys.exit(watch(int(sys.argv[1]), sys.argv[2:]))"


@pytest.mark.parametrize(
    ("parent", "code", "status"),
    [(None, "raise SystemExit(5)", 5), (1, "import time; time.sleep(60)", 128 + signal.SIGKILL)],
    ids=["the command's own status", "killed with its parent"],
)
def test_where_the_kernel_does_not_help_the_leash_watches(parent, code, status):
    words = [*PYTHON, WATCH, str(parent or os.getpid()), *PYTHON, code]
    assert subprocess.run(words, timeout=30).returncode == status


def test_the_watching_leash_passes_on_a_signal():
    code = "import signal, sys, time; signal.signal(15, lambda *_: sys.exit(9)); print(flush=True); time.sleep(60)"
    with subprocess.Popen([*PYTHON, WATCH, str(os.getpid()), *PYTHON, code], stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        time.sleep(0.1)
        process.terminate()
        assert process.wait(30) == 9
