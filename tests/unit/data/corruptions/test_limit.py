from numbers import Real

import numpy as np
import pytest

from asrnorm.core.errors import InputError
from asrnorm.data.corruptions import CORRUPTIONS, corrupt, list_corruptions
from asrnorm.data.corruptions import weather as frost
from asrnorm.data.corruptions.severity import _LIMITS, _NARROWER, PRESETS, check_limits, check_side, severity_options

IMAGES = np.random.default_rng(0).integers(0, 256, (2, 24, 32, 3), dtype=np.uint8)
IMAGES[1] = 0  # a black image divides by zero first
NUMBERS = [
    (name, option)
    for name in list_corruptions()
    for option, value in severity_options(name, 3, "cifar").items()
    if not isinstance(value, bool)
]


@pytest.fixture(autouse=True)
def _frost(monkeypatch):
    """Six made-up pictures, so that frost needs no download."""
    pictures = tuple(np.random.default_rng(1).integers(0, 256, (6, 40, 50, 3), dtype=np.uint8))
    monkeypatch.setattr(frost, "frost_pictures", lambda _source: pictures)
    frost._scaled_pictures.cache_clear()
    yield
    frost._scaled_pictures.cache_clear()


def limits(name, option):
    return _NARROWER.get((name, option)) or _LIMITS[option]


@pytest.mark.parametrize(("name", "option"), NUMBERS)
def test_at_its_bounds_a_number_still_makes_images(name, option):
    kind = type(severity_options(name, 3, "cifar")[option])
    for bound in limits(name, option):
        value = int(bound) if kind is int and float(bound).is_integer() else bound
        corrupted = corrupt(IMAGES, name, **{option: value})
        assert corrupted.shape == IMAGES.shape
        assert corrupted.dtype == np.uint8


@pytest.mark.parametrize(("name", "option"), NUMBERS)
@pytest.mark.parametrize("far", ["below", "above", "nan"])
def test_beyond_them_one_line_says_what_it_may_be(name, option, far):
    least, most = limits(name, option)
    value = {"below": least - 1, "above": most + 1, "nan": float("nan")}[far]
    with pytest.raises(InputError, match=f"^option '{option}' of corruption '{name}' must be") as caught:
        corrupt(IMAGES, name, **{option: int(value) if value == value and float(value).is_integer() else value})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("preset", PRESETS)
def test_the_published_numbers_lie_within(preset):
    for name, rows in PRESETS[preset].items():
        for row in rows:
            check_limits(name, row)


def test_every_limit_is_of_an_option_there_is():
    options = {option for name in list_corruptions() for option in CORRUPTIONS.options(name)}
    assert set(_LIMITS) <= options
    assert all(option in CORRUPTIONS.options(name) for name, option in _NARROWER)
    assert all(isinstance(bound, Real) and bound == bound for bounds in _LIMITS.values() for bound in bounds)


@pytest.mark.parametrize("number", [np.float32(-0.5), np.int64(-1)], ids=str)
def test_numbers_of_numpy_are_looked_at_too(number):
    with pytest.raises(InputError, match="must be from 0 to 1, not -"):
        check_limits("impulse_noise", {"amount": number})


@pytest.mark.parametrize("name", ["fog", "frost"])
@pytest.mark.parametrize("shape", [(1, 1, 8193, 3), (1, 8193, 1, 3)])
def test_images_too_long_for_the_memory_are_refused(name, shape):
    with pytest.raises(InputError, match="at most 8,192 pixels a side"):
        corrupt(np.zeros(shape, np.uint8), name)


def test_other_corruptions_take_images_of_any_length():
    check_side("brightness", 1, 100_000)
    assert corrupt(np.zeros((1, 1, 9000, 3), np.uint8), "brightness").shape == (1, 1, 9000, 3)
