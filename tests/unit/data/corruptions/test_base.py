import hashlib
import json
import sys
from numbers import Real

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from asrnorm.core.errors import InputError, InputTypeError, MissingDependencyError, UnknownNameError
from asrnorm.data.corruptions import CORRUPTIONS, base, corrupt, list_corruptions
from asrnorm.data.corruptions.base import Streams
from asrnorm.data.corruptions.generation import published_md5
from asrnorm.data.corruptions.severity import (
    LIMITS,
    PRESETS,
    RANDOM,
    SEVERITIES,
    check_limits,
    check_side,
    severity_options,
)

pytestmark = pytest.mark.usefixtures("made_up_frost")

IMAGES = np.random.default_rng(0).integers(0, 256, (30, 32, 32, 3), dtype=np.uint8)
WITH_BLACK = IMAGES[:2, :24].copy()
WITH_BLACK[1] = 0  # a black image divides by zero first
NUMBERS = [
    (name, option)
    for name in list_corruptions()
    for option, value in severity_options(name, 3, "cifar").items()
    if not isinstance(value, bool)
]


@pytest.mark.parametrize("name", list_corruptions())
def test_any_chunking_gives_the_same_bits(name, monkeypatch):
    whole = corrupt(IMAGES, name, severity=4)
    one_by_one = [corrupt(IMAGES[i : i + 1], name, severity=4, indices=[i])[0] for i in range(len(IMAGES))]
    np.testing.assert_array_equal(whole, np.stack(one_by_one))
    monkeypatch.setattr(base, "_CHUNK_VALUES", 3 * 3072)
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
    ("arguments", "options", "error"),
    [
        ((IMAGES, "fogg"), {}, UnknownNameError),
        ((IMAGES, "fog"), {"preset": "cifer"}, UnknownNameError),
        ((IMAGES, "fog"), {"densty": 1}, UnknownNameError),
        ((IMAGES, "fog"), {"indices": [1]}, InputError),
        ((IMAGES[0], "fog"), {}, InputError),
        ((IMAGES[..., :1], "fog"), {}, InputError),
        ((IMAGES[:, :0], "fog"), {}, InputError),
        ((IMAGES / 255.0, "fog"), {}, InputTypeError),
        (([1, 2], "fog"), {}, InputTypeError),
    ],
)
def test_wrong_calls_are_refused_in_one_line(arguments, options, error):
    with pytest.raises(error) as caught:
        corrupt(*arguments, **options)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["defocus_blur", "elastic_transform", "spatter"])
def test_without_opencv_one_line_says_what_to_install(name, monkeypatch):
    monkeypatch.setitem(sys.modules, "cv2", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'asrnorm\[data\]'"):
        corrupt(IMAGES[:1], name, **({"radius": 1.25} if name == "defocus_blur" else {}))


def test_the_tables_cover_the_same_nineteen():
    names = set(list_corruptions())
    assert len(names) == 19
    assert names == set(published_md5()) - {"labels"}
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
    with pytest.raises(InputTypeError):
        corrupt(IMAGES[:2], "gaussian_noise", **wrong)


@pytest.mark.parametrize("severity", [3.0, True, np.array([1, 2]), 0, 6, None, "3"], ids=str)
def test_a_severity_that_is_none_of_the_five_is_refused(severity):
    with pytest.raises(InputError):
        corrupt(IMAGES[:2], "gaussian_noise", severity=severity)


@pytest.mark.parametrize(("preset", "digest"), [("cifar", "2dacb0b995b29d39"), ("imagenet", "723228b79155cda0")])
def test_the_severities_are_the_published_ones_to_the_last_digit(preset, digest):
    # Read off the published scripts. Most corruptions draw noise, so that no published image
    # would show a slip; whoever changes a number has to look there.
    table = json.dumps(PRESETS[preset], sort_keys=True)
    assert hashlib.sha256(table.encode()).hexdigest()[:16] == digest


def limits(name, option):
    return LIMITS.get(f"{name}.{option}") or LIMITS[option]


@pytest.mark.parametrize(("name", "option"), NUMBERS)
def test_at_its_bounds_a_number_still_makes_images(name, option):
    kind = type(severity_options(name, 3, "cifar")[option])
    for bound in limits(name, option):
        value = int(bound) if kind is int and float(bound).is_integer() else bound
        corrupted = corrupt(WITH_BLACK, name, **{option: value})
        assert corrupted.shape == WITH_BLACK.shape
        assert corrupted.dtype == np.uint8


@pytest.mark.parametrize(("name", "option"), NUMBERS)
@pytest.mark.parametrize("far", ["below", "above", "nan"])
def test_beyond_them_one_line_says_what_it_may_be(name, option, far):
    least, most = limits(name, option)
    value = {"below": least - 1, "above": most + 1, "nan": float("nan")}[far]
    with pytest.raises(InputError, match=option) as caught:
        corrupt(WITH_BLACK, name, **{option: int(value) if value == value and float(value).is_integer() else value})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("preset", PRESETS)
def test_the_published_numbers_lie_within(preset):
    for name, rows in PRESETS[preset].items():
        for row in rows:
            check_limits(name, row)


def test_every_limit_is_of_an_option_there_is():
    options = {option for name in list_corruptions() for option in CORRUPTIONS.options(name)}
    own = {f"{name}.{option}" for name in list_corruptions() for option in CORRUPTIONS.options(name)}
    assert set(LIMITS) <= options | own
    assert all(isinstance(bound, Real) and bound == bound for bounds in LIMITS.values() for bound in bounds)


@pytest.mark.parametrize("number", [np.float32(-0.5), np.int64(-1)], ids=str)
def test_numbers_of_numpy_are_looked_at_too(number):
    with pytest.raises(InputError):
        check_limits("impulse_noise", {"amount": number})


@pytest.mark.parametrize("name", ["fog", "frost"])
@pytest.mark.parametrize("shape", [(1, 1, 8193, 3), (1, 8193, 1, 3)])
def test_images_too_long_for_the_memory_are_refused(name, shape):
    with pytest.raises(InputError):
        corrupt(np.zeros(shape, np.uint8), name)


def test_other_corruptions_take_images_of_any_length():
    check_side("brightness", 1, 100_000)
    assert corrupt(np.zeros((1, 1, 9000, 3), np.uint8), "brightness").shape == (1, 1, 9000, 3)


def test_an_image_draws_the_same_alone_and_among_others():
    whole = Streams(3, "fog", 2, range(10))
    alone = Streams(3, "fog", 2, [7])
    np.testing.assert_array_equal(whole.normal(4, 5)[7], alone.normal(4, 5)[0])
    np.testing.assert_array_equal(whole.uniform(3)[7], alone.uniform(3)[0])
    np.testing.assert_array_equal(whole.integers(-2, 2, 6)[7], alone.integers(-2, 2, 6)[0])


@pytest.mark.parametrize("other", [(1, "fog", 2, [7]), (0, "snow", 2, [7]), (0, "fog", 3, [7]), (0, "fog", 2, [8])])
def test_seed_corruption_severity_and_index_all_count(other):
    first = Streams(0, "fog", 2, [7]).uniform(100)
    assert not np.isclose(first, Streams(*other).uniform(100)).any()


def test_draws_have_their_distributions():
    streams = Streams(0, "x", 1, range(20))
    uniform = streams.uniform(5000, low=-3.0, high=5.0)
    assert uniform.min() >= -3
    assert uniform.max() < 5
    assert uniform.mean() == pytest.approx(1.0, abs=0.05)
    assert streams.normal(5000).std() == pytest.approx(1.0, abs=0.02)
    assert np.unique(streams.integers(-2, 2, 100)).tolist() == [-2, -1, 0, 1]
    assert streams.poisson(np.full((20, 5000), 7.0)).var() == pytest.approx(7.0, rel=0.03)


def test_negative_and_huge_seeds_and_indices_are_taken():
    assert Streams(-1, "x", 1, [2**70, -1]).uniform(2).shape == (2, 2)


def test_large_and_negative_indices_have_streams_of_their_own():
    indices = [5, 5 + 2**32, 5 + 2**63, -5]
    drawn = {tuple(row) for row in Streams(0, "fog", 3, indices).uniform(4).tolist()}
    assert len(drawn) == len(indices)
