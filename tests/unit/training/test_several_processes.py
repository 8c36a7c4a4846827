import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from asrnorm.core.config import dump_config
from asrnorm.core.distributed import World
from asrnorm.launch.queue import last_step
from asrnorm.models import create_model
from asrnorm.norms import create_norm
from asrnorm.training import run
from asrnorm.training.assembly import synchronize
from helpers.kill_run import outcome
from helpers.ray_kill import descendants
from helpers.tiny_run import Choice, logged_losses, logged_steps, tiny_config, write_weights
from helpers.two_processes import RESUMED, WEIGHTS, cases, take_back

TESTS = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """The folder of all cases, done by two gloo processes."""
    folder = tmp_path_factory.mktemp("two")
    write_weights(folder / WEIGHTS)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    children = []
    for rank in range(2):
        environment = {
            **os.environ,
            "PYTHONPATH": f"{TESTS.parent / 'src'}:{TESTS}",
            "OMP_NUM_THREADS": "1",
            "ASRNORM_DATA": str(folder),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "WORLD_SIZE": "2",
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
        }
        command = [sys.executable, "-m", "helpers.two_processes", str(folder)]
        with (folder / f"rank-{rank}.txt").open("w") as errors:
            children.append(subprocess.Popen(command, env=environment, stderr=errors))
    try:
        statuses = [child.wait(timeout=300) for child in children]
    finally:
        for child in children:
            child.kill()  # one that waits for another that has failed
            child.wait()
    assert statuses == [0, 0], [(folder / f"rank-{rank}.txt").read_text() for rank in range(2)]
    return folder


@pytest.mark.parametrize("name", cases())
def test_two_processes_give_what_one_gives(name, shared, tmp_path, monkeypatch):
    monkeypatch.setenv("ASRNORM_DATA", str(shared))
    result = run(cases()[name], tmp_path / name)
    alone, together = (load_file(place / name / "model.safetensors") for place in (tmp_path, shared))
    for key, value in alone.items():
        scale = value.double().abs().max().clamp(min=1e-12)
        assert float((value.double() - together[key].double()).abs().max() / scale) < 1e-8, key
    rows, theirs = (
        [json.loads(line) for line in (place / name / "log.jsonl").read_text().splitlines()]
        for place in (tmp_path, shared)
    )
    assert logged_steps(shared / name) == logged_steps(tmp_path / name)
    for row, other in zip(rows, theirs, strict=True):
        assert other.get("loss", 0) == pytest.approx(row.get("loss", 0), rel=1e-8)
        assert other.get("accuracy") == row.get("accuracy")
    found = json.loads((shared / name / "result.json").read_text())
    assert found["average_accuracy"] == pytest.approx(result.average_accuracy)
    assert found["steps"] == result.steps
    if name.startswith("grow"):
        assert len(list((shared / name / "pool").iterdir())) == 1


def test_a_run_begun_by_two_processes_is_finished_by_one(shared, tmp_path):
    folder = shutil.copytree(shared / "grow-bn", tmp_path / "grow-bn")
    whole = load_file(folder / "model.safetensors")
    take_back(folder)
    run(cases()["grow-bn"], folder)
    for key, value in load_file(folder / "model.safetensors").items():
        assert torch.allclose(value.double(), whole[key].double(), rtol=1e-8, atol=1e-12), key
    assert logged_losses(folder) == pytest.approx(logged_losses(shared / "grow-bn"), rel=1e-8)


def test_a_run_taken_up_by_two_processes_logs_the_losses_of_one_that_went_through(shared):
    assert logged_steps(shared / RESUMED) == logged_steps(shared / "erm-bn")
    assert logged_losses(shared / RESUMED) == pytest.approx(logged_losses(shared / "erm-bn"), rel=1e-8)


def test_only_norms_that_look_at_the_batch_are_changed():
    both = World(0, 2)
    counts = {name: synchronize(create_model("digits_convnet", norm=name), both) for name in ("bn", "sn", "asr", "in")}
    assert counts == {"bn": 2, "sn": 2, "asr": 0, "in": 0}
    assert synchronize(create_model("digits_convnet", norm="bn"), World()) == 0


def test_batch_norms_that_stay_apart_are_warned_of(caplog):
    caplog.set_level("WARNING", logger="asrnorm")
    model = nn.Sequential(nn.BatchNorm2d(3), create_norm("bn", 3), nn.SyncBatchNorm(3))
    assert synchronize(model, World(0, 2)) == 1
    assert "1 batch norms are not this package's" in caplog.text
    caplog.clear()
    synchronize(model, World(1, 2))
    synchronize(create_norm("bn", 3), World(0, 2))
    assert not caplog.text


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 1])
def test_torchrun_restarts_a_run_of_which_a_process_was_killed(tmp_path, rank):
    method = Choice(name="toy_noise", args={"pause": 0.1})
    config = tiny_config(method=method, norm=Choice(name="asr"), log_every=1, checkpoint_every=5)
    (tmp_path / "config.yaml").write_text(dump_config(config))
    environment = {**os.environ, "PYTHONPATH": f"{TESTS.parent / 'src'}:{TESTS}", "OMP_NUM_THREADS": "1"}

    def start(name):
        options = ["--nproc-per-node=2", "--max-restarts=2", "--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:0"]
        words = ["train", "--config", str(tmp_path / "config.yaml"), "--out", str(tmp_path / name)]
        command = [sys.executable, "-m", "torch.distributed.run", *options, "-m", "helpers.toy_asrnorm", *words]
        with (tmp_path / f"{name}.txt").open("w") as said:
            return subprocess.Popen(command, env=environment, stdout=said, stderr=said)

    def process_of(launcher):
        for pid, words in descendants(launcher.pid).items():
            if "train" in words and f"RANK={rank}".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                return pid
        return None

    assert start("whole").wait(timeout=120) == 0
    launcher, kills, deadline = start("killed"), 0, time.monotonic() + 240
    while launcher.poll() is None and time.monotonic() < deadline:
        is_due = kills < 2 and last_step(tmp_path / "killed" / "log.jsonl") >= 8 * (kills + 1)
        if is_due and (pid := process_of(launcher)):
            os.kill(pid, signal.SIGKILL)
            kills += 1
        time.sleep(0.05)
    launcher.kill()
    assert launcher.wait() == 0, (tmp_path / "killed.txt").read_text()
    assert kills == 2
    assert outcome(tmp_path / "killed") == outcome(tmp_path / "whole")
