import pytest

from asrnorm.reporting.figures import FIGURES, NothingToDrawError
from asrnorm.reporting.figures.corruptions import by_type
from asrnorm.studies import collect, get_study
from helpers.figure_case import found, legend_texts, lines_by_label

pytest.importorskip("matplotlib", reason="matplotlib is not installed: pip install 'asrnorm[data]'")


def test_levels_has_ours_with_a_band_and_the_papers_dashed_and_hollow(tmp_path):
    collected = found("fig-levels", tmp_path)
    figure = FIGURES["levels"](collected, tmp_path)
    axes = figure.axes[0]
    paper, ours = lines_by_label(axes)["ADA + ASR-Norm"]
    assert list(ours.get_ydata()) == [collected.cells["ADA + ASR-Norm", f"Level {i}"].mean for i in range(1, 6)]
    assert list(paper.get_ydata()) == [91.5, 89.3, 86.9, 83.7, 78.4]
    assert paper.get_markerfacecolor() == "none"
    assert paper.is_dashed()
    assert not ours.is_dashed()
    assert len(axes.collections) == 6  # a band a row
    assert {"ours", "paper", "ADA + IN"} <= set(legend_texts(figure))


def test_levels_without_runs_shows_the_paper_alone(tmp_path):
    figure = FIGURES["levels"](collect(get_study("fig-levels"), runs=tmp_path, scale="smoke"), tmp_path)
    assert "ours" not in legend_texts(figure)
    assert "paper" in legend_texts(figure)


def test_levels_of_another_quantity_than_the_papers_names_it_and_not_whose_it_is(tmp_path):
    figure = FIGURES["levels"](found("cifar-calibration", tmp_path), tmp_path)
    assert figure.axes[0].get_ylabel() == "expected calibration error"
    assert not {"ours", "paper"} & set(legend_texts(figure))


def test_levels_refuses_a_study_without_levels(tmp_path):
    with pytest.raises(NothingToDrawError, match="level"):
        FIGURES["levels"](collect(get_study("table3"), runs=tmp_path, scale="smoke"), tmp_path)


def test_by_type_takes_the_mean_over_levels(tmp_path):
    result = found("table6", tmp_path, seeds=(0,)).cells["ADA + BN", "Avg."].records[0].result
    fog = [domain.accuracy for domain in result.domains if domain.name.startswith("fog/")]
    assert by_type([result])["fog"] == pytest.approx(sum(fog) / 5)


def test_a_band_is_one_deviation_to_either_side(tmp_path):
    collected = found("fig-levels", tmp_path)
    axes = FIGURES["levels"](collected, tmp_path).axes[0]
    cell = collected.cells[collected.study.rows[0].label, "Level 1"]
    corners = axes.collections[0].get_paths()[0].vertices
    edges = sorted({round(y, 6) for x, y in corners if x == 1})
    assert edges == pytest.approx([cell.mean - cell.deviation, cell.mean + cell.deviation], abs=1e-5)


def test_corruptions_has_19_types_in_four_groups_and_the_means(tmp_path):
    collected = found("fig-corruptions", tmp_path)
    figure = FIGURES["corruptions"](collected, tmp_path)
    axes = figure.axes[0]
    names = [tick.get_text() for tick in axes.get_yticklabels()]
    assert len(names) == 23
    assert [names[i] for i in (0, 5, 11, 17)] == ["noise", "blur", "weather", "digital"]
    dots = lines_by_label(axes)["ADA + ASR-Norm"][0].get_xdata()
    assert dots[1] == pytest.approx(collected.cells["ADA + ASR-Norm", "gaussian_noise"].mean)
    assert dots[0] == pytest.approx(collected.cells["ADA + ASR-Norm", "noise"].mean)
