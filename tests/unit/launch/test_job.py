import fcntl

import pytest

from asrnorm.core.config import Choice, content_hash, override
from asrnorm.core.results import write_result
from asrnorm.launch import gather_jobs
from asrnorm.studies import Cell, Evaluation, Measure, Row, RunSpec, Study, plan
from asrnorm.studies.archive import format_lines
from helpers.fake_asrnorm import result
from helpers.fake_job import fake_job

BN_TEST = Evaluation(name="bn_test-16", overrides={"norm": "bn_test", "evaluate_batch": 16})


def study(*specs):
    cells = {str(index): Cell(measure=Measure(quantity="accuracy"), runs=(spec,)) for index, spec in enumerate(specs)}
    return Study(
        name="mini", title="", caption="", columns=tuple(cells), rows=(Row(label="all", cells=cells),), seeds=2
    )


def test_one_job_a_folder_with_everything_that_any_cell_wants_of_the_run(tmp_path):
    bn = RunSpec(recipe="digits_mini.erm_bn")
    scored = RunSpec(recipe="digits_mini.erm_bn", evaluation=BN_TEST)
    pictured = RunSpec(recipe="digits_mini.erm_asr", analyses=("statistics",))
    jobs = gather_jobs(plan(study(bn, scored, pictured, pictured), seeds=[0, 1], scale="smoke", runs=tmp_path))
    assert [(job.config.recipe, job.config.seed) for job in jobs] == [
        ("digits_mini.erm_bn", 0),
        ("digits_mini.erm_asr", 0),
        ("digits_mini.erm_bn", 1),
        ("digits_mini.erm_asr", 1),
    ]
    assert [piece.label for piece in jobs[0].missing()] == ["train", "bn_test-16"]
    assert [piece.label for piece in jobs[1].missing()] == ["train", "statistics"]
    assert jobs[0].config.norm == Choice(name="bn")  # not that of the evaluation
    assert jobs[0].folder == tmp_path / jobs[0].name
    assert content_hash(jobs[0].config) in jobs[0].name


def test_the_words_are_those_of_the_command_line(tmp_path):
    job = fake_job(tmp_path, evaluations=[BN_TEST], analyses=["statistics"], device="cpu")
    train, scored, statistics = (piece.words for piece in job.commands())
    assert train == ("train", "--config", f"{tmp_path}/launch.yaml", "--out", str(tmp_path))
    changes = ("--set", "device=cpu", "--set", "norm=bn_test", "--set", "evaluate_batch=16")
    assert scored == ("evaluate", str(tmp_path), "--as", "bn_test-16", "--renew", *changes)
    assert statistics == ("evaluate", str(tmp_path), "--statistics", "--set", "device=cpu")


@pytest.mark.parametrize("value", [True, None, 0.1, 1e-7, [8, 16], "bn_test", 3])
def test_a_value_survives_its_way_over_the_command_line(tmp_path, value):
    job = fake_job(tmp_path, evaluations=[Evaluation(name="a", overrides={"method.x": value})])
    words = job.commands()[1].words
    name, text = words[words.index("--set") + 1].split("=", 1)
    assert override(job.config, {name: text}) == override(job.config, {"method.x": value})


def test_every_command_imports_what_the_study_came_from(tmp_path):
    spec = RunSpec(recipe="digits_mini.erm_bn", evaluation=BN_TEST, analyses=("statistics",))
    (job,) = gather_jobs(plan(study(spec), seeds=[0], scale="smoke", runs=tmp_path), imports=("one", "two"))
    assert len(job.commands()) == 3
    for piece in job.commands():
        assert piece.words[-4:] == ("--import", "one", "--import", "two")


def test_an_evaluation_under_another_config_is_not_taken_for_this_one(tmp_path):
    job = fake_job(tmp_path, evaluations=[BN_TEST])
    write_result(tmp_path / "result.json", result(job.config))
    (tmp_path / "evaluations").mkdir()
    write_result(tmp_path / "evaluations" / "bn_test-16.json", result(override(job.config, {"norm": "bn_test"})))
    assert [piece.label for piece in job.missing()] == ["bn_test-16"]
    write_result(tmp_path / "evaluations" / "bn_test-16.json", result(override(job.config, BN_TEST.overrides)))
    assert job.missing() == ()


def test_a_divergence_is_an_end_only_where_it_may_be(tmp_path):
    (tmp_path / "divergence.json").write_text("{}")
    assert fake_job(tmp_path, may_diverge=True).missing() == ()
    assert [piece.label for piece in fake_job(tmp_path).missing()] == ["train"]
    (tmp_path / "result.json").touch()
    assert not fake_job(tmp_path, may_diverge=True).has_diverged()


def test_a_run_is_busy_while_a_process_holds_its_lock(tmp_path):
    job = fake_job(tmp_path)
    assert not job.is_busy()
    with (tmp_path / ".lock").open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert job.is_busy()
        assert job.is_busy()
    assert not job.is_busy()


def test_kept_results_leave_nothing_to_do_unless_a_piece_of_the_run_is_not_kept(tmp_path):
    scored = RunSpec(recipe="digits_mini.erm_bn", evaluation=BN_TEST)
    kept = tmp_path / "results"
    kept.mkdir()

    def job_of(*configs):
        (kept / "mini.jsonl").write_text(format_lines([result(config) for config in configs]))
        (job,) = gather_jobs(plan(study(scored), seeds=[0], scale="smoke", runs=tmp_path / "runs", kept=kept))
        return job

    plain, again = scored.config(0, "smoke"), scored.scored_config(0, "smoke")
    assert job_of(plain, again).missing() == ()
    assert job_of(plain, again).is_kept
    assert [piece.label for piece in job_of(plain).missing()] == ["train", "bn_test-16"]
    assert not job_of(plain).is_kept
    (tmp_path / "runs" / "mine").mkdir(parents=True)
    write_result(tmp_path / "runs" / "mine" / "result.json", result(plain))
    assert job_of(again).missing() == ()
    assert not job_of(again).is_kept


def test_a_run_of_two_studies_is_one_job_and_kept_only_where_both_have_what_they_need(tmp_path):
    plain, scored = RunSpec(recipe="digits_mini.erm_bn"), RunSpec(recipe="digits_mini.erm_bn", evaluation=BN_TEST)
    kept = tmp_path / "results"
    kept.mkdir()

    def job_of(*configs):
        (kept / "mini.jsonl").write_text(format_lines([result(config) for config in configs]))
        where = {"seeds": [0], "scale": "smoke", "runs": tmp_path / "runs", "kept": kept}
        (job,) = gather_jobs(*(plan(study(spec), **where) for spec in (plain, scored, scored)))
        return job

    run, again = scored.config(0, "smoke"), scored.scored_config(0, "smoke")
    assert [piece.label for piece in job_of().missing()] == ["train", "bn_test-16"]
    assert [piece.label for piece in job_of(run).missing()] == ["train", "bn_test-16"]
    assert job_of(run, again).missing() == ()
    (tmp_path / "runs" / "mine").mkdir(parents=True)
    write_result(tmp_path / "runs" / "mine" / "result.json", result(run))
    assert job_of(again).missing() == ()  # the run is there, and its evaluation kept
    assert [piece.label for piece in job_of().missing()] == ["bn_test-16"]


@pytest.mark.parametrize("first", [True, False])
def test_a_run_that_may_diverge_for_one_study_may_for_all(tmp_path, first):
    def study(may_diverge):
        spec = RunSpec(recipe="digits_mini.erm_bn", may_diverge=may_diverge)
        row = Row(label="all", cells={"0": Cell(measure=Measure(quantity="accuracy"), runs=(spec,))})
        return Study(name="mini", title="", caption="", columns=("0",), rows=(row,), seeds=1)

    plans = [plan(study(one), seeds=[0], scale="smoke", runs=tmp_path) for one in (first, not first)]
    (job,) = gather_jobs(*plans)
    assert job.may_diverge


def test_another_launch_that_looks_whether_a_run_is_busy_does_not_make_it_so(tmp_path):
    job = fake_job(tmp_path)
    (tmp_path / ".lock").touch()
    with (tmp_path / ".lock").open("rb") as looking:
        fcntl.flock(looking, fcntl.LOCK_SH)
        assert not job.is_busy()
