import json
import re
import subprocess
import sys

import pytest

from asrnorm.cli.main import main
from asrnorm.reporting.folder import DASHED
from asrnorm.studies import get_study
from helpers import made_up_run
from helpers.made_up_run import make_up_runs


@pytest.fixture
def place(tmp_path, monkeypatch):
    make_up_runs(get_study("table3"), tmp_path / "runs", seeds=[0, 1], skip=lambda s, seed: s.recipe == "pacs.erm_bn")
    for name in ("a", "b"):
        (tmp_path / name / "runs").mkdir(parents=True)
    (tmp_path / "afile").write_text("my own")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "140")
    return tmp_path


def test_a_study_is_collected_printed_and_written(place, capsys):
    assert main(["report", "table3", "--scale", "smoke", "--seeds", "2"]) == 0
    shown = capsys.readouterr()
    assert "RSC + ASR-Norm" in shown.out
    assert "missing" in shown.out
    assert "(76.7)" in shown.out
    assert "report: reports/table3-smoke/table3.html" in shown.out
    assert "warning: some cells have fewer than 3 seeds" in shown.err
    written = {path.name for path in (place / "reports" / "table3-smoke").iterdir()}
    assert {"table3.md", "table3.csv", "table3.tex", "table3-table.tex", "table3.html"} <= written


def test_a_folder_of_runs_is_reported_too(place, capsys):
    assert main(["report", "runs", "--out", "there"]) == 0
    assert "pacs.rsc_asr from photo" in capsys.readouterr().out
    assert (place / "there" / "report.html").is_file()


def test_what_a_folder_leaves_out_and_its_scale_are_told(place, capsys):
    make_up_runs(get_study("table3"), place / "runs" / "demo", seeds=[0])
    stopped = sorted((place / "runs").glob("pacs.rsc_asr--*"))[0]
    (stopped / "result.json").unlink()
    assert main(["report", "runs"]) == 0
    said = capsys.readouterr().err
    assert f"warning: 1 run is not done and left out: {stopped.name}; asrnorm train resumes it" in said
    assert "runs lie deeper, in runs/demo: asrnorm report runs/demo shows them" in said
    assert "warning: smoke scale only shows that everything runs" in said


def test_domains_that_a_row_does_not_have_are_a_dash_with_a_legend(place, capsys):
    assert main(["report", "table3", "--scale", "smoke", "--seeds", "2"]) == 0
    assert DASHED not in capsys.readouterr().out
    make_up_runs(get_study("table1"), place / "runs", seeds=[0], skip=lambda spec, seed: "rsda_asr" not in spec.recipe)
    assert main(["report", "runs"]) == 0
    shown = capsys.readouterr().out
    (row,) = [line for line in shown.splitlines() if line.startswith("digits.rsda_asr")]
    assert row.split().count("-") == len(made_up_run.DOMAINS["pacs"])
    assert DASHED in shown
    assert "no data" not in shown


def test_several_are_kept_and_reported_in_folders_of_their_own(place, capsys):
    words = ["table3", "table8", "--scale", "smoke", "--seeds", "2"]
    assert main(["report", *words, "--keep", "--out", "there"]) == 0
    shown = capsys.readouterr()
    assert [line for line in shown.out.splitlines() if line.startswith("report: ")] == [
        "report: there/table3/table3.html",
        "report: there/table8/table8.html",
    ]
    assert (place / "results" / "table3.jsonl").is_file()
    assert (place / "there" / "table8" / "table8.csv").is_file()
    assert main(["report", *words, "--json", "-"]) == 0
    assert [said["study"] for said in json.loads(capsys.readouterr().out)] == ["table3", "table8"]


def test_a_wrong_name_among_several_leaves_nothing_written(place, capsys):
    assert main(["report", "table3", "tabel8", "--scale", "smoke", "--keep"]) == 2
    assert "'tabel8'" in capsys.readouterr().err
    assert not (place / "results").exists()
    assert not (place / "reports").exists()


def test_json_has_every_cell_and_file(place, capsys):
    assert main(["report", "table3", "--scale", "smoke", "--seeds", "2", "--json", "-"]) == 0
    said = json.loads(capsys.readouterr().out)
    cells = {(cell["row"], cell["column"]): cell for cell in said["cells"]}
    assert cells["RSC", "Photo"]["n"] == 2
    assert cells["ERM", "Photo"] | {"paper": 42.2, "state": "missing", "ours": None} == cells["ERM", "Photo"]
    assert said["files"][-1].endswith("table3.html")
    assert said["missing"] == 8


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["tabel3"], "did you mean 'table3'"),
        (["there/not"], "no such folder"),
        (["table3", "--scale", "long"], "unknown scale 'long'"),
        (["table3", "--scale", "long", "--keep"], "unknown scale 'long'"),
        (["runs", "--keep"], "--keep is for studies, and 'runs' is none"),
        (["table3", "--renew"], "give --keep too"),
        (["runs", "--scale", "smoke"], "--scale, --seeds and --runs are of studies, and 'runs' is a folder of runs"),
        (["table3", "--runs", "nix"], "--runs nix: no such folder"),
        (["table3", "--out", "afile"], "--out afile: a file; give a folder"),
        (["a/runs", "b/runs", "--out", "there"], "two of these would be reported in one folder"),
    ],
)
def test_wrong_calls_are_one_line_and_status_2(words, line, place, capsys):
    assert main(["report", *words]) == 2
    said = capsys.readouterr().err
    assert line in said
    assert said.count("\n") == 1


def test_a_folder_without_runs_fails(place, capsys):
    (place / "empty").mkdir()
    assert main(["report", "empty"]) == 1
    assert "no finished run" in capsys.readouterr().err


def test_reports_open_without_torch():
    code = "import sys, asrnorm.reporting.study, asrnorm.reporting.folder; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_what_is_done_is_kept_and_then_stands_for_the_runs(place, capsys):
    words = ["report", "table3", "--scale", "smoke", "--seeds", "2", "--keep"]
    assert main(words) == 0
    assert "results/table3.jsonl: 48 results added, 0 replaced, 0 of runs kept before" in capsys.readouterr().err
    (place / "runs").rename(place / "gone")
    assert main(["report", "table3", "--scale", "smoke", "--seeds", "2", "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["missing"] == 8
    (place / "results" / "table3.jsonl").write_text("{")
    assert main([*words, "--runs", "gone"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "results/table3.jsonl, line 1: not a line of JSON" in line


def test_other_numbers_are_told_and_left(place, capsys):
    words = ["report", "table3", "--scale", "smoke", "--seeds", "2", "--keep"]
    main(words)
    path = place / "results" / "table3.jsonl"
    path.write_text(path.read_text().replace('"steps": 6', '"steps": 7', 1))
    before = path.read_text()
    capsys.readouterr()
    assert main(words) == 0
    assert "warning: 1 were kept with other numbers and stay as they were" in capsys.readouterr().err
    assert path.read_text() == before


def test_a_run_made_once_more_with_the_same_numbers_is_no_warning(place, capsys):
    words = ["report", "table3", "--scale", "smoke", "--seeds", "2", "--keep"]
    main(words)
    path = place / "results" / "table3.jsonl"
    path.write_text(re.sub(r'"wall_seconds": [^,]+', '"wall_seconds": 7.5', path.read_text(), count=1))
    capsys.readouterr()
    assert main(words) == 0
    told = capsys.readouterr().err
    assert "1 made once more with the same numbers; the kept ones stay" in told
    assert "other numbers" not in told


def wide_folder(tmp_path, monkeypatch):
    """A folder of runs with more domains than 80 columns hold."""
    names = tuple(f"field_trial_{number}" for number in range(12))
    monkeypatch.setitem(made_up_run.DOMAINS, "pacs", names)
    make_up_runs(get_study("table3"), tmp_path / "runs", seeds=[0, 1])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    return names


def test_in_a_pipe_nothing_is_cut_or_folded(tmp_path, monkeypatch, capsys):
    names = wide_folder(tmp_path, monkeypatch)
    assert main(["report", "runs"]) == 0
    lines = capsys.readouterr().out.splitlines()
    (heading,) = [line for line in lines if names[0] in line]
    assert all(name in heading for name in names)
    (row,) = [line for line in lines if "pacs.rsc_asr from photo" in line]
    assert row.count("±") == len(names) + 2
    assert "…" not in "".join(lines)


def test_on_a_narrow_terminal_words_stay_whole(tmp_path, monkeypatch, capsys):
    names = wide_folder(tmp_path, monkeypatch)
    assert main(["report", "runs"]) == 0
    numbers = set(re.findall(r"\d+\.\d+", capsys.readouterr().out))
    monkeypatch.setenv("FORCE_COLOR", "1")  # which rich takes for a terminal
    monkeypatch.setenv("TERM", "dumb")
    assert main(["report", "runs"]) == 0
    shown = capsys.readouterr().out
    words = re.sub(r"\x1b\[[0-9;]*m", "", shown).split()
    assert {*numbers, *names, "pacs.rsc_asr"} <= set(words)
    assert "…" not in shown


def test_brackets_in_a_name_are_shown(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(made_up_run.DOMAINS, "pacs", ("domain [bold]",))
    make_up_runs(get_study("table3"), tmp_path / "runs", seeds=[0])
    monkeypatch.chdir(tmp_path)
    assert main(["report", "runs"]) == 0
    assert "domain [bold]" in capsys.readouterr().out
