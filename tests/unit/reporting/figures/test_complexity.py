import itertools

import pytest

from asrnorm.reporting.figures import FIGURES
from asrnorm.reporting.figures.base import canvas
from asrnorm.reporting.figures.complexity import overlap, place_labels
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


def test_every_row_is_named_once_beside_its_marker(tmp_path):
    collected = found("table8", tmp_path)
    figure = FIGURES["complexity"](collected, tmp_path)
    texts = [text.get_text().replace("\n", " ") for text in figure.axes[0].texts]
    assert texts == [row.label for row in collected.study.rows]
    assert legend_texts(figure) == ["ours", "paper"]


def boxes(axes):
    from matplotlib.text import Text

    axes.figure.draw_without_rendering()
    found = [Text.get_window_extent(note) for note in axes.texts]  # the words, without the line that leads there
    return [(box.x0, box.y0, box.x1, box.y1) for box in found]


@pytest.mark.parametrize("gap", [0.001, 0.03, 0.2])
def test_labels_of_crowded_points_cover_neither_each_other_nor_a_point(gap):
    anchors = {f"a long label of row {i}\n(C/{i})": (0.1 + gap * i, 0.2 + gap * i) for i in range(5)}
    with canvas(8, 5) as (_, axes):
        axes.set_xlim(0, 1)
        axes.set_ylim(0, 1)
        obstacles = [(x, y, x, y) for x, y in anchors.values()]
        place_labels(axes, anchors, dict.fromkeys(anchors, "gray"), obstacles)
        assert [text.get_text() for text in axes.texts] == list(anchors)
        found = boxes(axes)
        assert all(overlap(one, other) == 0 for one, other in itertools.combinations(found, 2))
        for point in anchors.values():
            x, y = axes.transData.transform(point)
            assert all(overlap(box, (x - 1, y - 1, x + 1, y + 1)) == 0 for box in found)


def test_a_label_at_the_edge_stays_inside():
    with canvas(5, 4) as (_, axes):
        axes.set_xlim(0, 1)
        axes.set_ylim(0, 1)
        place_labels(axes, {"a label": (0.99, 0.99)}, {"a label": "gray"}, [(0.99, 0.99, 0.99, 0.99)])
        ((left, bottom, right, top),) = boxes(axes)
        frame = axes.get_window_extent()
        assert frame.x0 <= left < right <= frame.x1
        assert frame.y0 <= bottom < top <= frame.y1


def test_a_line_leads_to_a_label_that_had_to_go_away():
    with canvas(5, 4) as (_, axes):
        axes.set_xlim(0, 1)
        axes.set_ylim(0, 1)
        place_labels(axes, {"a label": (0.5, 0.5)}, {"a label": "gray"}, [(0.3, 0.35, 0.7, 0.65)])
        (note,) = axes.texts
        assert note.arrow_patch is not None


def test_a_wide_label_stands_beside_its_point_rather_than_far_above_it():
    anchors = {"a label that is rather wide": (0.4, 0.5)}
    with canvas(8, 4) as (_, axes):
        axes.set_xlim(0, 1)
        axes.set_ylim(0, 1)
        place_labels(axes, anchors, dict.fromkeys(anchors, "gray"), [(0.4, 0.5, 0.4, 0.5), (0.3, 0.6, 0.5, 0.6)])
        (note,) = axes.texts
        assert note.arrow_patch is None
        assert note.xyann[1] == 0
