import json
import os
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parents[2]


def test_a_run_that_is_killed_again_and_again_ends_as_one_that_never_was(tmp_path):
    command = [sys.executable, "-m", "helpers.kill_run", str(tmp_path), "40", "75", "0"]
    environment = {
        **os.environ,
        "PYTHONPATH": f"{TESTS.parent / 'src'}:{TESTS}",
        "OMP_NUM_THREADS": "1",
    }
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=170, check=False)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["differing"] == []
    assert sum(report["kills"].values()) >= 20
    assert all(report["kills"].values()), report["kills"]
