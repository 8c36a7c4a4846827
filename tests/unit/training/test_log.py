import io

import pytest
from rich.console import Console

from asrnorm.core import progress as module
from asrnorm.core.errors import StorageError
from asrnorm.core.results import read_log_rows
from asrnorm.training.log import RunLog, RunProgress


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


def test_a_folder_in_place_of_the_log_is_one_line(tmp_path):
    (tmp_path / "log.jsonl").mkdir()
    with pytest.raises(StorageError, match=r"log\.jsonl: Is a directory; choose another --out"):
        RunLog(tmp_path / "log.jsonl", None, 0).__enter__()


ROW = {"loss": 0.25, "accuracy": 0.5}


def show(monkeypatch, step=0, terminal=False, shown=True):
    text = io.StringIO()
    console = Console(file=text, force_terminal=terminal, width=150, quiet=not shown)
    monkeypatch.setattr(module, "_SECONDS", 0.0)
    with RunProgress("digits.erm_asr", 10, step, console=console, shown=shown) as progress:
        progress.advance(step + 1)
        progress.advance(step + 2, ROW)
    return text.getvalue()


def test_without_a_terminal_there_are_plain_lines_with_all_that_matters(monkeypatch):
    text = show(monkeypatch)
    assert "\x1b" not in text
    assert text.startswith("digits.erm_asr: step 2 of 10, loss 0.2500, accuracy 0.500, ")
    assert text.endswith(" left\n")
    assert text.count("\n") == 1


def test_a_resumed_run_says_where_it_goes_on(monkeypatch):
    assert show(monkeypatch, step=4).startswith("digits.erm_asr: resuming from step 4 of 10\n")


def test_a_terminal_gets_a_bar(monkeypatch):
    text = show(monkeypatch, terminal=True)
    assert "loss 0.2500, accuracy 0.500" in text
    assert "2/10" in text
    assert "step 2 of 10" not in text


def test_the_other_processes_say_nothing(monkeypatch):
    assert show(monkeypatch, step=4, shown=False) == ""


def test_growing_is_told_too_and_forgotten_with_the_next_step(monkeypatch):
    text = io.StringIO()
    monkeypatch.setattr(module, "_SECONDS", 0.0)
    with RunProgress("digits.ada_asr", 1000, 100, console=Console(file=text, width=150)) as progress:
        progress.grow(0.25)
        progress.advance(101)
    assert text.getvalue().splitlines()[1:] == ["digits.ada_asr: step 100 of 1,000, growing, 25 % done"]


def test_a_terminal_shows_growing_beside_the_bar(monkeypatch):
    text = io.StringIO()
    console = Console(file=text, force_terminal=True, width=150)
    with RunProgress("digits.ada_asr", 1000, 0, console=console) as progress:
        progress.advance(100, ROW)
        progress.grow(0.25)
        progress._bars.refresh()
        assert "growing, 25 %" in text.getvalue()
        text.truncate(0)
        progress.advance(101)
        progress._bars.refresh()
    assert "growing" not in text.getvalue()
    assert "loss 0.2500" in text.getvalue()


def test_growing_is_told_every_ten_seconds_at_most(monkeypatch):
    clock = iter([0.0, 4.0, 11.0, 12.0])
    monkeypatch.setattr(module.time, "monotonic", lambda: next(clock))
    text = io.StringIO()
    progress = RunProgress("digits.ada_asr", 1000, 0, console=Console(file=text, width=150))
    for done in (0.1, 0.2, 0.3):
        progress.grow(done)
    assert text.getvalue() == "digits.ada_asr: step 0 of 1,000, growing, 20 % done\n"
