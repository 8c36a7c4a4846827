import pytest
from PIL import Image

from asrnorm.reporting.figures import FIGURES, NothingToDrawError
from asrnorm.studies import collect, get_study

pytest.importorskip("matplotlib", reason="matplotlib is not installed: pip install 'asrnorm[data]'")


def test_samples_are_shown_pixel_for_pixel(tmp_path):
    collected = collect(get_study("fig-samples"), runs=tmp_path, scale="smoke")
    with pytest.raises(NothingToDrawError, match=r"samples\.png is not there"):
        FIGURES["samples"](collected, tmp_path)
    Image.new("RGB", (60, 40), "red").save(tmp_path / "samples.png")
    figure = FIGURES["samples"](collected, tmp_path)
    assert tuple(figure.get_size_inches() * 200) == (60, 40)
