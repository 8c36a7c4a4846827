"""Run kernels on the CPU in processes of their own, because Triton decides at import whether it interprets."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]


def interpret(name):
    """Run a module of the helpers in Triton's interpreter and return its output: how many cases it checked."""
    pytest.importorskip("triton")
    paths = os.pathsep.join([str(TESTS.parent / "src"), str(TESTS), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(TESTS / "helpers" / f"{name}.py")]
    child = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=900)
    assert child.returncode == 0, child.stderr[-3000:]
    return child.stdout
