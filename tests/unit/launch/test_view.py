import io
import json
import time

from rich.console import Console

from asrnorm.launch import Failure
from asrnorm.launch.queue import Board
from asrnorm.launch.view import LaunchView, describe
from helpers.fake_job import fake_job


def make_board(folder, names=("running",)):
    board = Board(slots=2)
    for name in names:
        job = fake_job(folder / name, steps=1000)
        job.folder.mkdir()
        (job.folder / "log.jsonl").write_text(json.dumps({"step": 250}) + "\n")
        board.running[job] = time.monotonic() - 65
    board.done.append(fake_job(folder / "done"))
    board.failed.append(Failure(fake_job(folder / "bad"), "the disk [is] full"))
    board.waiting.append(fake_job(folder / "waiting"))
    return board


def show(board, *, terminal):
    console = Console(file=io.StringIO(), force_terminal=terminal, width=100, highlight=False)
    with LaunchView(console) as view:
        view.say("bad: the disk [is] full; trying again")
        view.show(board)
    return console.file.getvalue()


def test_a_terminal_shows_every_run_with_its_step(tmp_path):
    text = show(make_board(tmp_path), terminal=True)
    assert "1 done, 1 running, 1 failed, 1 waiting" in text
    assert "running" in text
    assert "250" in text
    assert "1,000" in text
    assert "0:01:05" in text
    assert "bad: the disk [is] full" in text


def test_many_runs_do_not_flood_the_terminal(tmp_path):
    text = show(make_board(tmp_path, [f"r{index}" for index in range(30)]), terminal=True)
    assert "... and 10 more" in text


def test_without_a_terminal_there_are_plain_lines_and_the_state_now_and_then(tmp_path, monkeypatch):
    board = make_board(tmp_path)
    assert show(board, terminal=False) == "bad: the disk [is] full; trying again\n"
    monkeypatch.setattr("asrnorm.launch.view._LINE_SECONDS", 0.0)
    text = show(board, terminal=False)
    assert "1 done, 1 running, 1 failed, 1 waiting\n  running: train, step 250 of 1,000\n" in text
    assert "\x1b" not in text


def test_the_line_says_what_is_elsewhere_and_that_it_stops(tmp_path):
    board = Board()
    assert describe(board, 3700).endswith("about 1:01:40 left")
    board.busy[fake_job(tmp_path)] = 0.0
    board.stopping = True
    assert describe(board, 5).endswith("0 waiting, 1 running in another process, stopping")


def test_of_many_failures_the_newest_are_shown(tmp_path):
    board = Board()
    board.failed += [Failure(fake_job(tmp_path / f"bad{index}"), "boom") for index in range(5)]
    console = Console(file=io.StringIO(), force_terminal=True, width=100, highlight=False)
    with LaunchView(console) as view:
        view.show(board)
    assert [name for name in (f"bad{index}" for index in range(5)) if name in console.file.getvalue()] == [
        "bad2",
        "bad3",
        "bad4",
    ]


def test_a_slow_run_has_a_rate_with_more_places(tmp_path, monkeypatch):
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    job, board = fake_job(tmp_path / "slow", steps=1000), Board()
    job.folder.mkdir()
    board.running[job] = 100.0
    console = Console(file=io.StringIO(), force_terminal=False, width=100, highlight=False)
    with LaunchView(console) as view:
        for step, seconds in ((10, 1000.0), (35, 0.0)):
            (job.folder / "log.jsonl").write_text(json.dumps({"step": step}) + "\n")
            view.show(board)
            now[0] += seconds
    assert "slow: train, step 35 of 1,000, 0.025 steps/s" in console.file.getvalue()


def test_the_time_that_a_run_waits_for_another_try_is_no_part_of_its_rate(tmp_path, monkeypatch):
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    job, board = fake_job(tmp_path / "again", steps=1000), Board()
    job.folder.mkdir()
    console = Console(file=io.StringIO(), force_terminal=False, width=100, highlight=False)
    with LaunchView(console) as view:
        for place, step, seconds in (
            ("running", 10, 10),
            ("waiting", 10, 970),
            ("running", 10, 100),
            ("running", 210, 0),
        ):
            board.running = {job: now[0]} if place == "running" else {}
            board.waiting.clear()
            board.waiting.extend([job] if place == "waiting" else [])
            (job.folder / "log.jsonl").write_text(json.dumps({"step": step}) + "\n")
            view.show(board)
            now[0] += seconds
    assert "again: train, step 210 of 1,000, 2.0 steps/s" in console.file.getvalue()
