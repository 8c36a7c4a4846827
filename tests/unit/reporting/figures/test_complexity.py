import pytest

from asrnorm.reporting.figures import FIGURES
from helpers.figure_case import found, legend_texts, lines_by_label

pytest.importorskip("matplotlib", reason="matplotlib is not installed: pip install 'asrnorm[data]'")


def test_complexity_has_a_filled_and_a_hollow_marker_a_row(tmp_path):
    collected = found("table8", tmp_path)
    figure = FIGURES["complexity"](collected, tmp_path)
    lines = lines_by_label(figure.axes[0])
    for row in collected.study.rows:
        paper, ours = lines[row.label]
        assert (paper.get_xdata()[0], paper.get_ydata()[0]) == (
            row.cells["# Params"].printed.value,
            row.cells["Avg."].printed.value,
        )
        assert ours.get_ydata()[0] == collected.cells[row.label, "Avg."].mean


def test_the_legend_names_every_row_once(tmp_path):
    collected = found("table8", tmp_path)
    figure = FIGURES["complexity"](collected, tmp_path)
    assert legend_texts(figure) == ["ours", "paper", *[row.label for row in collected.study.rows]]
