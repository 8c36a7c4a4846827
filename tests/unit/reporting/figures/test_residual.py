import pytest

from asrnorm.reporting.figures import FIGURES
from asrnorm.studies import collect, get_study
from asrnorm.studies.plan import iterate_specs
from helpers.made_up_run import make_up_divergence, make_up_runs

pytest.importorskip("matplotlib", reason="matplotlib is not installed: pip install 'asrnorm[data]'")


def test_residual_marks_where_a_run_broke(tmp_path):
    study = get_study("ablation-residual")
    broken = next(spec for spec in iterate_specs(study) if spec.overrides and spec.recipe.startswith("cifar"))
    make_up_runs(study, tmp_path, seeds=[0], skip=lambda spec, seed: spec == broken)
    make_up_divergence(broken, tmp_path, 0)
    collected = collect(study, runs=tmp_path, scale="smoke", seeds=[0])
    figure = FIGURES["residual"](collected, tmp_path)
    assert [axes.get_title().split(",")[0] for axes in figure.axes] == ["Digits", "CIFAR-10", "PACS from photo"]
    texts = [[text.get_text() for text in axes.texts] for axes in figure.axes]
    assert texts == [[], ["NaN"], []]
    assert [text.get_text() for text in figure.axes[1].get_legend().get_texts()] == ["as it is", "no residual"]


def test_a_comparison_with_one_side_alone_has_no_panel(tmp_path):
    study = get_study("ablation-residual")
    make_up_runs(study, tmp_path, seeds=[0], skip=lambda spec, seed: bool(spec.overrides) and "pacs" in spec.recipe)
    figure = FIGURES["residual"](collect(study, runs=tmp_path, scale="smoke", seeds=[0]), tmp_path)
    assert [axes.get_title().split(",")[0] for axes in figure.axes] == ["Digits", "CIFAR-10"]
