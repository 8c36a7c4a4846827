import re

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFont

from asrnorm.core.errors import MissingDependencyError
from asrnorm.data.synthetic import sources as font
from asrnorm.data.synthetic.sources import DIGIT_FONTS, font_folder, load_font


def bitmap(face, text):
    """The glyph alone, stretched to 16x16: fonts differ in size and proportion."""
    canvas = Image.new("L", (120, 120))
    ImageDraw.Draw(canvas).text((60, 60), text, 255, face, anchor="mm")
    return np.asarray(canvas.crop(canvas.getbbox()).resize((16, 16), Image.Resampling.BOX), float).ravel()


def read_digits(name, others):
    """Which digit each of the ten glyphs looks like most, by the mean of the other fonts."""
    means = np.stack(
        [np.mean([bitmap(load_font(other, 60), str(digit)) for other in others], axis=0) for digit in range(10)]
    )
    face = ImageFont.truetype(font_folder() / f"{name}.ttf", 60)
    glyphs = np.stack([bitmap(face, str(digit)) for digit in range(10)])
    return [int(np.abs(means - glyph).sum(1).argmin()) for glyph in glyphs]


@pytest.mark.parametrize("name", DIGIT_FONTS)
def test_digits_look_like_those_of_the_other_fonts(name):
    assert sum(read == digit for digit, read in enumerate(read_digits(name, set(DIGIT_FONTS) - {name}))) >= 8


@pytest.mark.parametrize("name", ["cmsy10", "cmex10", "LastResortHE-Regular"])
def test_fonts_of_symbols_would_be_noticed(name):
    if not (font_folder() / f"{name}.ttf").is_file():
        pytest.skip(f"this matplotlib has no {name}.ttf")
    assert sum(read == digit for digit, read in enumerate(read_digits(name, DIGIT_FONTS))) < 5


@pytest.mark.parametrize("name", DIGIT_FONTS)
def test_the_ten_glyphs_differ_and_none_is_a_box_for_an_unknown_one(name):
    face = load_font(name, 40)
    glyphs = {bytes(face.getmask(str(digit))) for digit in range(10)}
    assert len(glyphs) == 10
    assert bytes(face.getmask("\U0010fffd")) not in glyphs


def test_a_font_that_matplotlib_lacks_is_named(monkeypatch):
    monkeypatch.setattr(font, "DIGIT_FONTS", ("Nowhere",))
    font_folder.cache_clear()
    with pytest.raises(MissingDependencyError, match=re.escape("Nowhere.ttf")):
        font_folder()
