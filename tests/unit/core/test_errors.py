"""Lines for people: the nearest name, and no more than one line of what a library said."""

import pytest

from asrnorm.core.errors import (
    AsrnormError,
    ConversionError,
    FetchError,
    InputError,
    InputTypeError,
    UnknownNameError,
    describe_unknown,
    first_line,
    printable,
)


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("asrr", "unknown norm 'asrr'; did you mean 'asr'? Known: asr, bn"),
        ("xyz", "unknown norm 'xyz'; known: asr, bn"),
        ("", "unknown norm ''; known: asr, bn"),
    ],
)
def test_an_unknown_name_is_answered_with_the_nearest_and_all(name, line):
    assert describe_unknown("norm", name, ["bn", "asr"]) == line


def test_where_nothing_is_known_that_is_said():
    assert describe_unknown("option of method 'erm',", "penalty", []) == (
        "unknown option of method 'erm', 'penalty'; there is none"
    )


def test_of_many_lines_the_first_counts_and_of_a_long_one_its_start():
    assert first_line(ValueError("\n  no kernel  \nand more")) == "no kernel"
    assert first_line(KeyError()) == "KeyError"
    assert 100 < len(first_line(ValueError("x" * 10_000))) < 1_000


@pytest.mark.parametrize("kind", [ConversionError, FetchError, InputError, InputTypeError, UnknownNameError])
def test_whoever_catches_one_catches_all(kind):
    assert issubclass(kind, AsrnormError)


def test_they_are_what_python_would_have_raised_too():
    assert issubclass(InputError, ValueError)
    assert issubclass(InputTypeError, TypeError)


def test_control_characters_are_escaped_for_a_terminal():
    assert printable("svhn\x1b[2J\u202e") == "svhn\\x1b[2J\\u202e"
