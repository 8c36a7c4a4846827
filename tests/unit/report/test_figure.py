import sys

import pytest

from asrnorm.errors import MissingDependencyError
from asrnorm.report import figure

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
