import re
import sys

import pytest

from asrnorm.core.errors import MissingDependencyError
from asrnorm.reporting import figure

pytest.importorskip("matplotlib", reason="matplotlib is not installed: pip install 'asrnorm[data]'")


def test_figures_are_svg_and_the_same_every_time():
    bars = [figure.bar_chart(["a", "b"], {"x": [0.5, 0.6], "y": [0.1, 0.2]}, "accuracy") for _ in range(2)]
    assert bars[0] == bars[1]
    assert bars[0].startswith("<svg")
    assert all(color.lower() in bars[0].lower() for color in figure.PALETTE[:2])
    lines = figure.line_chart({"run": [(0, 1.0), (1, 0.5)]}, "step", "loss")
    assert lines.startswith("<svg")


def test_without_matplotlib_the_line_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'asrnorm\[data\]'"):
        figure.bar_chart(["a"], {"x": [0.5]}, "accuracy")


def test_a_figure_is_saved_in_three_forms_the_same_every_time(tmp_path):
    files = []
    for folder in ("a", "b"):
        with figure.canvas(3, 2) as (drawing, axes):
            axes.plot([0, 1], [0, 1], color=figure.PALETTE[0])
            files.append(figure.save(drawing, tmp_path / folder, "line"))
    assert [path.suffix for path in files[0]] == [".svg", ".pdf", ".png"]
    for first, second in zip(*files, strict=True):
        assert first.read_bytes() == second.read_bytes()
    assert files[0][1].read_bytes().startswith(b"%PDF")
    assert files[0][2].read_bytes().startswith(b"\x89PNG")


def test_on_a_page_letters_take_the_pages_color_and_names_do_not_clash():
    with figure.canvas(3, 2) as (drawing, axes):
        axes.plot([0, 1], [0, 1])
        svg = figure.to_svg(drawing)
    assert figure.INK in svg
    shown = figure.for_page(svg, "f1")
    assert figure.INK not in shown
    assert "currentColor" in shown
    assert all(name.startswith("f1-") for name in re.findall(r'\bid="([^"]+)', shown))


def test_the_palette_is_told_apart_in_gray_by_markers():
    assert len(figure.MARKERS) == len(figure.PALETTE) == len(set(figure.MARKERS))


def test_in_an_image_letters_read_on_white_and_on_black():
    with figure.canvas(3, 2) as (drawing, axes):
        axes.plot([0, 1, 3], [0, 1.23456, 2], color=figure.PALETTE[0])
        svg = figure.for_image(figure.to_svg(drawing))
    assert not any(color in svg for color in figure.ANY_GROUND)
    assert not re.search(r' d="[^"]*\.\d{3}', svg)
    assert re.search(r"scale\(0\.\d{3}", svg)  # of letters, left as it was
