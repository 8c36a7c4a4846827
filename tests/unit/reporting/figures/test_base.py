from dataclasses import replace

import pytest

from asrnorm.reporting.figures import FIGURES, NothingToDrawError
from asrnorm.reporting.figures.base import look
from asrnorm.studies import collect, get_study, list_studies

pytest.importorskip("matplotlib", reason="matplotlib is not installed: pip install 'asrnorm[data]'")


def test_every_figure_that_a_study_names_is_there():
    named = {name for study in list_studies() for name in get_study(study).figures}
    assert named == set(FIGURES)


def test_fifty_rows_look_different():
    assert len({look(index) for index in range(49)}) == 49


def test_figures_without_runs_say_so(tmp_path):
    for name, study in {"lambdas": "fig-lambda-cifar", "corruptions": "fig-corruptions"}.items():
        with pytest.raises(NothingToDrawError, match="finished"):
            FIGURES[name](collect(get_study(study), runs=tmp_path, scale="smoke"), tmp_path)
    bare = collect(get_study("ablation-residual"), runs=tmp_path, scale="smoke")
    with pytest.raises(NothingToDrawError, match="runs with logs"):
        FIGURES["residual"](replace(bare, runs=None), tmp_path)
