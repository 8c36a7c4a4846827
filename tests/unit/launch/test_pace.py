import json

import pytest

from asrnorm.launch.queue import Board, last_step, read_position
from asrnorm.launch.view import PaceEstimator
from helpers.fake_asrnorm import result, write_result
from helpers.fake_job import fake_job


def write_log(folder, step):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "log.jsonl").write_text("".join(f"{json.dumps({'step': i})}\n" for i in range(1, step + 1)))


def test_the_last_whole_row_counts(tmp_path):
    log = tmp_path / "log.jsonl"
    log.write_text('{"step": 4}\n{"step": 8, "lambdas": {')
    assert last_step(log) == 4
    log.write_text("".join(json.dumps({"step": step, "lambdas": "x" * 9000}) + "\n" for step in range(20)))
    assert last_step(log) == 19
    log.write_text("x")
    assert last_step(log) == 0


@pytest.mark.parametrize("step", ["null", '"x"', "NaN", "1e400", "[]", "{}"])
def test_a_damaged_row_is_passed_over(tmp_path, step):
    log = tmp_path / "log.jsonl"
    log.write_text(f'{{"step": 4}}\n{{"step": {step}}}\n')
    assert last_step(log) == 4


def test_the_phases_of_a_job(tmp_path):
    job = fake_job(tmp_path / "a", steps=10, analyses=["statistics"])
    assert read_position(job) == ("train", 0)
    write_log(job.folder / "choice", 6)
    assert read_position(job) == ("choose", 6)
    write_log(job.folder, 4)
    assert read_position(job) == ("train", 4)
    (job.folder / "model.safetensors").touch()
    assert read_position(job) == ("evaluate", 10)
    write_result(job.folder / "result.json", result(job.config))
    assert read_position(job) == ("statistics", 10)


def test_rate_and_time_left_follow_the_clock(tmp_path, monkeypatch):
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    running, waiting = fake_job(tmp_path / "a", steps=100), fake_job(tmp_path / "b", steps=50)
    board = Board(slots=2)
    board.running[running] = 90.0
    board.waiting.append(waiting)
    estimator = PaceEstimator()
    write_log(running.folder, 20)
    assert estimator.update(running).rate == 0  # a resumed run: what was done before does not count
    assert estimator.seconds_left(board) is None
    now[0] += 10
    write_log(running.folder, 40)
    pace = estimator.update(running)
    assert (pace.step, pace.steps, pace.rate) == (40, 100, pytest.approx(2.0))
    assert estimator.seconds_left(board) == pytest.approx((60 + 50) / 2 / 2)
    board.busy[fake_job(tmp_path / "c", steps=30)] = 0.0  # what another launch does is waited for too
    assert estimator.seconds_left(board) == pytest.approx((60 + 50 + 30) / 2 / 2)
    estimator.forget([running])
    now[0] += 10
    write_log(running.folder, 30)  # at another try, from an earlier checkpoint
    assert estimator.update(running).rate == 0


def test_slots_that_stand_empty_make_the_rest_no_faster(tmp_path, monkeypatch):
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    job, estimator, board = fake_job(tmp_path / "a", steps=100), PaceEstimator(), Board(slots=8)
    board.running[job] = 0.0
    job.folder.mkdir()
    estimator.update(job)
    now[0] = 10.0
    (job.folder / "log.jsonl").write_text(json.dumps({"step": 20}) + "\n")
    estimator.update(job)
    assert estimator.seconds_left(board) == pytest.approx(80 / 2)


def test_a_pass_that_chooses_is_followed_by_another(tmp_path, monkeypatch):
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    job, estimator, board = fake_job(tmp_path / "a", steps=100), PaceEstimator(), Board(slots=1)
    board.running[job] = 0.0
    for step in (0, 90):
        write_log(job.folder / "choice", step)
        estimator.update(job)
        now[0] += 9
    assert estimator.seconds_left(board) == pytest.approx((10 + 100) / 10)


def test_a_log_that_falls_back_to_a_checkpoint_starts_the_rate_anew(tmp_path, monkeypatch):
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    job, estimator = fake_job(tmp_path / "a", steps=100), PaceEstimator()
    job.folder.mkdir()
    rates = []
    for step in (50, 20, 40):
        (job.folder / "log.jsonl").write_text(json.dumps({"step": step}) + "\n")
        rates.append(estimator.update(job).rate)
        now[0] += 10
    assert rates == [0, 0, 2]


def test_after_the_last_step_a_run_is_being_evaluated(tmp_path):
    job = fake_job(tmp_path / "a", steps=10)
    job.folder.mkdir()
    for step, phase in ((9, "train"), (10, "evaluate")):
        (job.folder / "log.jsonl").write_text(json.dumps({"step": step}) + "\n")
        assert read_position(job) == (phase, step)
