import pytest

from asrnorm.reporting.figures import FIGURES
from helpers.figure_case import found, lines_by_label

pytest.importorskip("matplotlib", reason="matplotlib is not installed: pip install 'asrnorm[data]'")


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
