import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import asrnorm.launch.jobs as module
from asrnorm.core.config import load_config
from asrnorm.core.settings import DEVICE_VARIABLE
from asrnorm.launch.jobs import describe_failure, execute, forwarded
from asrnorm.studies import Evaluation
from helpers.fake_job import fake_job, starts


def do(job, request=lambda: "continue"):
    return execute(job, os.environ, request)


def test_a_run_its_evaluations_and_its_analyses_in_their_order(tmp_path):
    job = fake_job(tmp_path / "a", evaluations=[Evaluation(name="b", overrides={"x": 1})][:0], analyses=["statistics"])
    assert do(job).status == "done"
    assert job.missing() == ()
    assert load_config(job.folder / "launch.yaml") == job.config
    log = (job.folder / "launch.log").read_text().splitlines()
    assert [line.rpartition(" ")[2] for line in log if line.startswith("#")] == ["train", "statistics"]
    assert not list(job.folder.glob(".*.tmp*"))


def test_only_what_is_missing_is_done_again(tmp_path):
    job = fake_job(tmp_path / "a", evaluations=[Evaluation(name="b", overrides={"evaluate_batch": 7})])
    assert do(job).status == "done"
    (job.folder / "evaluations" / "b.json").unlink()
    assert do(job).status == "done"
    assert len(starts(job)) == 1
    assert do(job).status == "done"
    assert (job.folder / "launch.log").read_text().count(": b\n") == 2


def test_an_evaluation_that_fails_does_not_keep_the_others_from_being_made(tmp_path):
    evaluations = [Evaluation(name=name, overrides={"evaluate_batch": 7}) for name in ("broken", "whole")]
    job = fake_job(tmp_path / "a", evaluations=evaluations, analyses=["statistics"])
    ended = do(job)
    assert (ended.status, ended.error) == ("failed", "rendered digits need matplotlib")
    assert [piece.label for piece in job.missing()] == ["broken"]


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"failures": 1}, "the disk is full; free some space"),
        ({"deadly": 9}, "killed by signal 9, as the system does when memory runs out"),
        ({"deadly": 11}, "killed by signal 11"),
        ({"lazy": True}, "train succeeded but wrote no result.json for this config"),
    ],
)
def test_a_failure_is_one_line(tmp_path, options, error):
    ended = do(fake_job(tmp_path / "a", **options))
    assert (ended.status, ended.error) == ("failed", error)


def test_a_program_that_says_nothing_of_its_own_is_quoted_by_its_last_line(tmp_path):
    log = tmp_path / "log"
    log.write_text(f"# earlier\nasrnorm: earlier\n# train\nTraceback\n  File\nKeyError: {'x' * 400}\n\n")
    start = log.read_text().index("# train")
    line = describe_failure(log, start, 1)
    assert line.startswith("KeyError: xxx")
    assert len(line) == 300
    assert describe_failure(log, log.stat().st_size, 3) == "exit status 3"


def test_a_folder_that_cannot_be_made_is_a_failure_of_that_job_alone(tmp_path):
    (tmp_path / "file").write_text("")
    ended = do(fake_job(tmp_path / "file" / "a"))
    assert ended.status == "failed"
    assert "file" in ended.error


def test_of_two_launches_one_does_a_job(tmp_path):
    job = fake_job(tmp_path / "a", steps=100, pause=0.02)
    ended = []
    first = threading.Thread(target=lambda: ended.append(do(job)))
    first.start()
    while not (job.folder / "launch.log").exists():
        time.sleep(0.01)
    assert do(job).status == "busy"
    first.join()
    assert [one.status for one in ended] == ["done"]
    assert do(job).status == "done"
    assert len(starts(job)) == 1


def test_a_run_that_somebody_trains_by_hand_is_busy_and_has_not_failed(tmp_path, monkeypatch):
    job = fake_job(tmp_path / "a", failures=1)
    looks = iter([False, True])  # taken between the launch's look and its process
    monkeypatch.setattr(type(job), "is_busy", lambda self: next(looks))
    assert do(job).status == "busy"


def test_a_divergence_that_may_be_ends_the_job(tmp_path):
    assert do(fake_job(tmp_path / "a", diverge=True, may_diverge=True, analyses=["statistics"])).status == "done"
    assert do(fake_job(tmp_path / "b", diverge=True)).status == "failed"


def test_told_to_stop_a_run_ends_after_its_step_and_goes_on_later(tmp_path):
    job = fake_job(tmp_path / "a", steps=500, pause=0.02)
    requests = ["continue"]
    threading.Timer(1.0, requests.append, ("stop",)).start()
    ended = do(job, lambda: requests[-1])
    assert ended.status == "stopped"
    step = int(ended.error.removeprefix("interrupted at step "))
    assert 0 < step < 500
    quick = fake_job(tmp_path / "a", steps=500)
    assert do(quick).status == "done"
    assert [start for start, _ in starts(job)] == ["0", str(step)]


def test_told_to_stop_at_once_a_run_is_killed(tmp_path):
    requests = ["continue"]
    threading.Timer(0.5, requests.append, ("stop at once",)).start()
    began = time.monotonic()
    assert do(fake_job(tmp_path / "a", steps=2, pause=30), lambda: requests[-1]).status == "stopped"
    assert time.monotonic() - began < 10


def test_a_run_dies_with_the_process_that_started_it(tmp_path):
    script = (
        "import os, sys; from pathlib import Path; from asrnorm.launch.jobs import execute;"
        "from helpers.fake_job import fake_job;"
        "execute(fake_job(Path(sys.argv[1]), steps=9999, pause=0.05), os.environ, lambda: 'continue')"
    )
    parent = subprocess.Popen([sys.executable, "-c", script, str(tmp_path / "a")])
    child = _wait_for_child(parent.pid, "helpers.fake_asrnorm")
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    deadline = time.monotonic() + 5
    while _is_alive(child) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not _is_alive(child)


def _wait_for_child(parent, word):
    children = Path(f"/proc/{parent}/task/{parent}/children")
    if not children.exists():
        pytest.skip("no /proc with children here")
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        for child in children.read_text().split():
            words = Path(f"/proc/{child}/cmdline").read_text()
            if word in words and "die_with_parent" not in words and (log_of(words)).exists():
                return int(child)
        time.sleep(0.02)
    raise AssertionError("no child was started")


def log_of(words):
    parts = words.split("\0")
    return Path(parts[parts.index("--out") + 1]) / "log.jsonl"


def _is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_job_with_a_gpu_asks_for_it_unless_the_user_has_chosen_a_device(monkeypatch):
    monkeypatch.delenv(DEVICE_VARIABLE, raising=False)
    assert forwarded(on_gpu=True)[0][DEVICE_VARIABLE] == "cuda"
    assert DEVICE_VARIABLE not in forwarded()[0]
    monkeypatch.setenv(DEVICE_VARIABLE, "cuda:1")
    assert forwarded(on_gpu=True)[0][DEVICE_VARIABLE] == "cuda:1"


def test_a_process_that_dies_without_a_word_is_told_by_its_status(tmp_path):
    log = tmp_path / "launch.log"
    log.write_bytes(b"# 2026-01-01 00:00:00 here: train\nearlier words\n")
    start = log.stat().st_size
    with log.open("ab") as file:
        file.write(b"# 2026-01-01 00:00:01 here: train\n")
    assert describe_failure(log, start, 3) == "exit status 3"


def test_the_settings_of_the_other_machine_go_before_those_of_the_launcher(tmp_path, monkeypatch):
    given = {}
    monkeypatch.setattr(
        module, "execute", lambda job, environment, request, place: given.update(environment, place=place)
    )
    monkeypatch.setenv("ASRNORM_DATA", "/theirs")
    monkeypatch.delenv("ASRNORM_CACHE", raising=False)
    variables = {"ASRNORM_DATA": "/mine", "ASRNORM_CACHE": "/cache"}
    module.execute_remotely(fake_job(tmp_path), variables, str(tmp_path / "none"))
    assert (given["ASRNORM_DATA"], given["ASRNORM_CACHE"], given["place"]) == ("/theirs", "/cache", None)
