import json

import pytest

from asrnorm.audit.class_map import knows_classes, map_classes
from asrnorm.core.errors import InputError


def write(path, content):
    path.write_text(json.dumps(content))
    return path


@pytest.mark.parametrize(
    "content",
    [
        ["bird", "cat", "dog"],
        {"dog": 2, "bird": 0, "cat": 1},
        {"0": ["n1", "bird"], "1": ["n2", "cat"], "2": ["n3", "dog"]},
        {"0": "bird", "1": "cat", "2": "dog"},
    ],
)
def test_a_file_says_which_output_a_folder_is(tmp_path, content):
    assert map_classes(["cat", "dog"], 3, file=write(tmp_path / "c.json", content)) == {"cat": 1, "dog": 2}


def test_a_name_of_several_outputs_is_refused_where_a_folder_has_it(tmp_path):
    names = {"0": ["n02012849", "crane"], "1": ["n03126707", "crane"], "2": ["n02123045", "tabby"]}
    file = write(tmp_path / "c.json", names)
    with pytest.raises(InputError, match="has several outputs called crane; name the folder by what tells them apart"):
        map_classes(["crane", "tabby"], 3, file=file)
    assert map_classes(["n03126707", "tabby"], 3, file=file) == {"n03126707": 1, "tabby": 2}


def test_numbers_that_differ_are_one_line():
    with pytest.raises(
        InputError, match=r"the model has 1000 outputs, the images 2 classes \(cat, dog\); give --classes"
    ):
        map_classes(["cat", "dog"], 1000)


def test_a_run_is_matched_by_name_not_by_order():
    assert map_classes(["a", "c"], 3, names=["c", "b", "a"]) == {"a": 2, "c": 0}
    with pytest.raises(InputError, match="the classes of the run: has no d"):
        map_classes(["a", "d"], 3, names=["c", "b", "a"])


@pytest.mark.parametrize(("known", "folder"), [("\u00c4pfel", "A\u0308pfel"), ("A\u0308pfel", "\u00c4pfel")])
def test_names_are_matched_in_either_unicode_form(tmp_path, known, folder):
    assert map_classes([folder], 2, names=["b", known]) == {folder: 1}
    for content in (["b", known], {"b": 0, known: 1}, {"0": "b", "1": ["n1", known]}):
        assert map_classes([folder], 2, file=write(tmp_path / "c.json", content)) == {folder: 1}
    assert knows_classes([folder], ["b", known])


def test_a_file_for_another_model_does_not_rename_the_outputs_of_a_run(tmp_path):
    file = write(tmp_path / "c.json", ["a", "c", "b"])
    assert map_classes(["a", "c"], 3, names=["c", "b", "a"], file=file) == {"a": 2, "c": 0}
    others = write(tmp_path / "d.json", {"d": 1, "e": 0})
    assert map_classes(["d", "e"], 3, names=["c", "b", "a"], file=others) == {"d": 1, "e": 0}


def test_folders_of_numbers_are_no_order_of_outputs_where_text_would_be_another(tmp_path):
    numbers = [str(number) for number in range(11)]
    with pytest.raises(InputError, match=r"whether output 2 is folder 2, or 10 as .* give --classes FILE"):
        map_classes(numbers, 11)
    assert map_classes(numbers[:10], 10)["9"] == 9, "one order for ten"
    assert map_classes(numbers, 11, file=write(tmp_path / "c.json", numbers))["10"] == 10


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (["cat"], "has no dog; it has cat"),
        ({"cat": 0, "dog": 7}, "dog is output 7, but the model has 0 to 1"),
        ({"cat": 0, "dog": -1}, "dog is output -1"),
        ("cat", "expected a list of names"),
        ({"cat": [0]}, "expected a list of names"),
    ],
)
def test_a_file_that_does_not_fit_is_one_line(tmp_path, content, line):
    with pytest.raises(InputError, match=line):
        map_classes(["cat", "dog"], 2, file=write(tmp_path / "c.json", content))


def test_a_file_that_is_no_json(tmp_path):
    (tmp_path / "c.json").write_text("cat: 0")
    with pytest.raises(InputError, match=r"c.json: not JSON"):
        map_classes(["cat"], 1, file=tmp_path / "c.json")
    with pytest.raises(InputError, match="no such file"):
        map_classes(["cat"], 1, file=tmp_path / "gone.json")
