import re

import numpy as np
import pytest

from asrnorm.core.errors import InputError, InputTypeError, UnknownNameError
from asrnorm.core.registry import Registry


@pytest.fixture
def shapes():
    registry = Registry("shape")

    @registry.register("square")
    def square(size, *, side=1.0, unit="m"):
        """A square.

        More about it.
        """

    return registry


def test_a_name_that_is_taken_is_refused(shapes):
    with pytest.raises(ValueError, match="shape 'square' is registered already"):
        shapes.register("square")(lambda: None)


def test_a_wrong_name_is_answered_with_the_right_one(shapes):
    with pytest.raises(UnknownNameError) as caught:
        shapes["sqare"]
    assert str(caught.value) == "unknown shape 'sqare'; did you mean 'square'? Known: square"
    with pytest.raises(KeyError, match="known: square"):
        shapes["zzz"]


def test_options_are_the_keyword_only_parameters(shapes):
    assert list(shapes.options("square")) == ["side", "unit"]
    shapes.check("square", {"side": 2.0})
    with pytest.raises(UnknownNameError, match="unknown option of shape 'square', 'sides'; did you mean 'side'"):
        shapes.check("square", {"sides": 2.0})


def test_it_lists_and_describes(shapes):
    assert shapes.names() == ("square",)
    assert list(shapes) == ["square"]
    assert len(shapes) == 1
    assert "square" in shapes
    assert shapes.summary("square") == "A square."


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"count": "abc"}, "option 'count' of thing 'typed' must be int, not 'abc'"),
        ({"count": 2.5}, "option 'count' of thing 'typed' must be int, not 2.5"),
        ({"count": True}, "option 'count' of thing 'typed' must be int, not True"),
        ({"share": "x"}, "option 'share' of thing 'typed' must be float, not 'x'"),
        ({"most": "x"}, "option 'most' of thing 'typed' must be int or null, not 'x'"),
        ({"loud": 1}, "option 'loud' of thing 'typed' must be bool, not 1"),
        ({"word": 5}, "option 'word' of thing 'typed' must be str, not 5"),
        ({"pair": 3}, "option 'pair' of thing 'typed' must be [int, int], not 3"),
        ({"pair": "ab"}, "option 'pair' of thing 'typed' must be [int, int], not 'ab'"),
        ({"pair": [4]}, "option 'pair' of thing 'typed' must be [int, int], not [4]"),
        ({"pair": [4, "x"]}, "option 'pair' of thing 'typed' must be [int, int], not [4, 'x']"),
        ({"pair": [4, True]}, "option 'pair' of thing 'typed' must be [int, int], not [4, True]"),
        ({"side": [2.5, 3]}, "option 'side' of thing 'typed' must be int or [int, int], not [2.5, 3]"),
    ],
)
def test_options_of_another_kind_are_one_line(options, line):
    with pytest.raises(InputError, match=f"^{re.escape(line)}$"):
        typed().check("typed", options)


def test_numbers_are_taken_as_python_takes_them_and_other_kinds_are_left_to_the_entry():
    typed().check(
        "typed",
        {"count": np.int64(3), "share": 2, "most": None, "loud": False, "word": "a", "sizes": "?", "names": ["a"]},
    )


@pytest.mark.parametrize("options", [{"pair": [4, 8]}, {"pair": (4, np.int64(8))}, {"side": 3}, {"side": [3, 4]}])
def test_a_pair_is_taken_as_list_or_tuple(options):
    typed().check("typed", options)


def typed():
    things = Registry("thing")

    @things.register("typed")
    class Typed:
        def __init__(
            self,
            *,
            count: int = 0,
            share: float = 0.5,
            most: int | None = None,
            loud: bool = False,
            word: str = "",
            pair: tuple[int, int] = (1, 2),
            side: int | tuple[int, int] = 1,
            sizes: tuple[int, ...] = (),
            names: list[str] | None = None,
        ) -> None: ...

    return things


def test_what_a_thing_of_this_package_takes_first_is_no_option_and_no_advice_is_given_on_its_signature():
    from asrnorm.norms import NORMS

    with pytest.raises(UnknownNameError, match="unknown option of norm 'asr', 'num_features'; did you mean"):
        NORMS.check("asr", {"num_features": 8})


@pytest.mark.parametrize("wrong", [dict, 3, ["square"], None], ids=str)
def test_what_is_no_name_is_refused_in_one_line(shapes, wrong):
    with pytest.raises(InputTypeError):
        shapes.check(wrong, {})


def test_a_whole_number_of_more_than_64_bits_is_refused_before_torch_sees_it():
    shapes = Registry("shape")

    @shapes.register("square")
    def square(*, side: int = 1, ratio: float = 1.0): ...

    shapes.check("square", {"side": 2**63 - 1, "ratio": -(2**63)})
    with pytest.raises(InputError, match="float32"):
        shapes.check("square", {"ratio": -1e308})
    for option in ("side", "ratio"):
        with pytest.raises(InputError, match=option):
            shapes.check("square", {option: 10**20})
