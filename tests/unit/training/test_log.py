import json

import pytest

from asrnorm.errors import StorageError
from asrnorm.results import read_log_rows
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
