"""What all suites share: constructors only store, targets are decoded when asked for."""

from pathlib import Path

import numpy as np
import pytest

from asrnorm.core.errors import InputError, UnknownNameError
from asrnorm.data import SUITES, ImageSet, Part, Suite, create_suite
from asrnorm.data.suites.base import find_first, note_count

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
    with pytest.raises(UnknownNameError, match="lacks its target z: it is lost"):
        Counting().targets["z"]
    with pytest.raises(UnknownNameError, match="unknown target of suite 'counting', 'w'; known: x, y"):
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
        with pytest.raises(InputError, match="x: Permission denied; check its permissions"):
            find_first(tmp_path, "x")


def test_a_folder_called_like_a_file_is_passed_over(tmp_path):
    (tmp_path / "a-ubyte").mkdir()
    (tmp_path / "a.ubyte").touch()
    assert find_first(tmp_path, "a-ubyte", "a.ubyte/x", "a.ubyte") == tmp_path / "a.ubyte"


def test_another_number_of_images_than_the_published_is_told(tmp_path, caplog):
    note_count(tmp_path / "usps.t", 2_007, 2_007)
    assert not caplog.records
    note_count(tmp_path / "usps.t", 1_035, 2_007)
    assert "usps.t: 1,035 images, 2,007 are published; numbers will be of these" in caplog.text
