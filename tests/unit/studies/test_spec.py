"""Specs of runs: their configs at every scale, and studies by name."""

from dataclasses import replace

import pytest

from asrnorm.core.errors import UnknownNameError
from asrnorm.recipes import RECIPES, recipe
from asrnorm.studies import get_study, list_studies
from asrnorm.studies.spec import STUDIES, Evaluation, RunSpec


def test_a_wrong_name_is_answered_with_the_nearest():
    with pytest.raises(UnknownNameError, match="did you mean 'table1'"):
        get_study("tabel1")


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
