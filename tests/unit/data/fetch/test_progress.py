from asrnorm.data.fetch.progress import show_progress


def test_without_a_terminal_there_are_a_few_plain_lines(capsys):
    with show_progress("file.tar") as report:
        for done in range(0, 1_000_001, 1000):
            report(done, 1_000_000)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 11
    assert lines[:2] == ["fetching file.tar", "file.tar: 0.1 of 1.0 MB (10 %)"]
    assert lines[-1] == "file.tar: 1.0 of 1.0 MB (100 %)"


def test_an_unknown_total_is_one_line(capsys):
    with show_progress("file.tar") as report:
        for done in range(0, 10_000, 100):
            report(done, None)
    assert capsys.readouterr().err.splitlines() == ["fetching file.tar"]


def test_on_a_terminal_there_is_a_bar(capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    with show_progress("file.tar") as report:
        report(500, 1000)
    assert "file.tar" in capsys.readouterr().err
