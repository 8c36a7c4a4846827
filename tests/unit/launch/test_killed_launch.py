"""Launches that are killed, started again, and end as if nothing had happened."""

import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from asrnorm.cli.main import main
from asrnorm.core.config import dump_config
from asrnorm.launch.queue import last_step
from helpers import launch_toys, tiny_run
from helpers.kill_run import outcome

NAMES = ("asr", "bn")


def start(place):
    words = [sys.executable, "-m", "helpers.launch_toys", str(place)]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def processes_of(place):
    """The processes that have the folder in their command line, but for launchers."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_text().split("\0")
        except OSError:
            continue
        if any(str(place) in word for word in words) and "helpers.launch_toys" not in words:
            found.append(int(path.parent.name))
    return found


def progress(place):
    """How many rows and files there are: it grows as the launch goes on."""
    files = [*place.glob("*/result.json"), *place.glob("*/evaluations/*"), *place.glob("*/analyses/*")]
    return sum(last_step(place / name / "log.jsonl") for name in NAMES) + 10 * len(files)


def wait_for(condition, seconds=180):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it takes too long"
        time.sleep(0.01)


def everything(place):
    found = {name: outcome(place / name) for name in NAMES}
    scored = json.loads((place / "bn" / "evaluations" / "bn_test-8.json").read_text())
    del scored["wall_seconds"], scored["values_sha256"]
    with np.load(place / "asr" / "analyses" / "statistics.npz") as arrays:
        return found | {"scored": scored, "statistics": {name: arrays[name].tolist() for name in arrays.files}}


@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="no /proc to look for processes in")
def test_killed_at_any_moment_and_started_again_a_launch_ends_as_if_undisturbed(tmp_path, monkeypatch):
    whole, broken, draw = tmp_path / "whole", tmp_path / "broken", random.Random(5)
    for registry, name, entry in tiny_run.entries():
        monkeypatch.setitem(registry._entries, name, entry)
    for job in launch_toys.jobs(whole):
        job.folder.mkdir(parents=True)
        (job.folder / "launch.yaml").write_text(dump_config(job.config))
        assert [main(piece.words) for piece in job.commands()] == [0, 0]

    launcher = start(broken)
    wait_for(lambda: progress(broken) > 4)
    launcher.send_signal(signal.SIGTERM)
    _, said = launcher.communicate(timeout=180)
    assert launcher.returncode == 1
    assert "stopping" in said
    stopped = [(broken / name / "launch.log").read_text() for name in NAMES]
    assert any("interrupted at step" in log for log in stopped)

    for _ in range(2):
        launcher, before = start(broken), progress(broken)
        aim = before + draw.randrange(3, 20)
        wait_for(lambda aim=aim, launcher=launcher: progress(broken) >= aim or launcher.poll() is not None)
        launcher.send_signal(signal.SIGKILL)
        launcher.communicate()
        wait_for(lambda: not processes_of(broken), seconds=5)
    finished = {path: path.stat().st_mtime_ns for path in broken.glob("*/result.json")}

    for last in [start(broken), start(broken)]:  # two launchers on one folder: each waits for what the other does
        out, said = last.communicate(timeout=180)
        assert (out, last.returncode) == ("asr bn", 0), said
    assert all(path.stat().st_mtime_ns == when for path, when in finished.items())  # nothing finished runs again
    assert any("resuming from step" in (broken / name / "launch.log").read_text() for name in NAMES)
    assert everything(broken) == everything(whole)
    assert outcome(broken / "bn")["logs"]["log.jsonl"][-1]["step"] == 30

    (broken / "asr" / "pool").mkdir(exist_ok=True)  # as a process leaves it that is killed after it wrote the result
    (broken / "asr" / "pool" / "part-0001-b4b8ab27da66.safetensors").touch()
    logs = [(broken / name / "launch.log").read_text() for name in NAMES]
    assert start(broken).communicate(timeout=180)[0] == "asr bn"
    assert [(broken / name / "launch.log").read_text() for name in NAMES] == logs  # nothing is started
    assert not (broken / "asr" / "pool").exists()


def test_the_jobs_of_the_test_are_what_it_says(tmp_path):
    labels = [[piece.label for piece in job.missing()] for job in launch_toys.jobs(tmp_path)]
    assert labels == [["train", "bn_test-8"], ["train", "statistics"]]
