import json
import os
import re
import subprocess
import sys
from types import SimpleNamespace

import pytest

from asrnorm.core.errors import InputError, MissingDependencyError
from asrnorm.core.settings import DEVICE_VARIABLE
from asrnorm.launch import ray_cluster
from asrnorm.training import run
from helpers import tiny_run
from helpers.fake_job import fake_job
from helpers.kill_run import outcome
from helpers.tiny_run import logged_steps


def test_without_ray_one_line_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'asrnorm\[ray\]'"):
        ray_cluster.RayExecutor()


@pytest.mark.parametrize("address", ["no-such-host.invalid:6379", "ray://no-such-host.invalid:10001", "127.0.0.1:1"])
def test_an_address_at_which_nobody_listens_is_one_line_at_once(address, monkeypatch):
    monkeypatch.setattr(ray_cluster, "import_extra", lambda *_: SimpleNamespace())
    with pytest.raises(InputError, match=rf"no Ray cluster at '{re.escape(address)}' .*; start one: ray start --head"):
        ray_cluster.RayExecutor(address)


class Errors:
    class RayError(Exception): ...

    class TaskCancelledError(RayError): ...

    class RayTaskError(RayError): ...

    class OutOfMemoryError(RayError): ...

    class NodeDiedError(RayError): ...


def stand_in(**resources):
    """Ray as far as the executor calls it; `get` raises or returns what the reference is."""

    def get(reference):
        if isinstance(reference, Exception):
            raise reference
        return reference

    said = []
    return SimpleNamespace(
        said=said,
        init=lambda **options: said.append(options["address"]),
        shutdown=lambda: said.append("shutdown"),
        cluster_resources=lambda: resources,
        exceptions=Errors,
        get=get,
        wait=lambda references, num_returns, timeout: (references, []),
        cancel=lambda reference, force: said.append(force),
        remote=lambda **options: (
            lambda function: SimpleNamespace(
                remote=lambda job, known, place: said.append({**options, "known": known}) or len(said)
            )
        ),
    )


@pytest.mark.parametrize(
    ("resources", "workers", "slots", "share"),
    [({"CPU": 8.0}, None, 8, 0), ({"CPU": 8.0, "GPU": 2.0}, None, 4, 0.5), ({"CPU": 8.0}, 3, 3, 0), ({}, None, 1, 0)],
)
def test_half_a_gpu_a_run_or_a_core(tmp_path, monkeypatch, resources, workers, slots, share):
    ray = stand_in(**resources)
    monkeypatch.setattr(ray_cluster, "import_extra", lambda *_: ray)
    executor = ray_cluster.RayExecutor("auto", workers)
    assert executor.slots() == slots
    executor.submit(fake_job(tmp_path / "a"))
    executor.submit(fake_job(tmp_path / "b", device="cpu"))
    assert [(options["num_gpus"], options["max_retries"]) for options in ray.said[1:]] == [(share, 0), (0, 0)]
    assert [options["known"].get(DEVICE_VARIABLE) for options in ray.said[1:]] == ["cuda" if share else None, None]
    for _ in range(2):
        executor.stop()
    executor.stop(at_once=True)
    executor.close()
    assert ray.said[3:] == [False, False, True, True, "shutdown"]


@pytest.mark.parametrize(
    ("error", "status", "line"),
    [
        (Errors.NodeDiedError("x"), "lost", "its machine was lost (NodeDiedError)"),
        (Errors.OutOfMemoryError("a\nout of  memory\n"), "failed", "out of memory"),
        (Errors.RayTaskError("trace\nKeyError: 1"), "failed", "KeyError: 1"),
        (Errors.TaskCancelledError(), "stopped", ""),
    ],
)
def test_how_a_task_ends_is_how_the_job_ends(tmp_path, monkeypatch, error, status, line):
    monkeypatch.setattr(ray_cluster, "import_extra", lambda *_: stand_in())
    executor = ray_cluster.RayExecutor()
    job = fake_job(tmp_path)
    executor._running[error] = job
    (ended,) = executor.collect()
    assert (ended.job, ended.status, ended.error) == (job, status, line)
    assert executor.collect() == []


def test_no_cluster_is_one_line(monkeypatch):
    def fail(**options):
        raise ConnectionError("Could not find\nany running Ray instance.")

    monkeypatch.setattr(ray_cluster, "import_extra", lambda *_: SimpleNamespace(init=fail))
    with pytest.raises(InputError, match=r"no Ray cluster at 'auto' \(Could not find any running.*ray start --head"):
        ray_cluster.RayExecutor()


@pytest.mark.slow
def test_runs_of_a_node_that_is_killed_go_on_from_their_checkpoints_on_another(tmp_path, monkeypatch):
    pytest.importorskip("ray", reason="ray is not installed: pip install 'asrnorm[ray]'")
    for registry, name, entry in tiny_run.entries():
        monkeypatch.setitem(registry._entries, name, entry)
    words = [sys.executable, "-m", "helpers.ray_kill", str(tmp_path / "runs")]
    environment = {**os.environ, "RAY_USAGE_STATS_ENABLED": "0"}
    done = subprocess.run(words, capture_output=True, text=True, timeout=240, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]
    report = json.loads(done.stdout.splitlines()[-1])
    names = ["run0", "run1", "run2", "run3"]
    assert (report["slots"], report["done"], report["failed"], report["done_again"]) == (2, names, [], 4)
    victim = report["victim"]
    assert f"{victim}: its machine was lost (NodeDiedError); another machine continues it" in report["said"]
    assert report["training_died"]  # the process that trained was not left to itself
    assert report["done_before"]
    for name, when in report["done_before"].items():
        assert report["results"][name] == when  # nothing finished was written again
    from helpers.ray_kill import configs

    for name, config in configs().items():
        log = (tmp_path / "runs" / name / "launch.log").read_text()
        assert log.count(": train\n") == (2 if name == victim else 1)
        resumed = re.search("resuming from step ([123]0) of 40", log)
        assert bool(resumed) == (name == victim)
        assert resumed is None or int(resumed[1]) >= report["killed_at"] // 10 * 10
        assert logged_steps(tmp_path / "runs" / name) == list(range(1, 41))
        run(config, tmp_path / "whole" / name)
        assert outcome(tmp_path / "runs" / name) == outcome(tmp_path / "whole" / name)


@pytest.mark.slow
def test_a_study_whose_machines_are_killed_again_and_again_ends_as_if_undisturbed(tmp_path):
    pytest.importorskip("ray", reason="ray is not installed: pip install 'asrnorm[ray]'")
    words = [sys.executable, "-m", "helpers.ray_torture", str(tmp_path), "2", "3", "0"]
    environment = {**os.environ, "RAY_USAGE_STATS_ENABLED": "0"}
    done = subprocess.run(words, capture_output=True, text=True, timeout=400, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]
    report = json.loads(done.stdout.splitlines()[-1])
    assert (report["status"], report["runs"], report["differing"], report["left_alive"]) == (0, 4, [], 0)
    assert (report["kills"], report["written_again"]) == (3, 0)
    assert report["starts"] == 4 + report["lost"]  # nothing finished was trained again
