import os
import signal
import subprocess
import sys
import time

import pytest

from asrnorm.launch import mps as service
from asrnorm.launch import mps_daemon as keeper


@pytest.fixture
def start(fake, tmp_path):
    """Starts a keeper of a daemon in `kept`; what is left of it at the end is killed."""
    begun = []

    def begin(probe=""):
        fake.set_probe(probe)
        pipe = tmp_path / "kept" / "pipe"
        pipe.mkdir(parents=True)
        control = str(tmp_path / "nvidia-cuda-mps-control")
        words = [sys.executable, "-I", "-S", keeper.__file__, control, str(pipe.parent), service._PROBE, "0"]
        environment = {**os.environ, "CUDA_MPS_PIPE_DIRECTORY": str(pipe)}
        streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        begun.append(subprocess.Popen([*words, "20", "60", "2"], env=environment, **streams))
        return begun[-1], pipe

    yield begin
    for process in begun:
        process.stdin.close()
        process.stdout.close()
        process.kill()
        process.wait()


def test_signals_to_stop_are_for_others(start, fake):
    process, pipe = start()
    assert process.stdout.readline() == b"ready\n"
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        process.send_signal(number)
    time.sleep(0.2)
    assert process.poll() is None
    assert keeper.find_processes(pipe)
    process.stdin.close()
    assert process.wait(10) == 0
    assert not pipe.parent.exists()
    assert fake.calls()[1:] == ["quit -t 5"]


def test_a_first_process_that_nobody_waits_for_is_given_up(start, fake, tmp_path):
    process, pipe = start(f"import time; open({str(tmp_path / 'probing')!r}, 'w'); time.sleep(60)")
    while not (tmp_path / "probing").exists():
        time.sleep(0.02)
    began = time.monotonic()
    process.stdin.close()
    assert process.wait(20) == 0
    assert time.monotonic() - began < 15
    assert process.stdout.read() == b"probe.py is no longer needed\n"
    assert not keeper.find_processes(pipe)
    assert not pipe.parent.exists()


def test_only_daemons_of_the_folder_are_found(tmp_path):
    assert keeper.find_processes(tmp_path) == []
