"""Text and other values become what their field is."""

from pathlib import Path

import numpy as np
import pytest

from asrnorm.core.config import override
from helpers.sample_config import make


@pytest.mark.parametrize(
    ("path", "text", "expected"),
    [
        ("steps", "500", 500),
        ("steps", "1e3", 1000),
        ("steps", "2000.0", 2000),
        ("seed", "-1", -1),
        ("shuffle", "false", False),
        ("compile", "yes", True),
        ("precision", "bfloat16", "bfloat16"),
        ("weights", "weights/r18.pth", "weights/r18.pth"),
        ("weights", "null", None),
        ("weights", "", None),
        ("weights", "C:/r18.pth", "C:/r18.pth"),
        ("device", "cuda:1", "cuda:1"),
        ("scale", "smoke", "smoke"),
    ],
)
def test_text_takes_the_type_of_its_field(path, text, expected):
    value = getattr(override(make(), {path: text}), path)
    assert value == expected
    assert type(value) is type(expected)


@pytest.mark.parametrize("text", ["1e-4", "1E-4", "0.0001", "1.0e-4", "+1e-4"])
def test_a_learning_rate_may_be_written_in_any_way(text):
    assert override(make(), {"optim.lr": text}).optim.lr == 1e-4


def test_a_whole_number_becomes_a_float_where_the_field_is_one():
    lr = override(make(), {"optim.lr": "1"}).optim.lr
    assert (lr, type(lr)) == (1.0, float)


@pytest.mark.parametrize(
    ("path", "text", "expected"),
    [
        ("method.interval", "1e3", 1000),  # as the int that stands there
        ("method.batch_share", "1", 1.0),  # as the float that stands there
        ("method.version", "v3", "v3"),
        ("method.clip", "true", True),
        ("method.new", "7", 7),
        ("method.new", "1e-2", 0.01),
        ("method.new", "[8, 16]", [8, 16]),
        ("method.new", "2020-01-01", "2020-01-01"),  # YAML's date
        ("method.new", "12:30", "12:30"),  # YAML's 750 seconds
        ("method.new", "key: value", "key: value"),  # YAML's mapping
        ("method.new", "nan", "nan"),
        ("method.new", "*star", "*star"),  # YAML's alias of nothing
        ("method.new", "@at", "@at"),
    ],
)
def test_options_of_a_choice_are_read_as_meant(path, text, expected):
    value = override(make(), {path: text}).method.args[path.partition(".")[2]]
    assert value == expected
    assert type(value) is type(expected)


def test_values_that_are_no_text_are_taken_as_they_are():
    config = override(make(), {"steps": 7, "weights": Path("a/b.pth"), "method.new": (1, 2)})
    assert (config.steps, config.weights, config.method.args["new"]) == (7, "a/b.pth", [1, 2])


def test_a_number_of_numpy_is_a_number():
    assert type(override(make(), {"seed": np.int64(3)}).seed) is int
    assert override(make(), {"seed": np.int64(3)}).seed == 3
