import pytest

from asrnorm.errors import UnknownNameError
from asrnorm.registry import Registry


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
