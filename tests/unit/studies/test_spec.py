"""Studies: all that the public contract names are there, and every run behind a cell can be made."""

from dataclasses import replace
from typing import get_args

import pytest

from asrnorm.core.config import Scale, content_hash
from asrnorm.core.errors import UnknownNameError
from asrnorm.recipes import RECIPES, recipe
from asrnorm.studies import ANALYSIS_FILES, get_study, list_studies
from asrnorm.studies.plan import iterate_specs
from asrnorm.studies.spec import STUDIES, Evaluation, RunSpec
from asrnorm.training.assembly import check_config

PUBLIC = [
    *(f"table{number}" for number in range(1, 11)),
    *(f"fig-{name}" for name in ("corruptions", "lambda-cifar", "lambda-pacs", "levels", "samples", "tsne")),
    "ablation-residual",
    "cifar-calibration",
    "cifar-erm",
    "cifar-reading",
    "digits-protocol",
    "digits-reading",
    "digits-syn-like",
    "pacs-architecture",
    "pacs-multi-reading",
    "pacs-reading",
]
FIGURES = {"levels", "lambdas", "tsne", "corruptions", "samples", "complexity", "residual"}


@pytest.fixture(params=PUBLIC)
def study(request):
    return get_study(request.param)


def test_all_studies_of_the_contract_are_there_in_the_order_of_the_paper():
    assert list(list_studies()) == PUBLIC


def test_a_wrong_name_is_answered_with_the_nearest():
    with pytest.raises(UnknownNameError, match="did you mean 'table1'"):
        get_study("tabel1")


@pytest.mark.parametrize("scale", get_args(Scale))
def test_every_run_is_a_valid_config(study, scale):
    checked = set()
    for spec in iterate_specs(study):
        config = spec.config(1, scale)
        assert (config.scale, config.seed, config.recipe) == (scale, 1, spec.recipe)
        scored = spec.scored_config(1, scale)
        if content_hash(scored) in checked:
            continue
        checked.add(content_hash(scored))
        check_config(config)
        check_config(scored)


def test_rows_columns_and_comparisons_fit(study):
    labels = [row.label for row in study.rows]
    assert len(set(labels)) == len(labels)
    for row in study.rows:
        assert set(row.cells) <= set(study.columns)
        assert row.cells
        runs = any(cell.runs for cell in row.cells.values())
        assert runs != bool(row.not_run), "a row is run, or says why it is not"
        assert row.not_run is None or row.not_run.startswith("not run: ")
        assert row.not_run is None or all(cell.printed and cell.printed.copied_from for cell in row.cells.values())
    for pair in study.comparisons:
        assert {pair.row, pair.against} <= set(labels)
        assert (set(pair.printed) | set(pair.differences)) <= set(study.columns)
    assert set(study.figures) <= FIGURES


def test_bn_test_is_scored_and_never_trained(study):
    for spec in iterate_specs(study):
        config = spec.config(0, "paper")
        assert config.norm.name != "bn_test"
        if spec.evaluation is not None and "norm" in spec.evaluation.overrides:
            assert config.norm.name == "bn"
            scored = spec.scored_config(0, "paper")
            name = spec.evaluation.name.removesuffix("-syn_like")
            assert (scored.norm.name, name) == ("bn_test", f"bn_test-{scored.evaluate_batch}")


@pytest.mark.parametrize("name", ["table5", "fig-levels"])
def test_bn_test_on_cifar_comes_at_several_batch_sizes(name):
    sizes = {spec.evaluation.overrides["evaluate_batch"] for spec in iterate_specs(get_study(name)) if spec.evaluation}
    assert sizes == {16, 64, 256}


def test_lambdas_are_trained_with_and_without_weight_decay_on_them():
    for name in ("fig-lambda-cifar", "fig-lambda-pacs"):
        configs = [spec.config(0, "paper") for spec in iterate_specs(get_study(name))]
        assert {config.optim.decay_lambdas for config in configs} == {True, False}
        assert all(config.lambda_every for config in configs)
    assert all(config.norm.args["gated_rescale"] for config in configs), "all four lambdas on PACS"


def test_statistics_are_wanted_of_the_runs_of_table_3():
    specs = list(iterate_specs(get_study("fig-tsne")))
    table = {content_hash(spec.config(0, "paper")) for spec in iterate_specs(get_study("table3"))}
    assert {content_hash(spec.config(0, "paper")) for spec in specs} <= table
    assert all(spec.analyses == ("statistics",) and set(spec.analyses) <= set(ANALYSIS_FILES) for spec in specs)


def test_without_the_residual_a_run_may_diverge():
    for spec in iterate_specs(get_study("ablation-residual")):
        assert spec.may_diverge == (spec.config(0, "paper").norm.args.get("residual") is False)


def test_a_study_of_one_s_own_may_be_called_a_table(monkeypatch):
    monkeypatch.setitem(STUDIES._entries, "table-own", STUDIES["table1"])
    assert list_studies()[:2] == ("table1", "table2")
    assert "table-own" in list_studies()[10:]


def test_what_a_study_asks_for_is_cut_at_smoke_scale_and_what_a_user_asks_for_is_not():
    growing = {"method.growth": "me_ada", "method.rounds": 2}
    spec = RunSpec(recipe="cifar10c.ada_asr", overrides=growing, assignments={"steps": 9, "method.ascent_steps": 3})
    smoke, paper = spec.config(0, "smoke"), spec.config(0, "paper")
    assert [smoke.method.args[name] for name in ("growth", "rounds", "ascent_steps")] == ["volpi", 1, 3]
    assert [paper.method.args[name] for name in ("growth", "rounds", "ascent_steps")] == ["me_ada", 2, 3]
    assert smoke.steps == paper.steps == 9


def test_options_that_are_null_are_no_size_to_cut():
    spec = RunSpec(recipe="pacs.rsc_asr", options={"source": "photo"}, overrides={"method.margin": None})
    assert spec.config(0, "smoke").method.args["margin"] is None


def test_a_smoke_run_of_one_s_own_recipe_is_as_small_as_that_says(monkeypatch):
    def own(*, scale="paper"):
        return replace(recipe("digits_mini.erm_bn", scale=scale), recipe="own", steps=50)

    monkeypatch.setitem(RECIPES._entries, "own", own)
    assert RunSpec(recipe="own").config(0, "smoke").steps == 50
    assert RunSpec(recipe="own", overrides={"optim.lr": 0.5}).config(0, "smoke").steps == 6


@pytest.mark.parametrize("study", list_studies())
def test_a_smoke_run_of_a_study_is_small(study):
    for spec in iterate_specs(get_study(study)):
        config = spec.config(0, "smoke")
        assert (config.steps, config.batch_size) == (6, 8)
        assert config.method.args.get("growth", "volpi") == "volpi"


@pytest.mark.parametrize(
    ("facts", "seen"),
    [
        ({"recipe": "digits.rsda_bn"}, False),
        ({"recipe": "digits.rsda_bn_test"}, True),
        ({"recipe": "digits.rsda_bn_test", "assignments": {"norm": "bn"}}, False),
        ({"recipe": "digits.rsda_bn", "overrides": {"norm": "bn_test"}}, True),
        ({"recipe": "digits.rsda_bn", "evaluation": Evaluation(name="x", overrides={"norm": "bn_test"})}, True),
    ],
)
def test_a_run_scored_by_the_statistics_of_test_batches_is_known(facts, seen):
    assert RunSpec(**facts).sees_test_batches is seen
