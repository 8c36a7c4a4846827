"""The Slurm executor on submitit's local stand-in for Slurm."""

import os
import signal
import sys
import threading
from types import SimpleNamespace

import pytest

from asrnorm.core.errors import InputError, MissingDependencyError
from asrnorm.core.settings import DEVICE_VARIABLE
from asrnorm.launch import launch
from asrnorm.launch.slurm import SlurmExecutor
from helpers.fake_job import Lines, fake_job, starts


def open_executor(folder, workers=2):
    pytest.importorskip("submitit", reason="submitit is not installed: pip install 'asrnorm[slurm]'")
    return SlurmExecutor(folder / "slurm", {"timeout_min": 5}, workers, cluster="local")


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_jobs_are_done_and_failures_reported(tmp_path):
    jobs = [fake_job(tmp_path / "good"), fake_job(tmp_path / "bad", failures=9)]
    outcome = launch(jobs, open_executor(tmp_path), view=Lines())
    assert [job.name for job in outcome.done] == ["good"]
    assert [(one.job.name, one.error) for one in outcome.failed] == [("bad", "the disk is full; free some space")]


@pytest.mark.parametrize(
    ("options", "device"),
    [
        ({"gpus_per_node": 1}, "cuda"),
        ({"slurm_gres": "gpu:h100:1"}, "cuda"),
        ({"gpus_per_node": 0}, None),
        ({"slurm_partition": "gpu"}, None),
        ({}, None),
    ],
)
def test_a_job_that_asked_slurm_for_a_gpu_must_not_turn_to_the_cpu(tmp_path, monkeypatch, options, device):
    pytest.importorskip("submitit", reason="submitit is not installed: pip install 'asrnorm[slurm]'")
    executor, known = SlurmExecutor(tmp_path, options, cluster="local"), []
    monkeypatch.setattr(executor._executor, "submit", lambda work, job, there, place: known.append(there))
    executor.submit(fake_job(tmp_path / "a"))
    executor.submit(fake_job(tmp_path / "b", device="cpu"))
    assert [there.get(DEVICE_VARIABLE) for there in known] == [device, None]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_job_that_is_ended_from_outside_goes_on_in_a_new_one(tmp_path):
    job = fake_job(tmp_path / "a", steps=150, pause=0.02)
    executor, view = open_executor(tmp_path, 1), Lines()

    ended = threading.Event()

    def kill():  # the process that works on the job, as Slurm does at the time limit
        while not (job.folder / "log.jsonl").exists() or not (job.folder / "log.jsonl").read_text():
            if ended.wait(0.02):
                return
        os.kill(int((job.folder / "parent").read_text()), signal.SIGKILL)

    thread = threading.Thread(target=kill)
    thread.start()
    outcome = launch([job], executor, view=view)
    ended.set()
    thread.join()
    assert [done.name for done in outcome.done] == ["a"]
    assert "a: Slurm ended it" in view.said[0]
    assert len(starts(job)) == 2
    assert int(starts(job)[1][0]) > 0


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_stopped_launch_cancels_what_it_handed_over(tmp_path):
    job = fake_job(tmp_path / "a", steps=9999, pause=0.02)
    executor = open_executor(tmp_path, 1)

    ended = threading.Event()

    def stop():
        while not (job.folder / "log.jsonl").exists():
            if ended.wait(0.02):
                return
        os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=stop)
    thread.start()
    outcome = launch([job], executor, view=Lines())
    ended.set()
    thread.join()
    assert [left.name for left in outcome.left] == ["a"]
    assert not job.is_busy()


def test_without_submitit_or_slurm_one_line_says_so(tmp_path, monkeypatch):
    pytest.importorskip("submitit", reason="submitit is not installed: pip install 'asrnorm[slurm]'")
    with pytest.raises(InputError, match="--slurm: "):
        SlurmExecutor(tmp_path, {}, cluster="slurm")  # no srun here
    with pytest.raises(InputError, match="--slurm: "):
        SlurmExecutor(tmp_path, {"time_min": 5}, cluster="local")
    monkeypatch.setitem(sys.modules, "submitit", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'asrnorm\[slurm\]'"):
        SlurmExecutor(tmp_path, {})


def test_a_job_that_slurm_refuses_is_one_line_and_the_others_are_cancelled(tmp_path, monkeypatch):
    executor, cancelled = open_executor(tmp_path), []
    handed = SimpleNamespace(cancel=lambda: cancelled.append("first"), done=lambda: False)

    def submit(*_):
        if executor._running:
            raise executor._submitit.core.utils.FailedJobError("sbatch said:\nsbatch: error: invalid partition")
        return handed

    monkeypatch.setattr(executor._executor, "submit", submit)
    with pytest.raises(InputError, match="--slurm: sbatch: error: invalid partition"):
        launch([fake_job(tmp_path / "a"), fake_job(tmp_path / "b")], executor, view=Lines())
    assert cancelled == ["first"]
