import numpy as np
import pytest
from PIL import Image

from asrnorm.reporting.figures import FIGURES, NothingToDrawError
from asrnorm.reporting.figures.domains import embed
from asrnorm.studies import collect, get_study
from asrnorm.studies.plan import iterate_specs
from helpers.figure_case import found, legend_texts
from helpers.made_up_run import make_up_statistics

pytest.importorskip("matplotlib", reason="matplotlib is not installed: pip install 'asrnorm[data]'")


def test_tsne_has_four_panels_colored_by_domain_and_names_the_source(tmp_path):
    pytest.importorskip("sklearn", reason="scikit-learn is not installed: pip install 'asrnorm[data]'")
    collected = found("fig-tsne", tmp_path, seeds=(0,))
    make_up_statistics(next(iterate_specs(collected.study)), tmp_path, 0, samples=12)
    figure = FIGURES["tsne"](collected, tmp_path)
    assert len(figure.axes) == 4
    assert [len(axes.collections) for axes in figure.axes] == [4] * 4
    assert legend_texts(figure) == ["photo", "art painting (source)", "cartoon", "sketch"]


def test_tsne_is_the_same_every_time():
    pytest.importorskip("sklearn", reason="scikit-learn is not installed: pip install 'asrnorm[data]'")
    values = np.random.default_rng(0).normal(size=(24, 4))
    assert (embed(values) == embed(values)).all()


def test_tsne_without_its_analysis_says_what_makes_it(tmp_path):
    with pytest.raises(NothingToDrawError, match="asrnorm reproduce fig-tsne"):
        FIGURES["tsne"](found("fig-tsne", tmp_path, seeds=(0,)), tmp_path)


@pytest.mark.parametrize("damage", [b"", b"x", "compression", "names"])
def test_damaged_statistics_or_samples_leave_out_the_figure_alone(tmp_path, damage):
    collected = found("fig-tsne", tmp_path, seeds=(0,))
    make_up_statistics(next(iterate_specs(collected.study)), tmp_path, 0, samples=4)
    (path,) = tmp_path.rglob("*.npz")
    if damage == "compression":
        data = bytearray(path.read_bytes())
        data[data.index(b"PK\x01\x02") + 10] = 77
        path.write_bytes(data)
    elif damage == "names":
        np.savez(path, domain=np.array(["photo"]))
    else:
        path.write_bytes(damage)
    with pytest.raises(NothingToDrawError, match="damaged"):
        FIGURES["tsne"](collected, tmp_path)
    (tmp_path / "samples.png").write_bytes(b"\x89PNG")
    with pytest.raises(NothingToDrawError, match="damaged"):
        FIGURES["samples"](collected, tmp_path)


def test_samples_are_shown_pixel_for_pixel(tmp_path):
    collected = collect(get_study("fig-samples"), runs=tmp_path, scale="smoke")
    with pytest.raises(NothingToDrawError, match=r"samples\.png is not there"):
        FIGURES["samples"](collected, tmp_path)
    Image.new("RGB", (60, 40), "red").save(tmp_path / "samples.png")
    figure = FIGURES["samples"](collected, tmp_path)
    assert tuple(figure.get_size_inches() * 200) == (60, 40)
