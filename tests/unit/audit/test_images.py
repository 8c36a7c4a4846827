"""Images are read evenly over classes; every class finds its output."""

import json
from collections import Counter

import pytest

from asrnorm.audit.images import knows_classes, map_classes, read_images
from asrnorm.core.errors import InputError
from helpers.audited import make_folder


def test_images_are_spread_evenly_over_classes(tmp_path):
    make_folder(tmp_path / "data", per_class=5, side=8)
    images = read_images(tmp_path / "data", (16, 16), limit=7)
    assert images.images.shape == (7, 16, 16, 3)
    assert sorted(Counter(images.labels.tolist()).values()) == [2, 2, 3]
    assert images.classes == ("blue", "green", "red")
    assert images.num_found == 15


def test_an_unreadable_image_is_left_out_and_counted(tmp_path):
    make_folder(tmp_path / "data", per_class=2, side=8)
    (tmp_path / "data" / "green" / "1.png").write_bytes(b"no image")
    images = read_images(tmp_path / "data", (8, 8))
    assert len(images) == 5
    assert len(images.skipped) == 1
    assert "green/1.png: cannot be read as an image" in images.skipped[0]


def test_the_fingerprint_follows_pixels_and_labels_not_places(tmp_path):
    first = read_images(make_folder(tmp_path / "a", side=8), (8, 8)).fingerprint
    assert read_images(make_folder(tmp_path / "b", side=8), (8, 8)).fingerprint == first
    assert read_images(tmp_path / "b", (8, 8), limit=6).fingerprint != first
    (tmp_path / "b" / "red" / "0.png").rename(tmp_path / "b" / "blue" / "9.png")
    assert read_images(tmp_path / "b", (8, 8)).fingerprint != first


def test_the_domains_of_a_table_need_not_share_their_classes(tmp_path, caplog):
    make_folder(tmp_path / "data", per_class=1, side=8)
    rows = [("blue", "north"), ("green", "north"), ("red", "south")]
    lines = ["path,label,domain", *(f"data/{label}/0.png,{label},{domain}" for label, domain in rows)]
    (tmp_path / "table.csv").write_text("\n".join(lines) + "\n")
    images = read_images(tmp_path / "table.csv", (8, 8))
    assert images.classes == ("blue", "green", "red")
    assert images.labels.tolist() == [0, 1, 2]
    assert "images of several domains are audited together: north, south" in caplog.text


def test_names_in_two_unicode_forms_are_one_class(tmp_path):
    make_folder(tmp_path / "data", per_class=2, side=8)
    rows = [("blue/0", "Birne", "n"), ("red/0", "\u00c4pfel", "n"), ("red/1", "A\u0308pfel", "s")]
    lines = ["path,label,domain", *(f"data/{path}.png,{label},{domain}" for path, label, domain in rows)]
    (tmp_path / "table.csv").write_text("\n".join(lines) + "\n")
    assert sorted(Counter(read_images(tmp_path / "table.csv", (8, 8)).labels.tolist()).values()) == [1, 2]


def test_folders_keep_the_order_of_their_own_spelling(tmp_path):
    """A model without names of its outputs may have been trained on these very folders, sorted."""
    make_folder(tmp_path / "data", classes=("red", "green"), side=8)
    for name, new in (("red", "A\u0308pfel"), ("green", "Birne")):
        (tmp_path / "data" / name).rename(tmp_path / "data" / new)
    assert read_images(tmp_path / "data", (8, 8)).classes == ("A\u0308pfel", "Birne")


@pytest.mark.parametrize(
    ("make", "line"),
    [
        (lambda path: None, "no such folder"),
        (lambda path: path.mkdir(), "no images in it"),
        (lambda path: make_folder(path, classes=("red",), side=8), r"one class \(red\)"),
        (lambda path: make_folder(path / "photo", side=8), "give one domain"),
    ],
)
def test_what_cannot_be_read_is_one_line(tmp_path, make, line):
    make(tmp_path / "data")
    with pytest.raises(InputError, match=line):
        read_images(tmp_path / "data", (8, 8))


def test_an_empty_class_folder_is_skipped_and_named(tmp_path, caplog):
    make_folder(tmp_path / "data", per_class=1, side=8)
    (tmp_path / "data" / "pink").mkdir()
    assert read_images(tmp_path / "data", (8, 8)).classes == ("blue", "green", "red")
    assert [message.rpartition(": ")[2] for message in caplog.messages] == ["pink"]


def test_nothing_readable_names_the_first_file(tmp_path):
    make_folder(tmp_path / "data", per_class=1, side=8)
    for path in (tmp_path / "data").rglob("*.png"):
        path.write_bytes(b"")
    with pytest.raises(InputError, match=r"none of 3 images can be read; the first: .*0.png"):
        read_images(tmp_path / "data", (8, 8))


def test_an_image_of_two_classes_is_refused(tmp_path):
    make_folder(tmp_path / "data", per_class=2, side=8)
    (tmp_path / "data" / "blue" / "also").symlink_to(tmp_path / "data" / "red")
    with pytest.raises(InputError, match="are one file; remove the link"):
        read_images(tmp_path / "data", (8, 8))


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
    with pytest.raises(InputError, match=r"output 2 may be folder 2, or 10 .* give --classes FILE"):
        map_classes(numbers, 11)
    with pytest.raises(InputError, match=r"output 0 may be folder 9, or 10 "):
        map_classes(["9", "10"], 2)
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
