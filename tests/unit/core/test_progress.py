import io

from rich.console import Console

from asrnorm.core import progress
from asrnorm.core.progress import PartProgress


def test_without_a_terminal_there_are_lines_with_rate_and_time_left(monkeypatch):
    clock = iter(range(0, 1000, 20))
    monkeypatch.setattr(progress.time, "monotonic", lambda: float(next(clock)))
    text = io.StringIO()
    with PartProgress(500, "passes", console=Console(file=text, width=200)) as bar:
        bar.skip(300)  # known from an earlier try
        bar.begin("corruption/fog/3")
        bar.advance(100)
    assert text.getvalue() == "corruption/fog/3: 50 % done, 5 passes/s, 20 s left\n"


def test_lines_come_every_ten_seconds_at_most(monkeypatch):
    clock = iter([0.0, 4.0, 11.0, 12.0, 22.0])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock))
    text = io.StringIO()
    with PartProgress(4, "images", console=Console(file=text, width=200)) as bar:
        bar.begin("fog")
        for _ in range(4):
            bar.advance(1)
    assert [line.split(",")[0] for line in text.getvalue().splitlines()] == ["fog: 50 % done", "fog: 100 % done"]


def test_a_terminal_gets_a_bar():
    text = io.StringIO()
    with PartProgress(10, "images", console=Console(file=text, force_terminal=True, width=120)) as bar:
        bar.begin("clean")
        bar.advance(10)
    assert "clean" in text.getvalue()
    assert "100%" in text.getvalue()


def test_not_shown_says_nothing(capsys):
    with PartProgress(10, "images", shown=False) as bar:
        bar.advance(10)
        bar.say("a line")
    assert capsys.readouterr() == ("", "")


def test_durations_are_told_in_two_units():
    assert [progress.describe_seconds(value) for value in (4000, 65, 3)] == ["1 h 6 min", "1 min 5 s", "3 s"]
