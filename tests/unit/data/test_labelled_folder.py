"""Images of new domains: found by their folders, labelled by the network's classes."""

import numpy as np
import pytest
from PIL import Image

from asrnorm.core.errors import InputError, UnknownNameError
from asrnorm.data.labelled_folder import open_domains, split_unreadable

CLASSES = ("dog", "cat", "elk")


def put(root, *names):
    for number, name in enumerate(names):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((4, 4, 3), 10 * number, np.uint8)).save(path)


def test_a_domain_may_lack_classes_and_its_labels_are_the_networks(tmp_path):
    put(tmp_path, "cat/0.png", "cat/1.png", "dog/0.png")
    ((name, data),) = open_domains(tmp_path, CLASSES, (8, 6)).items()
    assert name == tmp_path.name
    assert data.labels.tolist() == [1, 1, 0]
    assert data.read(1).shape == (8, 6, 3)
    assert data.read(1).max() == 10


def test_several_domains_each_with_its_own_classes(tmp_path):
    put(tmp_path, "north/dog/0.png", "south/cat/0.png", "south/elk/sub/0.png")
    domains = open_domains(tmp_path, CLASSES, (4, 4))
    assert {name: data.labels.tolist() for name, data in domains.items()} == {"north": [0], "south": [1, 2]}


def test_classes_are_known_by_their_names_however_deep_their_images_lie(tmp_path):
    put(tmp_path, "cat/0.png", *(f"{name}/more/{number}.png" for name in ("cat", "dog") for number in range(5)))
    put(tmp_path, "dog/0.png")
    ((name, data),) = open_domains(tmp_path, CLASSES, (4, 4)).items()
    assert (name, len(data)) == (tmp_path.name, 12)


def test_an_image_beside_the_classes_of_a_domain_does_not_make_it_a_class(tmp_path, caplog):
    put(tmp_path, "north/dog/0.png", "north/cat/0.png", "south/cat/0.png", "north/beside.png")
    assert list(open_domains(tmp_path, CLASSES, (4, 4))) == ["north", "south"]
    assert "north: skipped images that are in no class folder: beside.png" in caplog.text


@pytest.mark.parametrize("domain", ["", "north/"])
def test_an_empty_class_is_skipped_and_named(tmp_path, caplog, domain):
    put(tmp_path, f"{domain}dog/0.png")
    (tmp_path / domain / "cat").mkdir()
    ((_, data),) = open_domains(tmp_path, CLASSES, (4, 4)).items()
    assert data.labels.tolist() == [0]
    assert caplog.messages[0].endswith(f"class folders without images: {domain}cat")
    assert "no images of cat" in caplog.messages[1]


def test_a_domain_without_any_image_is_returned(tmp_path):
    put(tmp_path, "north/dog/0.png")
    (tmp_path / "south" / "cat").mkdir(parents=True)
    (tmp_path / "notes").mkdir()
    assert {name: len(data) for name, data in open_domains(tmp_path, CLASSES, (4, 4)).items()} == {
        "north": 1,
        "south": 0,
    }


def test_an_image_of_two_classes_is_refused(tmp_path):
    put(tmp_path, "cat/0.png", "dog/0.png")
    (tmp_path / "cat" / "also").symlink_to(tmp_path / "dog")
    with pytest.raises(InputError, match=r"cat/also/0\.png and dog/0\.png"):
        open_domains(tmp_path, CLASSES, (4, 4))


def test_nothing_but_empty_classes_is_one_line(tmp_path, caplog):
    (tmp_path / "dog").mkdir()
    with pytest.raises(InputError, match="<class>/<image>"):
        open_domains(tmp_path, CLASSES, (4, 4))
    assert not caplog.messages


def test_a_table_names_domains(tmp_path):
    put(tmp_path, "a.png", "b.png")
    (tmp_path / "list.csv").write_text("path,label,domain\na.png,elk,north\nb.png,dog,south\n")
    domains = open_domains(tmp_path / "list.csv", CLASSES, (4, 4))
    assert {name: data.labels.tolist() for name, data in domains.items()} == {"north": [2], "south": [0]}


@pytest.mark.parametrize("layout", ["{}/0.png", "north/{}/0.png"])
@pytest.mark.parametrize(("known", "found"), [("\u00c4pfel", "A\u0308pfel"), ("A\u0308pfel", "\u00c4pfel")])
def test_a_class_is_known_in_either_unicode_form(tmp_path, layout, known, found):
    put(tmp_path, layout.format(found))
    ((name, data),) = open_domains(tmp_path, ("dog", known), (4, 4)).items()
    assert name == ("north" if "north" in layout else tmp_path.name)
    assert data.labels.tolist() == [1]


@pytest.mark.parametrize("names", [("dgo/0.png",), ("dog/0.png", "dgo/0.png"), ("north/dgo/0.png", "north/dog/0.png")])
def test_a_class_that_the_network_does_not_know_is_named(tmp_path, names):
    put(tmp_path, *names)
    with pytest.raises(UnknownNameError, match="did you mean 'dog'"):
        open_domains(tmp_path, CLASSES, (4, 4), unknown="refuse")


def test_images_of_unknown_classes_are_left_out_and_counted(tmp_path, caplog):
    put(tmp_path, "north/dog/0.png", "north/horse/0.png", "north/horse/1.png")
    assert open_domains(tmp_path, CLASSES, (4, 4))["north"].labels.tolist() == [0]
    assert "left out 2 images of north" in caplog.text
    assert "horse (2)" in caplog.text


def test_aliases_name_the_classes_of_the_network(tmp_path):
    put(tmp_path, "north/hund/0.png")
    (tmp_path / "names.yaml").write_text("elsewhere: {chien: dog}\nhund: dog\n")
    found = open_domains(tmp_path, CLASSES, (4, 4), aliases=tmp_path / "names.yaml")
    assert found["north"].labels.tolist() == [0]


@pytest.mark.parametrize("name", ["no", ""])
def test_nothing_there_is_a_line_with_what_is_expected(tmp_path, name):
    with pytest.raises(InputError, match="<domain>/<class>/<image>"):
        open_domains(tmp_path / name, CLASSES, (4, 4))


def test_unreadable_images_are_split_off(tmp_path):
    put(tmp_path, "cat/0.png", "dog/0.png")
    (tmp_path / "cat" / "0.png").write_bytes(b"no image")
    (data,) = open_domains(tmp_path, CLASSES, (4, 4)).values()
    readable, unreadable = split_unreadable(data)
    assert (readable.labels.tolist(), unreadable) == ([0], [tmp_path / "cat" / "0.png"])
