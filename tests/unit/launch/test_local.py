from pathlib import Path

import pytest

from asrnorm.core.errors import InputError
from asrnorm.core.settings import DEVICE_VARIABLE, count_cores
from asrnorm.launch import LocalExecutor, launch, local
from asrnorm.launch import mps as service
from helpers.fake_job import Lines, fake_job, starts
from helpers.fake_mps import FakeMps

PIPE = "CUDA_MPS_PIPE_DIRECTORY"


@pytest.fixture(autouse=True)
def _no_daemon_of_the_machine(monkeypatch):
    monkeypatch.setenv(service.VARIABLE, "0")


@pytest.fixture
def fake_mps(tmp_path, monkeypatch):
    folder = tmp_path / "bin"
    folder.mkdir()
    return FakeMps(folder, monkeypatch)


def test_jobs_run_side_by_side_and_each_worker_keeps_to_its_gpu(tmp_path):
    jobs = [fake_job(tmp_path / str(index), steps=10, pause=0.05) for index in range(6)]
    view = Lines()
    outcome = launch(jobs, LocalExecutor(gpus=["3", "5"]), view=view)
    assert len(outcome.done) == 6
    assert view.most_running == 4  # two a GPU
    used = [starts(job)[0][1] for job in jobs]
    assert used[:4] == ["3", "5", "3", "5"]
    assert set(used[4:]) <= {"3", "5"}


def test_a_shaky_run_is_done_at_the_second_try_and_a_bad_one_reported(tmp_path):
    jobs = [fake_job(tmp_path / "shaky", failures=1), fake_job(tmp_path / "bad", failures=9), fake_job(tmp_path / "c")]
    outcome = launch(jobs, LocalExecutor(2), view=Lines())
    assert sorted(job.name for job in outcome.done) == ["c", "shaky"]
    assert [(one.job.name, one.error) for one in outcome.failed] == [("bad", "the disk is full; free some space")]
    assert len(starts(jobs[1])) == 2


def test_the_cores_are_shared_out_unless_the_user_has_done_so():
    threads = [LocalExecutor(n, environment={}).environment_of(0)["OMP_NUM_THREADS"] for n in (1, 1000)]
    assert threads == [str(count_cores()), "1"]
    assert LocalExecutor(4, environment={"OMP_NUM_THREADS": "3"}).environment_of(0)["OMP_NUM_THREADS"] == "3"
    assert "CUDA_VISIBLE_DEVICES" not in LocalExecutor(1, environment={}).environment_of(0)


@pytest.mark.parametrize(("gpus", "workers", "slots"), [((), None, 1), (("0",), None, 2), (("0", "1"), 3, 3)])
def test_how_many_run_at_once(gpus, workers, slots):
    assert LocalExecutor(workers, gpus).slots() == slots


def test_no_worker_at_all_is_refused():
    with pytest.raises(InputError, match="workers must be at least 1, not 0"):
        LocalExecutor(0)


def test_workers_that_share_a_gpu_are_clients_of_one_daemon_until_the_end(fake_mps):
    executor = LocalExecutor(3, ["3", "5"])
    environments = [executor.environment_of(worker) for worker in range(3)]
    assert len({environment[PIPE] for environment in environments}) == 1
    assert [environment["CUDA_VISIBLE_DEVICES"] for environment in environments] == ["0", "1", "0"]
    apart = executor.environment_of(1, apart=True)
    assert PIPE not in apart
    assert apart["CUDA_VISIBLE_DEVICES"] == "5"
    executor.close()
    assert [call.split()[0] for call in fake_mps.calls()] == ["start", "quit"]
    assert not Path(environments[0][PIPE]).exists()
    assert PIPE not in executor.environment_of(0)


@pytest.mark.parametrize(("workers", "gpus"), [(1, ["0"]), (2, ["0", "1"]), (4, [])])
def test_workers_with_a_gpu_each_or_none_start_no_daemon(fake_mps, workers, gpus):
    executor = LocalExecutor(workers, gpus)
    assert PIPE not in executor.environment_of(0)
    executor.close()
    assert fake_mps.calls() == []


def test_a_run_that_has_a_gpu_must_not_turn_to_the_cpu():
    assert LocalExecutor(1, ["0"], {}).environment_of(0)[DEVICE_VARIABLE] == "cuda"
    assert LocalExecutor(1, ["0"], {DEVICE_VARIABLE: "cpu"}).environment_of(0)[DEVICE_VARIABLE] == "cpu"
    assert DEVICE_VARIABLE not in LocalExecutor(1, (), {}).environment_of(0)


def test_a_run_that_failed_has_its_second_try_outside_of_mps(tmp_path, fake_mps, monkeypatch):
    monkeypatch.setattr(local, "_RECOVERY_SECONDS", 0.0)
    jobs = [fake_job(tmp_path / "shaky", failures=1), fake_job(tmp_path / "good")]
    outcome = launch(jobs, LocalExecutor(2, ["7"]), view=Lines())
    assert len(outcome.done) == 2
    assert [gpu for _, gpu in starts(jobs[0])] == ["0", "7"]  # the daemon numbers GPUs anew
    assert [gpu for _, gpu in starts(jobs[1])] == ["0"]
    assert [call.split()[0] for call in fake_mps.calls()] == ["start", "quit"]
