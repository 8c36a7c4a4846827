"""The queue against an executor that does as it is told."""

import fcntl
import json
import os
import signal
import threading

from asrnorm.core.results import write_result
from asrnorm.launch import Ended, launch
from asrnorm.launch.queue import _MOST_LOSSES
from helpers.fake_asrnorm import result
from helpers.fake_job import Lines, fake_job


class Scripted:
    """Ends each job at once, by the next word of its script; without one, done."""

    def __init__(self, scripts=None, slots=2):
        self.scripts, self._slots = scripts or {}, slots
        self.submitted, self.running, self.told, self.closed = [], [], [], False

    def slots(self):
        return self._slots

    def submit(self, job):
        self.submitted.append(job.name)
        self.running.append(job)

    def collect(self):
        ended, still = [], []
        for job in self.running:
            script = self.scripts.get(job.name, [])
            status = script.pop(0) if script else "done"
            if status == "last":
                script.append("last")
                still.append(job)
                status = "stopped" if self.told else None
            if status == "done":
                job.folder.mkdir(parents=True, exist_ok=True)
                write_result(job.folder / "result.json", result(job.config))
            if status is not None:
                ended.append(Ended(job, status, "boom" if status in ("failed", "lost") else ""))
        self.running = [job for job in still if not self.told]
        return ended

    def stop(self, *, at_once=False):
        self.told.append(at_once)

    def close(self):
        self.closed = True


def names(jobs):
    return [job.name for job in jobs]


def test_what_is_done_is_left_alone_and_what_was_begun_comes_first(tmp_path):
    jobs = [fake_job(tmp_path / name) for name in ("new", "done", "begun")]
    for name in ("done", "begun"):
        (tmp_path / name).mkdir()
    write_result(tmp_path / "done" / "result.json", result(jobs[1].config))
    executor = Scripted(slots=1)
    outcome = launch(jobs, executor, view=Lines())
    assert executor.submitted == ["begun", "new"]
    assert (names(outcome.done), outcome.failed, outcome.left) == (["done", "begun", "new"], (), ())
    assert executor.closed


def test_a_failing_job_is_tried_once_more_and_then_reported_and_the_rest_goes_on(tmp_path):
    jobs = [fake_job(tmp_path / name) for name in ("bad", "shaky", "good")]
    executor, view = Scripted({"bad": ["failed"] * 9, "shaky": ["failed"]}), Lines()
    outcome = launch(jobs, executor, view=view)
    assert sorted(names(outcome.done)) == ["good", "shaky"]
    assert [(failure.job.name, failure.error) for failure in outcome.failed] == [("bad", "boom")]
    assert executor.submitted.count("bad") == 2
    assert "bad: boom; trying again" in view.said
    assert "bad: failed: boom" in view.said


def test_a_lost_machine_is_no_failure_of_the_run_but_does_not_go_on_for_ever(tmp_path):
    jobs = [fake_job(tmp_path / name) for name in ("unlucky", "deadly")]
    executor = Scripted({"unlucky": ["lost"] * 3, "deadly": ["lost"] * 99})
    outcome = launch(jobs, executor, view=Lines(), retry=0)
    assert names(outcome.done) == ["unlucky"]
    assert [failure.job.name for failure in outcome.failed] == ["deadly"]
    assert executor.submitted.count("deadly") == _MOST_LOSSES + 1


def test_a_run_that_gets_on_may_lose_any_number_of_machines(tmp_path):
    class Advancing(Scripted):
        def submit(self, job):
            super().submit(job)
            job.folder.mkdir(exist_ok=True)
            (job.folder / "log.jsonl").write_text(json.dumps({"step": len(self.submitted)}) + "\n")

    job = fake_job(tmp_path / "long", steps=1000)
    executor = Advancing({"long": ["lost"] * (3 * _MOST_LOSSES)})
    outcome = launch([job], executor, view=Lines(), retry=0)
    assert names(outcome.done) == ["long"]
    assert len(executor.submitted) == 3 * _MOST_LOSSES + 1


def test_a_run_that_dies_now_earlier_now_later_gets_no_further(tmp_path):
    class Swaying(Scripted):
        def submit(self, job):
            super().submit(job)
            job.folder.mkdir(exist_ok=True)
            (job.folder / "log.jsonl").write_text(json.dumps({"step": 950 + 50 * (len(self.submitted) % 2)}) + "\n")

    job = fake_job(tmp_path / "deadly", steps=2000)
    executor = Swaying({"deadly": ["lost"] * 99})
    outcome = launch([job], executor, view=Lines(), retry=0)
    assert [failure.job.name for failure in outcome.failed] == ["deadly"]
    assert len(executor.submitted) <= _MOST_LOSSES + 2


def test_no_more_run_at_once_than_there_are_slots(tmp_path):
    view = Lines()
    launch([fake_job(tmp_path / str(index)) for index in range(7)], Scripted(slots=3), view=view)
    assert view.most_running <= 3


def test_a_job_that_another_process_is_at_work_on_is_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr("asrnorm.launch.queue._BUSY_SECONDS", 0.1)
    job, executor = fake_job(tmp_path / "a"), Scripted()
    job.folder.mkdir()
    lock = (job.folder / ".lock").open("ab")
    fcntl.flock(lock, fcntl.LOCK_EX)

    def finish():
        write_result(job.folder / "result.json", result(job.config))
        lock.close()

    timer = threading.Timer(0.5, finish)
    timer.start()
    outcome = launch([job], executor, view=Lines())
    timer.join()
    assert names(outcome.done) == ["a"]
    assert executor.submitted == []


def test_a_signal_stops_all_and_says_what_is_left(tmp_path):
    jobs = [fake_job(tmp_path / name) for name in ("first", "second", "third")]
    executor, view = Scripted({"first": ["last"], "second": ["last"]}), Lines()
    timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGTERM))
    timer.start()
    before = signal.getsignal(signal.SIGTERM)
    outcome = launch(jobs, executor, view=view)
    timer.join()
    assert sorted(names(outcome.left)) == ["first", "second", "third"]
    assert executor.told == [False]
    assert executor.submitted == ["first", "second"]
    assert view.said == ["stopping after checkpoints are written; Ctrl-C again kills at once"]
    assert signal.getsignal(signal.SIGTERM) == before


class FailsWhenTold:
    """Runs until it is told to stop, and fails then, as a run does whose machine is taken away."""

    def __init__(self):
        self.running, self.told = [], False

    def slots(self):
        return 1

    def submit(self, job):
        self.running.append(job)

    def collect(self):
        ended = [Ended(job, "failed", "boom") for job in self.running] if self.told else []
        self.running = [] if self.told else self.running
        return ended

    def stop(self, *, at_once=False):  # noqa: ARG002
        self.told = True

    def close(self):
        pass


def test_what_fails_while_all_is_being_stopped_is_left_and_not_failed(tmp_path):
    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGTERM))
    timer.start()
    view = Lines()
    outcome = launch([fake_job(tmp_path / "a")], FailsWhenTold(), view=view, retry=0)
    timer.join()
    assert ([job.name for job in outcome.left], outcome.failed) == (["a"], ())
    assert not any("failed" in line for line in view.said)


class LosesTheFirst:
    """One slot, whose machine is lost under the first job that comes."""

    def __init__(self):
        self.submitted, self.running = [], []

    def slots(self):
        return 1

    def submit(self, job):
        self.submitted.append(job.name)
        self.running.append(job)

    def collect(self):
        ended, self.running = self.running, []
        if len(self.submitted) == 1:
            return [Ended(job, "lost", "gone") for job in ended]
        for job in ended:
            job.folder.mkdir()
            write_result(job.folder / "result.json", result(job.config))
        return [Ended(job, "done", "") for job in ended]

    def stop(self, *, at_once=False):
        pass

    def close(self):
        pass


def test_a_run_whose_machine_was_lost_goes_on_before_others_begin(tmp_path):
    executor = LosesTheFirst()
    launch([fake_job(tmp_path / name) for name in "abc"], executor, view=Lines())
    assert executor.submitted == ["a", "a", "b", "c"]
