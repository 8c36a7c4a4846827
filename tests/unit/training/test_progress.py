import io

from rich.console import Console

from asrnorm.training import progress as module
from asrnorm.training.progress import RunProgress

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
    assert show(monkeypatch, step=4).startswith("digits.erm_asr: going on from step 4 of 10\n")


def test_a_terminal_gets_a_bar(monkeypatch):
    text = show(monkeypatch, terminal=True)
    assert "loss 0.2500, accuracy 0.500" in text
    assert "2/10" in text
    assert "step 2 of 10" not in text


def test_the_other_processes_say_nothing(monkeypatch):
    assert show(monkeypatch, step=4, shown=False) == ""
