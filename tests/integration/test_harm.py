"""Short forms of `make fuzz` and `make torture`, in processes of their own: they fork, set alarms and register toys."""

import json
import os
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]


def harm(module, *words):
    environment = {**os.environ, "PYTHONPATH": f"{TESTS.parent / 'src'}:{TESTS}", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", f"helpers.{module}", *words]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


def test_damaged_files_and_hostile_calls_end_in_a_result_or_one_line():
    found = harm("fuzz", "300", "120", "0")
    assert found["failures"] == {}
    assert min(found["kinds"].values()) > 0


def test_commands_that_are_killed_end_as_if_nothing_had_happened():
    found = harm(
        "torture", "2", "60", "0", *(f"--command={name}" for name in ("evaluate", "report --keep", "data corrupt"))
    )
    assert found["differing"] == []
    assert min(found["commands"].values()) > 0
