"""Images of new places: found by their folders, labelled by the network's classes."""

import numpy as np
import pytest
from PIL import Image

from asrnorm.core.errors import InputError, UnknownNameError
from asrnorm.data.labelled_folder import open_places

CLASSES = ("dog", "cat", "elk")


def put(root, *names):
    for number, name in enumerate(names):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((4, 4, 3), 10 * number, np.uint8)).save(path)


def test_a_place_may_lack_classes_and_its_labels_are_the_networks(tmp_path):
    put(tmp_path, "cat/0.png", "cat/1.png", "dog/0.png")
    ((name, data),) = open_places(tmp_path, CLASSES, (8, 6)).items()
    assert name == tmp_path.name
    assert data.labels.tolist() == [1, 1, 0]
    assert data.read(1).shape == (8, 6, 3)
    assert data.read(1).max() == 10


def test_several_places_each_with_its_own_classes(tmp_path):
    put(tmp_path, "north/dog/0.png", "south/cat/0.png", "south/elk/sub/0.png")
    places = open_places(tmp_path, CLASSES, (4, 4))
    assert {name: data.labels.tolist() for name, data in places.items()} == {"north": [0], "south": [1, 2]}


def test_classes_are_known_by_their_names_however_deep_their_images_lie(tmp_path):
    put(tmp_path, "cat/0.png", *(f"{name}/more/{number}.png" for name in ("cat", "dog") for number in range(5)))
    put(tmp_path, "dog/0.png")
    ((name, data),) = open_places(tmp_path, CLASSES, (4, 4)).items()
    assert (name, len(data)) == (tmp_path.name, 12)


def test_an_image_beside_the_classes_of_a_place_makes_it_no_class(tmp_path, caplog):
    put(tmp_path, "north/dog/0.png", "north/cat/0.png", "south/cat/0.png", "north/beside.png")
    assert list(open_places(tmp_path, CLASSES, (4, 4))) == ["north", "south"]
    assert "north: images in no folder of a class are passed over: beside.png" in caplog.text


@pytest.mark.parametrize("place", ["", "north/"])
def test_an_empty_class_is_passed_over_and_named(tmp_path, caplog, place):
    put(tmp_path, f"{place}dog/0.png")
    (tmp_path / place / "cat").mkdir()
    ((_, data),) = open_places(tmp_path, CLASSES, (4, 4)).items()
    assert data.labels.tolist() == [0]
    assert caplog.messages == [f"{tmp_path}: folders of classes without an image are passed over: {place}cat"]


def test_a_place_without_any_image_is_told_of_where_it_is_scored(tmp_path):
    put(tmp_path, "north/dog/0.png")
    (tmp_path / "south" / "cat").mkdir(parents=True)
    (tmp_path / "notes").mkdir()
    assert {name: len(data) for name, data in open_places(tmp_path, CLASSES, (4, 4)).items()} == {
        "north": 1,
        "south": 0,
    }


def test_an_image_of_two_classes_is_refused(tmp_path):
    put(tmp_path, "cat/0.png", "dog/0.png")
    (tmp_path / "cat" / "also").symlink_to(tmp_path / "dog")
    with pytest.raises(InputError, match=r"cat/also/0\.png and dog/0\.png are one file; remove the link"):
        open_places(tmp_path, CLASSES, (4, 4))


def test_nothing_but_empty_classes_is_one_line(tmp_path, caplog):
    (tmp_path / "dog").mkdir()
    with pytest.raises(InputError, match="no images in it; expected <class>/<image>"):
        open_places(tmp_path, CLASSES, (4, 4))
    assert not caplog.messages


def test_a_table_names_places(tmp_path):
    put(tmp_path, "a.png", "b.png")
    (tmp_path / "list.csv").write_text("path,label,domain\na.png,elk,north\nb.png,dog,south\n")
    places = open_places(tmp_path / "list.csv", CLASSES, (4, 4))
    assert {name: data.labels.tolist() for name, data in places.items()} == {"north": [2], "south": [0]}


@pytest.mark.parametrize("layout", ["{}/0.png", "north/{}/0.png"])
@pytest.mark.parametrize(("known", "found"), [("\u00c4pfel", "A\u0308pfel"), ("A\u0308pfel", "\u00c4pfel")])
def test_a_class_is_known_in_either_unicode_form(tmp_path, layout, known, found):
    put(tmp_path, layout.format(found))
    ((name, data),) = open_places(tmp_path, ("dog", known), (4, 4)).items()
    assert name == ("north" if "north" in layout else tmp_path.name)
    assert data.labels.tolist() == [1]


@pytest.mark.parametrize("names", [("dgo/0.png",), ("dog/0.png", "dgo/0.png"), ("north/dgo/0.png", "north/dog/0.png")])
def test_a_class_that_the_network_does_not_know_is_named(tmp_path, names):
    put(tmp_path, *names)
    with pytest.raises(UnknownNameError, match=r"unknown class of '\S+', 'dgo'; did you mean 'dog'"):
        open_places(tmp_path, CLASSES, (4, 4))


@pytest.mark.parametrize(("name", "line"), [("no", "no such folder; expected"), ("", "no folders in it; expected")])
def test_nothing_there_is_a_line_with_what_is_expected(tmp_path, name, line):
    with pytest.raises(InputError, match=line + " <class>/<image> of one place or <place>/<class>/<image>"):
        open_places(tmp_path / name, CLASSES, (4, 4))
