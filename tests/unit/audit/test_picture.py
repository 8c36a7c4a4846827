from collections import Counter

import pytest

from asrnorm.audit.picture import read_pictures
from asrnorm.core.errors import InputError
from helpers.audited import make_folder


def test_images_are_spread_evenly_over_classes(tmp_path):
    make_folder(tmp_path / "data", per_class=5, side=8)
    pictures = read_pictures(tmp_path / "data", (16, 16), limit=7)
    assert pictures.images.shape == (7, 16, 16, 3)
    assert sorted(Counter(pictures.labels.tolist()).values()) == [2, 2, 3]
    assert pictures.classes == ("blue", "green", "red")
    assert pictures.keys[0] == "blue/0.png"
    assert pictures.num_found == 15


def test_an_unreadable_image_is_left_out_and_counted(tmp_path):
    make_folder(tmp_path / "data", per_class=2, side=8)
    (tmp_path / "data" / "green" / "1.png").write_bytes(b"no image")
    pictures = read_pictures(tmp_path / "data", (8, 8))
    assert len(pictures) == 5
    assert len(pictures.skipped) == 1
    assert "green/1.png: cannot be read as an image" in pictures.skipped[0]


def test_the_fingerprint_follows_pixels_and_labels_not_places(tmp_path):
    first = read_pictures(make_folder(tmp_path / "a", side=8), (8, 8)).fingerprint
    assert read_pictures(make_folder(tmp_path / "b", side=8), (8, 8)).fingerprint == first
    assert read_pictures(tmp_path / "b", (8, 8), limit=6).fingerprint != first
    (tmp_path / "b" / "red" / "0.png").rename(tmp_path / "b" / "blue" / "9.png")
    assert read_pictures(tmp_path / "b", (8, 8)).fingerprint != first


def test_the_domains_of_a_table_need_not_share_their_classes(tmp_path, caplog):
    make_folder(tmp_path / "data", per_class=1, side=8)
    rows = [("blue", "north"), ("green", "north"), ("red", "south")]
    lines = ["path,label,domain", *(f"data/{label}/0.png,{label},{domain}" for label, domain in rows)]
    (tmp_path / "table.csv").write_text("\n".join(lines) + "\n")
    pictures = read_pictures(tmp_path / "table.csv", (8, 8))
    assert pictures.classes == ("blue", "green", "red")
    assert pictures.labels.tolist() == [0, 1, 2]
    assert "images of several domains are audited together: north, south" in caplog.text


def test_names_in_two_unicode_forms_are_one_class(tmp_path):
    make_folder(tmp_path / "data", per_class=2, side=8)
    rows = [("blue/0", "Birne", "n"), ("red/0", "\u00c4pfel", "n"), ("red/1", "A\u0308pfel", "s")]
    lines = ["path,label,domain", *(f"data/{path}.png,{label},{domain}" for path, label, domain in rows)]
    (tmp_path / "table.csv").write_text("\n".join(lines) + "\n")
    assert sorted(Counter(read_pictures(tmp_path / "table.csv", (8, 8)).labels.tolist()).values()) == [1, 2]


def test_folders_keep_the_order_of_their_own_spelling(tmp_path):
    """A model without names of its outputs may have been trained on these very folders, sorted."""
    make_folder(tmp_path / "data", classes=("red", "green"), side=8)
    for name, new in (("red", "A\u0308pfel"), ("green", "Birne")):
        (tmp_path / "data" / name).rename(tmp_path / "data" / new)
    assert read_pictures(tmp_path / "data", (8, 8)).classes == ("A\u0308pfel", "Birne")


@pytest.mark.parametrize(
    ("make", "line"),
    [
        (lambda path: None, "no such folder"),
        (lambda path: path.mkdir(), "no images in it"),
        (lambda path: make_folder(path, classes=("red",), side=8), r"one class \(red\)"),
        (lambda path: make_folder(path / "photo", side=8), "holds folders, not images.*give one domain"),
    ],
)
def test_what_cannot_be_read_is_one_line(tmp_path, make, line):
    make(tmp_path / "data")
    with pytest.raises(InputError, match=line):
        read_pictures(tmp_path / "data", (8, 8))


def test_an_empty_folder_of_a_class_is_passed_over_and_named(tmp_path, caplog):
    make_folder(tmp_path / "data", per_class=1, side=8)
    (tmp_path / "data" / "pink").mkdir()
    assert read_pictures(tmp_path / "data", (8, 8)).classes == ("blue", "green", "red")
    assert caplog.messages == [f"{tmp_path}/data: folders of classes without an image are passed over: pink"]


def test_nothing_readable_names_the_first_file(tmp_path):
    make_folder(tmp_path / "data", per_class=1, side=8)
    for path in (tmp_path / "data").rglob("*.png"):
        path.write_bytes(b"")
    with pytest.raises(InputError, match=r"none of 3 images can be read; the first: .*0.png"):
        read_pictures(tmp_path / "data", (8, 8))


def test_an_image_of_two_classes_is_refused(tmp_path):
    make_folder(tmp_path / "data", per_class=2, side=8)
    (tmp_path / "data" / "blue" / "also").symlink_to(tmp_path / "data" / "red")
    with pytest.raises(InputError, match="are one file; remove the link"):
        read_pictures(tmp_path / "data", (8, 8))
