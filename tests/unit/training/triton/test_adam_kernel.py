import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[3]


def test_the_kernel_is_adam_to_rounding():
    pytest.importorskip("triton")
    paths = os.pathsep.join([str(TESTS.parent / "src"), str(TESTS)])
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(TESTS / "helpers" / "interpreted_adam.py")]
    child = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=600)
    assert child.returncode == 0, child.stderr[-2000:]
    squares, means, parameters = map(float, child.stdout.split())
    assert squares < 3e-6
    assert means < 1e-6
    assert parameters < 2e-5
