import hashlib
import json
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from asrnorm.core.errors import InputError, InputTypeError, MissingDependencyError, UnknownNameError
from asrnorm.data.corruptions import CORRUPTIONS, apply, corrupt, list_corruptions
from asrnorm.data.corruptions import weather as frost
from asrnorm.data.corruptions.severity import PRESETS, PUBLISHED_MD5, RANDOM, SEVERITIES, severity_options

IMAGES = np.random.default_rng(0).integers(0, 256, (30, 32, 32, 3), dtype=np.uint8)


@pytest.fixture(autouse=True)
def _frost(monkeypatch):
    """Five made-up pictures, so that frost needs no download."""
    pictures = np.random.default_rng(1).integers(0, 256, (5, 400, 400, 3), dtype=np.uint8)
    monkeypatch.setattr(frost, "_scaled_pictures", lambda *_: tuple(pictures))


@pytest.mark.parametrize("name", list_corruptions())
def test_any_chunking_gives_the_same_bits(name, monkeypatch):
    whole = corrupt(IMAGES, name, severity=4)
    one_by_one = [corrupt(IMAGES[i : i + 1], name, severity=4, indices=[i])[0] for i in range(len(IMAGES))]
    np.testing.assert_array_equal(whole, np.stack(one_by_one))
    monkeypatch.setattr(apply, "_CHUNK_VALUES", 3 * 3072)
    np.testing.assert_array_equal(whole, corrupt(IMAGES, name, severity=4))


@pytest.mark.parametrize("name", list_corruptions())
def test_seeds_matter_to_the_random_ones_alone(name):
    first, again, other = (corrupt(IMAGES[:4], name, severity=5, seed=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any() == (name in RANDOM)


@pytest.mark.parametrize("name", list_corruptions())
@pytest.mark.parametrize("preset", PRESETS)
def test_every_severity_is_different(name, preset):
    results = [corrupt(IMAGES[:3], name, severity=severity, preset=preset) for severity in SEVERITIES]
    assert all((result != IMAGES[:3]).any() for result in results)
    assert len({result.tobytes() for result in results}) == 5


@pytest.mark.parametrize("name", list_corruptions())
@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 5), st.sampled_from([None, "cifar", "imagenet"]))
@settings(max_examples=8, deadline=None)
def test_any_image_size_works(name, height, width, severity, preset):
    images = np.random.default_rng(height * 50 + width).integers(0, 256, (2, height, width, 3), dtype=np.uint8)
    original = images.copy()
    corrupted = corrupt(images, name, severity=severity, preset=preset)
    assert corrupted.shape == images.shape
    assert corrupted.dtype == np.uint8
    np.testing.assert_array_equal(images, original)


def test_no_images_give_no_images():
    assert corrupt(IMAGES[:0], "fog").shape == (0, 32, 32, 3)


def test_views_are_taken_as_they_look():
    np.testing.assert_array_equal(
        corrupt(IMAGES[::2, :, ::-1], "gaussian_blur"), corrupt(IMAGES[::2, :, ::-1].copy(), "gaussian_blur")
    )


def test_options_replace_the_severitys_numbers():
    noisy = corrupt(np.full((10, 32, 32, 3), 128, np.uint8), "gaussian_noise", sd=0.01)
    assert noisy.std() == pytest.approx(2.55, rel=0.05)


def test_presets_follow_the_size():
    large = np.full((1, 65, 20, 3), 50, np.uint8)
    np.testing.assert_array_equal(corrupt(large, "brightness"), corrupt(large, "brightness", preset="imagenet"))
    small = large[:, :64]
    np.testing.assert_array_equal(corrupt(small, "brightness"), corrupt(small, "brightness", preset="cifar"))


@pytest.mark.parametrize(
    ("arguments", "options", "error", "line"),
    [
        ((IMAGES, "fogg"), {}, UnknownNameError, "did you mean 'fog'"),
        ((IMAGES, "fog"), {"preset": "cifer"}, UnknownNameError, "did you mean 'cifar'"),
        ((IMAGES, "fog"), {"densty": 1}, UnknownNameError, "did you mean 'density'"),
        ((IMAGES, "fog"), {"severity": 0}, InputError, "1, 2, 3, 4 or 5"),
        ((IMAGES, "fog"), {"severity": 6}, InputError, "1, 2, 3, 4 or 5"),
        ((IMAGES, "fog"), {"indices": [1]}, InputError, "one index for each image"),
        ((IMAGES[0], "fog"), {}, InputError, r"image\[None\]"),
        ((IMAGES[..., :1], "fog"), {}, InputError, "height, width, 3"),
        ((IMAGES[:, :0], "fog"), {}, InputError, "height, width, 3"),
        ((IMAGES / 255.0, "fog"), {}, InputTypeError, "float64"),
        (([1, 2], "fog"), {}, InputTypeError, "list"),
    ],
)
def test_wrong_calls_say_what_is_wrong(arguments, options, error, line):
    with pytest.raises(error, match=line) as caught:
        corrupt(*arguments, **options)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["defocus_blur", "elastic_transform", "spatter"])
def test_without_opencv_one_line_says_what_to_install(name, monkeypatch):
    monkeypatch.setitem(sys.modules, "cv2", None)
    with pytest.raises(MissingDependencyError, match="pip install opencv-python-headless"):
        corrupt(IMAGES[:1], name, **({"radius": 1.25} if name == "defocus_blur" else {}))


def test_the_tables_cover_the_same_nineteen():
    names = set(list_corruptions())
    assert len(names) == 19
    assert names == set(PUBLISHED_MD5) - {"labels"}
    assert names > RANDOM
    assert len(RANDOM) == 11
    for table in PRESETS.values():
        assert set(table) == names
        for name, rows in table.items():
            assert len(rows) == 5
            assert all(set(row) <= set(CORRUPTIONS.options(name)) for row in rows)


PUBLISHED = {
    "cifar": {
        "gaussian_noise": [0.04, 0.06, 0.08, 0.09, 0.10],
        "shot_noise": [500, 250, 100, 75, 50],
        "impulse_noise": [0.01, 0.02, 0.03, 0.05, 0.07],
        "speckle_noise": [0.06, 0.1, 0.12, 0.16, 0.2],
        "glass_blur": [(0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2)],
        "motion_blur": [(6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5)],
        "fog": [(0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75)],
        "frost": [(1, 0.2, 0.2), (1, 0.3, 0.2), (0.9, 0.4, 0.2), (0.85, 0.4, 0.2), (0.75, 0.45, 0.2)],
    },
    "imagenet": {
        "gaussian_noise": [0.08, 0.12, 0.18, 0.26, 0.38],
        "shot_noise": [60, 25, 12, 5, 3],
        "impulse_noise": [0.03, 0.06, 0.09, 0.17, 0.27],
        "speckle_noise": [0.15, 0.2, 0.35, 0.45, 0.6],
        "gaussian_blur": [1, 2, 3, 4, 6],
        "defocus_blur": [(3, 0.1), (4, 0.5), (6, 0.5), (8, 0.5), (10, 0.5)],
        "glass_blur": [(0.7, 1, 2), (0.9, 2, 1), (1, 2, 3), (1.1, 3, 2), (1.5, 4, 2)],
        "motion_blur": [(10, 3), (15, 5), (15, 8), (15, 12), (20, 15)],
        "zoom_blur": [(1.11, 0.01), (1.16, 0.01), (1.21, 0.02), (1.26, 0.02), (1.31, 0.03)],
        "fog": [(1.5, 2), (2, 2), (2.5, 1.7), (2.5, 1.5), (3, 1.4)],
        "frost": [(1, 0.4, 1), (0.8, 0.6, 1), (0.7, 0.7, 1), (0.65, 0.7, 1), (0.6, 0.75, 1)],
        "brightness": [0.1, 0.2, 0.3, 0.4, 0.5],
        "contrast": [0.4, 0.3, 0.2, 0.1, 0.05],
        "saturate": [(0.3, 0), (0.1, 0), (2, 0), (5, 0.1), (20, 0.2)],
        "jpeg_compression": [25, 18, 15, 10, 7],
        "pixelate": [0.6, 0.5, 0.4, 0.3, 0.25],
    },
}


@pytest.mark.parametrize("preset", PUBLISHED)
def test_the_severities_are_those_of_the_published_scripts(preset):
    for name, rows in PUBLISHED[preset].items():
        found = [tuple(severity_options(name, severity, preset).values()) for severity in range(1, 6)]
        assert found == [row if isinstance(row, tuple) else (row,) for row in rows], name


@pytest.mark.parametrize("library", [np.array, list, tuple, torch.tensor], ids=["numpy", "list", "tuple", "torch"])
def test_indices_may_be_of_any_library(library):
    whole = corrupt(IMAGES, "gaussian_noise", seed=np.int64(2), severity=np.int64(4))
    part = corrupt(IMAGES[[3, 7]], "gaussian_noise", seed=2, severity=4, indices=library([3, 7]))
    np.testing.assert_array_equal(part, whole[[3, 7]])


@pytest.mark.parametrize("wrong", [{"seed": 3.0}, {"indices": [0.5, 1.5]}], ids=str)
def test_seeds_and_indices_that_are_not_whole_are_refused(wrong):
    with pytest.raises(InputTypeError, match="must be a whole number, not "):
        corrupt(IMAGES[:2], "gaussian_noise", **wrong)


@pytest.mark.parametrize("severity", [3.0, True, np.array([1, 2]), 0, 6, None, "3"], ids=str)
def test_a_severity_that_is_none_of_the_five_is_refused(severity):
    with pytest.raises(InputError, match=r"^severity .* does not exist; it is 1, 2, 3, 4 or 5"):
        corrupt(IMAGES[:2], "gaussian_noise", severity=severity)


@pytest.mark.parametrize(("preset", "digest"), [("cifar", "2dacb0b995b29d39"), ("imagenet", "723228b79155cda0")])
def test_the_severities_are_the_published_ones_to_the_last_digit(preset, digest):
    # Read off the published scripts. Most corruptions draw noise, so that no published image
    # would show a slip; whoever changes a number has to look there.
    table = json.dumps(PRESETS[preset], sort_keys=True)
    assert hashlib.sha256(table.encode()).hexdigest()[:16] == digest
