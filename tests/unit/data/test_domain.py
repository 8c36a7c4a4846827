"""The choice of source and target domains."""

import pytest

from asrnorm.core.errors import InputError, UnknownNameError, WrongCallError
from asrnorm.data.suites.base import choose_domains

KNOWN = ("art", "cartoon", "photo", "sketch")


@pytest.mark.parametrize(
    ("source", "target", "sources", "targets"),
    [
        ("photo", None, ("photo",), ("art", "cartoon", "sketch")),
        (None, "photo", ("art", "cartoon", "sketch"), ("photo",)),
        ("photo,art", None, ("photo", "art"), ("cartoon", "sketch")),
        (["photo"], ["sketch"], ("photo",), ("sketch",)),
        ("photo", ("art", "art"), ("photo",), ("art",)),
    ],
)
def test_what_is_not_named_goes_to_the_other_side(source, target, sources, targets):
    assert choose_domains(KNOWN, source, target, suite="pacs") == (sources, targets)


@pytest.mark.parametrize(
    ("source", "target", "error", "message"),
    [
        ("photos", None, UnknownNameError, "did you mean 'photo'"),
        (None, None, InputError, "choose what to train on among art, cartoon, photo, sketch: --source NAME"),
        ("", " , ", InputError, "choose what to train on"),
        ("photo", "photo", InputError, "photo cannot be source and target at once"),
        ("art,cartoon,photo,sketch", None, InputError, "no target domain is left"),
        (None, KNOWN, InputError, "no source domain is left"),
    ],
)
def test_choices_that_leave_nothing_are_refused(source, target, error, message):
    with pytest.raises(error, match=message):
        choose_domains(KNOWN, source, target, suite="pacs")


def test_of_a_single_domain_there_is_nothing_to_choose():
    assert choose_domains(["day"], None, None, suite="folder", needs_target=False) == (("day",), ())
    with pytest.raises(WrongCallError, match="choose what to train on among day"):
        choose_domains(["day"], None, None, suite="pacs")
    with pytest.raises(WrongCallError, match="no source domain is left"):
        choose_domains(["day"], None, "day", suite="folder", needs_target=False)


@pytest.mark.parametrize("name", ["Bern, day", " shed", "shed ", "a,b,"])
def test_a_domain_with_a_comma_or_a_space_at_its_end_is_named_whole(name):
    known = (name, "day")
    assert choose_domains(known, name, None, suite="folder") == ((name,), ("day",))
    assert choose_domains(known, [name], ["day"], suite="folder") == ((name,), ("day",))
    assert choose_domains(known, "day", None, suite="folder") == (("day",), (name,))
    assert choose_domains(known, " day ", name, suite="folder") == (("day",), (name,))
