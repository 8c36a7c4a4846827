import json

import pytest

from asrnorm.launch.pace import PaceKeeper, last_step, read_position
from asrnorm.launch.queue import Board
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
    keeper = PaceKeeper()
    write_log(running.folder, 20)
    assert keeper.look(running).rate == 0  # a resumed run: what was done before does not count
    assert keeper.seconds_left(board) is None
    now[0] += 10
    write_log(running.folder, 40)
    pace = keeper.look(running)
    assert (pace.step, pace.steps, pace.rate) == (40, 100, pytest.approx(2.0))
    assert keeper.seconds_left(board) == pytest.approx((60 + 50) / 2 / 2)
    board.elsewhere[fake_job(tmp_path / "c", steps=30)] = 0.0  # what another launch does is waited for too
    assert keeper.seconds_left(board) == pytest.approx((60 + 50 + 30) / 2 / 2)
    keeper.forget([running])
    now[0] += 10
    write_log(running.folder, 30)  # at another try, from an earlier checkpoint
    assert keeper.look(running).rate == 0
