import json
import threading

import pytest

from asrnorm.core.errors import StorageError
from asrnorm.core.results import read_log_rows
from asrnorm.training.log import RunLog


def test_rows_after_the_step_and_half_a_line_are_cut(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_text('{"step": 1, "loss": 0.1}\n{"step": 2}\n{"step": 3}\n{"ste')
    with RunLog(path, None, 2) as log:
        log.write({"step": 3, "loss": 0.2})
        log.sync()
        assert [row["step"] for row in read_log_rows(path)] == [1, 2, 3]
        log.cut(1)
        log.write({"step": 2})
    assert path.read_text() == '{"step": 1, "loss": 0.1}\n{"step": 2}\n'


def test_numbers_come_back_to_the_last_digit(tmp_path):
    loss = 0.1 + 0.2
    with RunLog(tmp_path / "log.jsonl", None, 0) as log:
        log.write({"step": 1, "loss": loss})
    with RunLog(tmp_path / "log.jsonl", None, 1):
        pass
    assert read_log_rows(tmp_path / "log.jsonl") == [{"step": 1, "loss": loss}]


def test_other_processes_write_nothing(tmp_path):
    with RunLog(None, None, 0) as log:
        log.write({"step": 1})
        log.sync()
        log.cut(0)
    assert not list(tmp_path.iterdir())


def test_a_place_that_cannot_be_written_is_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError), RunLog(tmp_path / "file" / "log.jsonl", None, 0):
        pass


def test_tensorboard_is_told_the_numbers_by_path(tmp_path, monkeypatch):
    from asrnorm.training import log as module

    told = []

    class Writer:
        def add_scalar(self, name, value, step):
            told.append((name, value, step))

        def close(self):
            told.append("closed")

    monkeypatch.setattr(module, "_open_writer", lambda folder, step: Writer())
    with RunLog(tmp_path / "log.jsonl", tmp_path / "events", 0) as log:
        log.write({"step": 4, "loss": 0.5, "lambdas": {"norm": {"mu": 0.1}}})
    assert told == [("loss", 0.5, 4), ("lambdas/norm/mu", 0.1, 4), "closed"]
    assert json.loads((tmp_path / "log.jsonl").read_text())["step"] == 4


def test_without_tensorboard_one_line_says_so(tmp_path, monkeypatch, caplog):
    import sys

    from asrnorm.training import log as module

    module._say_absent.cache_clear()
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    for name in ("a", "b"):
        with RunLog(tmp_path / name, tmp_path / "events", 0) as log:
            log.write({"step": 1})
    assert [record.getMessage() for record in caplog.records] == [
        "no TensorBoard events are written; pip install tensorboard for them"
    ]


class FullDisk:
    """A writer of events whose disk is full from the second number on."""

    def __init__(self):
        self.told = 0

    def add_scalar(self, *_):
        self.told += 1
        if self.told > 1:
            raise OSError(28, "No space left on device")

    def close(self):
        raise OSError(28, "No space left on device")


def test_events_that_cannot_be_written_are_done_without(tmp_path, monkeypatch, caplog):
    from asrnorm.training import log as module

    writer = FullDisk()
    monkeypatch.setattr(module, "_open_writer", lambda folder, step: writer)
    with RunLog(tmp_path / "log.jsonl", tmp_path / "events", 0) as log:
        for step in range(1, 6):
            log.write({"step": step, "loss": 0.5})
    assert [row["step"] for row in read_log_rows(tmp_path / "log.jsonl")] == [1, 2, 3, 4, 5]
    assert writer.told == 2
    (said,) = (record.getMessage() for record in caplog.records)
    assert said.endswith("events: No space left on device; no more TensorBoard events are written")


def test_a_file_in_place_of_the_events_is_one_line_and_the_log_goes_on(tmp_path, caplog):
    (tmp_path / "events").write_text("mine")
    with RunLog(tmp_path / "log.jsonl", tmp_path / "events", 0) as log:
        log.write({"step": 1, "loss": 0.5})
    assert len(read_log_rows(tmp_path / "log.jsonl")) == 1
    assert "no more TensorBoard events are written" in caplog.text


class EventsThread(threading.Thread):
    __module__ = "tensorboard.summary.writer"


@pytest.mark.parametrize(
    ("kind", "error", "shown"),
    [
        (EventsThread, OSError(28, "full"), False),
        (EventsThread, ValueError("bug"), True),
        (threading.Thread, OSError(5, "x"), True),
    ],
)
def test_a_disk_that_fails_the_thread_of_the_events_shows_no_traceback(tmp_path, monkeypatch, kind, error, shown):
    heard = []
    monkeypatch.setattr(threading, "excepthook", heard.append)
    before = threading.excepthook

    def fail():
        raise error

    with RunLog(tmp_path / "log.jsonl", tmp_path / "events", 0):
        thread = kind(target=fail)
        thread.start()
        thread.join()
    assert bool(heard) is shown
    assert threading.excepthook is before


def test_a_folder_in_place_of_the_log_is_one_line(tmp_path):
    (tmp_path / "log.jsonl").mkdir()
    with pytest.raises(StorageError, match=r"log\.jsonl: Is a directory; choose another --out"):
        RunLog(tmp_path / "log.jsonl", None, 0).__enter__()
