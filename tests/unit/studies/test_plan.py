"""Plans: every run once, with how far it has come, and before whatever needs it."""

from dataclasses import replace

import pytest

from asrnorm.core.config import content_hash, run_name
from asrnorm.launch.jobs import gather_jobs
from asrnorm.studies import ANALYSIS_FILES, Cell, Evaluation, Measure, Row, RunSpec, Study, get_study, plan
from asrnorm.studies.archive import format_lines
from helpers.study_case import make_result, put_result

ACCURACY = Measure(quantity="accuracy")
BN = RunSpec(recipe="digits.erm_bn")
BN_TEST = replace(BN, evaluation=Evaluation(name="bn_test-16", overrides={"norm": "bn_test", "evaluate_batch": 16}))
ASR = RunSpec(recipe="digits.erm_asr", analyses=("statistics",))


def study_of(*specs):
    rows = tuple(Row(label=str(i), cells={"A": Cell(measure=ACCURACY, runs=(s,))}) for i, s in enumerate(specs))
    return Study(name="x", title="x", caption="x", columns=("A",), rows=rows)


def tasks_of(runs, *specs, seeds=(0,), scale="smoke"):
    return plan(study_of(*specs), seeds=seeds, scale=scale, runs=runs).tasks


def test_a_run_that_many_cells_share_is_one_task(tmp_path):
    tasks = tasks_of(tmp_path, BN, BN, BN_TEST, BN_TEST, seeds=(0, 1))
    assert [(task.kind, task.seed) for task in tasks] == [("run", 0), ("run", 1), ("evaluation", 0), ("evaluation", 1)]
    assert len({task.key for task in tasks}) == len(tasks)


def test_names_of_a_recipe_do_not_make_it_another_run(tmp_path):
    same = RunSpec(recipe="digits.erm_bn", overrides={"log_every": 7})
    assert len(tasks_of(tmp_path, BN, same)) == 1
    assert len(tasks_of(tmp_path, BN, RunSpec(recipe="digits.erm_bn", overrides={"optim.lr": 0.5}))) == 2


def test_what_depends_on_a_run_names_it_and_comes_after(tmp_path):
    tasks = tasks_of(tmp_path, BN_TEST, ASR)
    runs = {task.key: task for task in tasks if task.kind == "run"}
    evaluation, analysis = (task for task in tasks if task.kind != "run")
    assert evaluation.needs in runs
    assert (evaluation.config.norm.name, runs[evaluation.needs].config.norm.name) == ("bn_test", "bn")
    assert evaluation.output == runs[evaluation.needs].folder / "evaluations" / "bn_test-16.json"
    assert (analysis.analysis, analysis.output.name) == ("statistics", "statistics.npz")
    assert all(task.spec.evaluation is None and not task.spec.analyses for task in runs.values())
    kinds = [task.kind for task in tasks]
    assert kinds == sorted(kinds, key=lambda kind: kind != "run")


def test_states_come_from_folders_alone(tmp_path):
    (task,) = tasks_of(tmp_path, BN)
    assert (task.state, task.folder) == ("pending", tmp_path / run_name(BN.config(0, "smoke")))
    task.folder.mkdir()
    assert tasks_of(tmp_path, BN)[0].state == "partial"
    put_result(tmp_path, BN, 0, {"usps": 0.5}, scale="smoke")
    whole = plan(study_of(BN), seeds=[0, 1], scale="smoke", runs=tmp_path)
    assert [task.state for task in whole.tasks] == ["done", "pending"]
    assert tasks_of(tmp_path, BN, scale="short")[0].state == "pending"


def test_a_result_that_cannot_be_read_is_not_done(tmp_path):
    folder = tmp_path / run_name(BN.config(0, "smoke"))
    folder.mkdir()
    (folder / "result.json").touch()
    assert [task.state for task in tasks_of(tmp_path, BN)] == ["partial"]
    (job,) = gather_jobs(plan(study_of(BN), seeds=[0], scale="smoke", runs=tmp_path))
    assert [piece.label for piece in job.missing()] == ["train"]


def test_a_finished_run_is_found_under_another_folder_name(tmp_path):
    put_result(tmp_path, BN, 0, {"usps": 0.5}, scale="smoke").rename(tmp_path / "mine")
    (task,) = tasks_of(tmp_path, BN)
    assert (task.state, task.folder) == ("done", tmp_path / "mine")


def test_an_evaluation_is_done_when_its_file_is_of_its_config(tmp_path):
    folder = put_result(tmp_path, BN, 0, {"usps": 0.5}, scale="smoke")
    assert tasks_of(tmp_path, BN_TEST)[1].state == "pending"
    stale = replace(BN, evaluation=replace(BN_TEST.evaluation, overrides={"norm": "bn_test", "evaluate_batch": 4}))
    put_result(tmp_path, stale, 0, {"usps": 0.6}, scale="smoke")
    assert tasks_of(tmp_path, BN_TEST)[1].state == "pending"
    put_result(tmp_path, BN_TEST, 0, {"usps": 0.6}, scale="smoke")
    assert [task.state for task in tasks_of(tmp_path, BN_TEST)] == ["done", "done"]
    (folder / "result.json").unlink()  # started over: what was made of the old run must be made again
    assert [task.state for task in tasks_of(tmp_path, BN_TEST)] == ["partial", "pending"]


def test_an_analysis_is_done_when_its_file_is_there(tmp_path):
    folder = put_result(tmp_path, ASR, 0, {"usps": 0.5}, scale="smoke")
    assert tasks_of(tmp_path, ASR)[1].state == "pending"
    file = folder / ANALYSIS_FILES["statistics"]
    file.parent.mkdir()
    file.touch()
    assert tasks_of(tmp_path, ASR)[1].state == "done"


@pytest.mark.parametrize(("may_diverge", "state"), [(True, "done"), (False, "partial")])
def test_a_lost_loss_is_an_outcome_where_the_study_says_so(tmp_path, may_diverge, state):
    spec = replace(BN, may_diverge=may_diverge)
    folder = tmp_path / run_name(spec.config(0, "smoke"))
    folder.mkdir()
    (folder / "divergence.json").write_text('{"schema": 1, "message": "step 3: the loss is nan"}')
    assert tasks_of(tmp_path, spec)[0].state == state


def test_studies_share_their_runs(tmp_path):
    def keys(name):
        tasks = plan(get_study(name), seeds=[0], scale="paper", runs=tmp_path).tasks
        return {task.key for task in tasks if task.kind == "run"}

    assert keys("table6") == keys("table7") <= keys("table5")
    assert keys("table6") <= keys("fig-corruptions") | keys("fig-levels")
    assert len(keys("table5")) == 6


@pytest.fixture
def kept(tmp_path):
    """Write results of these specs at seed 0 into a folder of kept results."""

    def write(*specs):
        folder = tmp_path / "results"
        folder.mkdir(exist_ok=True)
        results = [make_result(spec, 0, {"usps": 0.5}, scale="smoke") for spec in specs]
        (folder / "x.jsonl").write_text(format_lines(results))
        return folder

    return write


def states(runs, kept, *specs, figures=()):
    study = replace(study_of(*specs), figures=figures)
    return [task.state for task in plan(study, seeds=[0], scale="smoke", runs=runs, kept=kept).tasks]


def test_a_kept_result_counts_as_done(tmp_path, kept):
    folder = kept(BN)
    whole = plan(study_of(BN), seeds=[0, 1], scale="smoke", runs=tmp_path / "runs", kept=folder)
    assert [task.state for task in whole.tasks] == ["kept", "pending"]
    assert [task.seed for task in whole.todo] == [1]
    (task,) = plan(study_of(BN), seeds=[0], scale="short", runs=tmp_path, kept=folder).tasks
    assert task.state == "pending"


def test_a_begun_folder_does_not_stand_in_the_way_of_a_kept_result_but_a_done_one_goes_first(tmp_path, kept):
    folder = kept(BN)
    (tmp_path / "runs" / run_name(BN.config(0, "smoke"))).mkdir(parents=True)
    assert states(tmp_path / "runs", folder, BN) == ["kept"]
    put_result(tmp_path / "runs", BN, 0, {"usps": 0.5}, scale="smoke")
    assert states(tmp_path / "runs", folder, BN) == ["done"]


def test_a_run_is_trained_again_for_an_evaluation_that_is_not_kept(tmp_path, kept):
    assert states(tmp_path / "runs", kept(BN), BN, BN_TEST) == ["pending", "pending"]
    assert states(tmp_path / "runs", kept(BN, BN_TEST), BN, BN_TEST) == ["kept", "kept"]
    # The run is here again: an evaluation that is kept need not be made of it.
    put_result(tmp_path / "runs", BN, 0, {"usps": 0.5}, scale="smoke")
    assert states(tmp_path / "runs", kept(BN_TEST), BN, BN_TEST) == ["done", "kept"]


def test_a_run_is_trained_again_for_an_analysis_that_is_not_kept(tmp_path, kept):
    folder = kept(ASR)
    assert states(tmp_path / "runs", folder, ASR) == ["pending", "pending"]
    file = folder / "details" / run_name(ASR.config(0, "smoke")) / ANALYSIS_FILES["statistics"]
    file.parent.mkdir(parents=True)
    file.touch()
    assert states(tmp_path / "runs", folder, ASR) == ["kept", "kept"]


@pytest.mark.parametrize("figure", ["lambdas", "residual"])
def test_a_run_is_trained_again_for_curves_that_are_not_kept(tmp_path, kept, figure):
    folder = kept(BN)
    assert states(tmp_path / "runs", folder, BN, figures=("levels",)) == ["kept"]
    assert states(tmp_path / "runs", folder, BN, figures=(figure,)) == ["pending"]
    file = folder / "details" / run_name(BN.config(0, "smoke")) / "curves.csv"
    file.parent.mkdir(parents=True)
    file.touch()
    assert states(tmp_path / "runs", folder, BN, figures=(figure,)) == ["kept"]


def test_a_kept_line_under_a_false_seed_is_not_taken(tmp_path, kept):
    folder = kept(BN)
    path = folder / "x.jsonl"
    path.write_text(path.read_text().replace('"seed": 0', '"seed": 1'))
    assert content_hash(BN.config(0, "smoke")) in path.read_text()
    assert states(tmp_path / "runs", folder, BN) == ["pending"]
