import re
import sys
from dataclasses import replace

import pytest

from asrnorm.core.errors import MissingDependencyError
from asrnorm.reporting.figures import FIGURES, NothingToDrawError, base
from asrnorm.studies import collect, get_study, list_studies

pytest.importorskip("matplotlib", reason="matplotlib is not installed: pip install 'asrnorm[data]'")


def test_figures_are_svg_and_the_same_every_time():
    series = {"x": [[0.5, 0.7], [0.6]], "y": [[0.1], [0.2]]}
    bars = [base.bar_chart(["a", "b"], series, "accuracy") for _ in range(2)]
    assert bars[0] == bars[1]
    assert bars[0].startswith("<svg")
    assert all(color.lower() in bars[0].lower() for color in base.PALETTE[:2])


def test_without_matplotlib_the_line_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'asrnorm\[data\]'"):
        base.bar_chart(["a"], {"x": [[0.5]]}, "accuracy")


def test_a_figure_is_saved_in_three_forms_the_same_every_time(tmp_path):
    files = []
    for folder in ("a", "b"):
        with base.canvas(3, 2) as (drawing, axes):
            axes.plot([0, 1], [0, 1], color=base.PALETTE[0])
            files.append(base.save(drawing, tmp_path / folder, "line"))
    assert [path.suffix for path in files[0]] == [".svg", ".pdf", ".png"]
    for first, second in zip(*files, strict=True):
        assert first.read_bytes() == second.read_bytes()
    assert files[0][1].read_bytes().startswith(b"%PDF")
    assert files[0][2].read_bytes().startswith(b"\x89PNG")


def test_on_a_page_letters_take_the_pages_color_and_names_do_not_clash():
    with base.canvas(3, 2) as (drawing, axes):
        axes.plot([0, 1], [0, 1])
        svg = base.to_svg(drawing)
    assert base.INK in svg
    shown = base.for_page(svg, "f1")
    assert base.INK not in shown
    assert "currentColor" in shown
    assert all(name.startswith("f1-") for name in re.findall(r'\bid="([^"]+)', shown))


def test_the_palette_is_told_apart_in_gray_by_markers():
    assert len(base.MARKERS) == len(base.PALETTE) == len(set(base.MARKERS))


def test_every_figure_that_a_study_names_is_there():
    named = {name for study in list_studies() for name in get_study(study).figures}
    assert named == set(FIGURES)


def test_fifty_rows_look_different():
    assert len({base.look(index) for index in range(49)}) == 49


def test_figures_without_runs_say_so(tmp_path):
    for name, study in {"lambdas": "fig-lambda-cifar", "corruptions": "fig-corruptions"}.items():
        with pytest.raises(NothingToDrawError, match="finished"):
            FIGURES[name](collect(get_study(study), runs=tmp_path, scale="smoke"), tmp_path)
    bare = collect(get_study("ablation-residual"), runs=tmp_path, scale="smoke")
    with pytest.raises(NothingToDrawError, match="runs with logs"):
        FIGURES["residual"](replace(bare, runs=None), tmp_path)
