"""What all suites share: constructors only store, targets are decoded when asked for."""

from pathlib import Path

import numpy as np
import pytest

from asrnorm.core.errors import InputError, UnknownNameError, WrongCallError
from asrnorm.data import SUITES, ImageSet, Part, Suite, create_suite
from asrnorm.data.suites.base import choose_domains, find_first, split_names, warn_of_count

KNOWN = ("art", "cartoon", "photo", "sketch")
ONE = ImageSet(np.zeros((1, 2, 2, 3), np.uint8), np.zeros(1, np.int64))


class Counting(Suite):
    name = "counting"
    classes = ("a",)
    image_size = (2, 2)
    sources = ("here",)
    target_names = ("x", "y")

    def __init__(self, *, root=None):
        super().__init__(root=root)
        self.loaded = []

    def parts(self):
        return (Part("here", "source", True, ""), Part("z", "target", False, "it is lost"))

    def load_train(self):
        self.loaded.append("train")
        return ONE

    def load_validation(self):
        return None

    def load_source_test(self):
        return ONE

    def load_target(self, name):
        self.loaded.append(name)
        return ONE


def test_targets_are_decoded_once_and_only_when_asked_for():
    suite = Counting()
    assert list(suite.targets) == ["x", "y"]
    assert "x" in suite.targets
    assert len(suite.targets) == 2
    assert suite.loaded == []
    assert suite.targets["x"] is suite.targets["x"]
    assert suite.train is suite.train
    assert suite.loaded == ["x", "train"]
    suite.prepare()
    assert suite.loaded == ["x", "train", "y"]


def test_a_missing_target_gives_its_reason_and_a_wrong_one_the_nearest():
    with pytest.raises(UnknownNameError, match="it is lost"):
        Counting().targets["z"]
    with pytest.raises(UnknownNameError, match="known: x, y"):
        Counting().targets["w"]


@pytest.mark.parametrize("name", SUITES.names())
def test_a_constructor_touches_no_file(name, monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("touched the disk")

    for method in ("open", "exists", "is_dir", "is_file", "stat", "iterdir"):
        monkeypatch.setattr(Path, method, refuse)
    create_suite(name, root="/nowhere")


def test_the_root_is_the_data_folder_unless_given(monkeypatch, tmp_path):
    monkeypatch.setenv("ASRNORM_DATA", str(tmp_path))
    assert create_suite("digits").root == tmp_path
    assert create_suite("digits", root=tmp_path / "x").root == tmp_path / "x"


def test_wrong_names_and_options_are_answered():
    with pytest.raises(UnknownNameError, match="did you mean 'digits'"):
        create_suite("digit")
    with pytest.raises(UnknownNameError, match="did you mean 'subset'"):
        create_suite("digits", subsets="ada")


def test_a_folder_that_cannot_be_looked_into_is_one_line(tmp_path, monkeypatch):
    def refuse(_):
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "stat", refuse)
        with pytest.raises(InputError, match="x: Permission denied"):
            find_first(tmp_path, "x")


def test_a_folder_named_like_a_file_is_skipped(tmp_path):
    (tmp_path / "a-ubyte").mkdir()
    (tmp_path / "a.ubyte").touch()
    assert find_first(tmp_path, "a-ubyte", "a.ubyte/x", "a.ubyte") == tmp_path / "a.ubyte"


def test_another_number_of_images_than_the_published_is_a_warning(tmp_path, caplog):
    warn_of_count(tmp_path / "usps.t", 2_007, 2_007)
    assert not caplog.records
    warn_of_count(tmp_path / "usps.t", 1_035, 2_007)
    assert "usps.t: 1,035 images, published are 2,007" in caplog.text


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
    ("source", "target", "error", "value"),
    [
        ("photos", None, UnknownNameError, "'photo'"),
        (None, None, WrongCallError, "--source NAME"),
        ("", " , ", WrongCallError, "--source NAME"),
        ("photo", "photo", WrongCallError, "photo"),
        ("art,cartoon,photo,sketch", None, WrongCallError, "target"),
        (None, KNOWN, WrongCallError, "source"),
    ],
)
def test_choices_that_leave_nothing_are_refused(source, target, error, value):
    with pytest.raises(error, match=value):
        choose_domains(KNOWN, source, target, suite="pacs")


def test_of_a_single_domain_there_is_nothing_to_choose():
    assert choose_domains(["day"], None, None, suite="folder", needs_target=False) == (("day",), ())
    with pytest.raises(WrongCallError):
        choose_domains(["day"], None, None, suite="pacs")
    with pytest.raises(WrongCallError):
        choose_domains(["day"], None, "day", suite="folder", needs_target=False)


@pytest.mark.parametrize("name", ["Bern, day", " shed", "shed ", "a,b,"])
def test_a_domain_with_a_comma_or_a_space_at_its_end_is_named_whole(name):
    known = (name, "day")
    assert choose_domains(known, name, None, suite="folder") == ((name,), ("day",))
    assert choose_domains(known, [name], ["day"], suite="folder") == ((name,), ("day",))
    assert choose_domains(known, "day", None, suite="folder") == (("day",), (name,))
    assert choose_domains(known, " day ", name, suite="folder") == (("day",), (name,))


@pytest.mark.parametrize("root", ["a\0b", "\ud800"])
def test_a_root_that_no_path_can_be_is_one_line(root):
    with pytest.raises(InputError, match="no path can have"):
        create_suite("digits", root=root)


@pytest.mark.parametrize("names", [5, 0.5, True, [1], [["photo"]], {"a": 1}])
def test_domains_are_names(names):
    with pytest.raises(InputError, match="domains are names"):
        split_names(names)
