"""A user's images: found in a fixed order, and every mistake named."""

import os
from pathlib import Path

import pytest
from PIL import Image

from asrnorm.core.errors import InputError, UnknownNameError
from asrnorm.data import create_suite
from asrnorm.data.folder_listing import (
    check_distinct_files,
    collect_classes,
    find_images,
    is_one_domain,
    list_images,
    list_one_domain,
)
from helpers.published import write_folder

NFC, NFD = "\u00c4pfel", "A\u0308pfel"  # one name: letters whole, and in parts as folders of a Mac have them


def listed(root):
    return [(sample.key, sample.label, sample.domain) for sample in list_images(root)]


def test_images_of_every_ending_are_found_in_order_and_the_rest_passed_over(tmp_path):
    folder = tmp_path / "photo" / "dog"
    (folder / "more").mkdir(parents=True)
    for name in ("b.JPG", "a.webp", "c.tiff", "more/d.png", ".hidden.png", "notes.txt"):
        (folder / name).touch()
    (tmp_path / ".git").mkdir()
    (tmp_path / "readme.txt").touch()
    assert [key for key, _, _ in listed(tmp_path)] == [
        f"photo/dog/{name}" for name in ("a.webp", "b.JPG", "c.tiff", "more/d.png")
    ]


def test_a_link_upwards_ends(tmp_path):
    write_folder(tmp_path, count=1)
    (tmp_path / "art" / "cat" / "loop").symlink_to(tmp_path)
    assert len(list_images(tmp_path)) == 4


def link_folders_into_a_class(root):
    """Make one class with images of its own, in a folder and behind links, some of which lead in circles."""
    for name in ("own/day/cat/0.png", "own/day/cat/z/1.png", "own/day/dog/0.png", "else/2.png", "else/deep/3.png"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    cat = root / "own" / "day" / "cat"
    for name, target in (("more", "else"), ("twice", "else"), ("a", "own/day/cat/z"), ("up", "own")):
        (cat / name).symlink_to(root / target)
    (root / "else" / "back").symlink_to(cat)
    (root / "else" / "deep" / "round").symlink_to(root / "else")
    return root / "own", ["0.png", "more/2.png", "more/deep/3.png", "z/1.png"]


def test_linked_folders_in_a_class_are_entered_once_and_folders_keep_their_own_names(tmp_path):
    root, expected = link_folders_into_a_class(tmp_path)
    keys = [*(f"day/cat/{name}" for name in expected), "day/dog/0.png"]
    assert listed(root) == [(key, key.split("/")[1], "day") for key in keys]
    assert [f"day/{sample.key}" for sample in list_one_domain(root / "day")] == keys
    assert [path.as_posix() for path in find_images(root / "day" / "cat")] == expected
    check_distinct_files(root, list_images(root))
    assert len(find_images(root / "day" / "cat" / "up")) == 5  # a folder that is asked for is entered, link or not


def test_a_linked_class_does_not_take_in_what_lies_beside_it(tmp_path):
    write_folder(tmp_path / "else", domains=("day",), classes=("cat", "dog"), count=1)
    (tmp_path / "own" / "day").mkdir(parents=True)
    for name in ("cat", "dog"):
        (tmp_path / "own" / "day" / name).symlink_to(tmp_path / "else" / "day" / name)
    (tmp_path / "else" / "day" / "cat" / "up").symlink_to("..")
    (tmp_path / "else" / "day" / "cat" / "root").symlink_to(tmp_path / "own")
    assert [sample.label for sample in list_images(tmp_path / "own")] == ["cat", "dog"]


@pytest.mark.parametrize("target", ["else", "photo/dog"])
def test_images_behind_links_of_two_classes_are_refused(tmp_path, target):
    for name in ("else", "photo/cat", "photo/dog"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / f"{Path(name).name}.png").touch()
    (tmp_path / "photo" / "cat" / "more").symlink_to(tmp_path / target)
    if target == "else":
        (tmp_path / "photo" / "dog" / "more").symlink_to(tmp_path / target)
    samples = [sample for sample in list_images(tmp_path) if sample.domain == "photo"]
    with pytest.raises(InputError, match=r"photo/cat/more/.* and photo/dog/"):
        check_distinct_files(tmp_path, samples)


@pytest.mark.parametrize(
    ("make", "value"),
    [
        (lambda root: root.rmdir(), "<domain>/<class>/<image>"),
        (lambda _: None, "<domain>/<class>/<image>"),
        (lambda root: (root / "photo" / "dog").mkdir(parents=True), "photo/dog"),
        (lambda root: Image.new("L", (2, 2)).save(root / "x.png"), "<domain>/<class>/<image>"),
    ],
)
def test_folders_without_images_are_named(tmp_path, make, value):
    root = tmp_path / "own"
    root.mkdir()
    make(root)
    with pytest.raises(InputError, match=value) as caught:
        list_images(root)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("root", [".", "day"])
def test_an_empty_class_is_not_trained_without(tmp_path, root):
    write_folder(tmp_path, domains=("day",), classes=("cat", "dog"), count=1)
    (tmp_path / "day" / "elk").mkdir()
    with pytest.raises(InputError, match="--source and --target"):
        _ = create_suite("folder", root=tmp_path / root).classes


def test_empty_classes_are_told_of_in_one_line(tmp_path, caplog):
    write_folder(tmp_path, domains=("day",), classes=("cat",), count=1)
    for number in range(10):
        (tmp_path / "day" / str(number)).mkdir()
    assert [sample.label for sample in list_one_domain(tmp_path / "day", skip_empty=True)] == ["cat"]
    named = ", ".join(str(number) for number in range(8))
    assert len(caplog.messages) == 1
    assert caplog.messages[0].endswith(f": {named} and 2 more")


def test_a_single_domain_is_taken_where_it_lies(tmp_path):
    write_folder(tmp_path, domains=("day",), classes=("cat", "dog"), count=1)
    suite = create_suite("folder", root=tmp_path / "day", size=8)
    assert (suite.sources, suite.target_names, suite.classes) == (("day",), (), ("cat", "dog"))
    for source, error in (("dusk", UnknownNameError), ("cat", InputError)):
        with pytest.raises(error):
            _ = create_suite("folder", root=tmp_path / "day", source=source).classes


@pytest.mark.parametrize("deeper", [0, 1])
def test_names_of_folders_are_those_of_domains_however_images_lie(tmp_path, deeper):
    for domain in ("day", "night"):
        for name in ("cat", "dog"):
            folder = tmp_path / domain / name / Path(*["part"] * deeper)
            folder.mkdir(parents=True)
            (folder / "1.png").touch()
    (tmp_path / "unsorted").mkdir()
    for number in range(60):
        (tmp_path / "unsorted" / f"{number}.png").touch()
    (tmp_path / "day" / "preview.png").touch()
    suite = create_suite("folder", root=tmp_path, source="day", target="night")
    assert (suite.sources, suite.target_names, suite.classes) == (("day",), ("night",), ("cat", "dog"))
    assert not is_one_domain(tmp_path)


def test_a_folder_of_domains_is_not_one_by_an_image_beside_its_classes(tmp_path):
    write_folder(tmp_path, domains=("day",), count=3)
    (tmp_path / "day" / "beside.png").touch()
    assert not is_one_domain(tmp_path)
    assert is_one_domain(tmp_path / "day")
    assert create_suite("folder", root=tmp_path).sources == ("day",)


def test_images_of_a_class_are_no_classes(tmp_path):
    write_folder(tmp_path, domains=("day",), classes=("cat",), count=2)
    for look, expected in ((list_images, "<domain>/<class>/<image>"), (list_one_domain, "<class>/<image>")):
        with pytest.raises(InputError, match=f"expected {expected}"):
            look(tmp_path / "day" / "cat")


def test_an_unreadable_folder_is_one_line(tmp_path, monkeypatch):
    write_folder(tmp_path)
    scan = os.scandir

    def refuse(path):
        if str(path).endswith("dog"):
            raise PermissionError(13, "Permission denied")
        return scan(path)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(InputError, match="art/dog: Permission denied"):
        list_images(tmp_path)


def test_other_files_are_reported_in_a_plain_folder_too(tmp_path, caplog):
    for name in ("a.png", "b.heic", "IMG_0001", ".hidden"):
        (tmp_path / name).touch()
    assert find_images(tmp_path) == [Path("a.png")]
    assert "2 files that are not images (.heic, IMG_0001)" in caplog.text


def test_a_root_one_folder_too_high_is_told_of(tmp_path, caplog):
    write_folder(tmp_path / "own", domains=("day", "night"), classes=("cat", "dog"), count=1)
    list_images(tmp_path / "own")
    assert not caplog.text
    list_images(tmp_path)
    assert "classes are day, night; each has cat, dog" in caplog.text


def test_folders_that_are_known_for_classes_may_hold_folders(tmp_path, caplog):
    write_folder(tmp_path, domains=("cat", "dog"), classes=("monday", "sunday"), count=1)
    with pytest.raises(InputError):
        list_one_domain(tmp_path)
    with pytest.raises(InputError, match="dog: "):
        list_one_domain(tmp_path, known={"cat"})
    labels = [sample.label for sample in list_one_domain(tmp_path, known={"cat", "dog", "horse"})]
    assert labels == ["cat", "cat", "dog", "dog"]
    assert not caplog.text


def test_a_space_at_the_end_of_a_name_is_seen(tmp_path):
    write_folder(tmp_path, domains=("art",), classes=("cat", "dog "), count=1)
    write_folder(tmp_path, domains=("photo",), classes=("cat", "dog"), count=1)
    with pytest.raises(InputError, match="art lacks dog; photo lacks 'dog '"):
        collect_classes(list_images(tmp_path), tmp_path)


def test_domains_with_other_classes_are_shown(tmp_path):
    write_folder(tmp_path, domains=("art",), classes=("cat", "dog"), count=1)
    write_folder(tmp_path, domains=("photo",), classes=("dog", "horse", "pig"), count=1)
    with pytest.raises(InputError, match="art lacks horse, pig; photo lacks cat"):
        collect_classes(list_images(tmp_path), tmp_path)


def test_names_in_two_unicode_forms_are_one_class(tmp_path):
    write_folder(tmp_path, domains=("art",), classes=(NFC, "Birne"), count=1)
    write_folder(tmp_path, domains=("photo",), classes=(NFD, "Birne"), count=2)
    suite = create_suite("folder", root=tmp_path, source="photo", target="art", size=8, validation=0, test=0)
    assert suite.classes == ("Birne", NFC)
    assert sorted(suite.train.labels.tolist()) == [0, 0, 1, 1]
    assert {sample.label for sample in list_images(tmp_path) if sample.domain == "photo"} == {NFD, "Birne"}


def test_classes_stay_in_the_order_of_their_folders_in_either_unicode_form(tmp_path):
    write_folder(tmp_path, domains=("art", "photo"), classes=(NFD, "Birne"), count=1)
    assert collect_classes(list_images(tmp_path), tmp_path) == (NFC, "Birne")  # sorted by the letter that is first


@pytest.mark.parametrize("look", [lambda root: list_images(root), lambda root: list_one_domain(root / "art")])
def test_a_domain_with_both_forms_of_a_name_is_refused(tmp_path, look):
    write_folder(tmp_path, domains=("art",), classes=(NFC, NFD), count=1)
    with pytest.raises(InputError, match=NFC) as caught:
        look(tmp_path)
    assert all(ascii(name) in str(caught.value) for name in (NFC, NFD))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("ending", [".jfif", ".JPE", ".pnm", ".j2k"])
def test_rarer_endings_of_the_same_formats_are_listed(ending, tmp_path):
    (tmp_path / "day" / "nut").mkdir(parents=True)
    (tmp_path / "day" / "nut" / f"1{ending}").touch()
    (tmp_path / "day" / "nut" / "notes.txt").touch()
    assert [sample.key for sample in list_images(tmp_path)] == [f"day/nut/1{ending}"]


def test_files_that_are_called_no_images_are_told_of(tmp_path, caplog):
    for name in (
        "dog/a.png",
        "dog/b.heic",
        "dog/sub/c.HEIC",
        "dog/notes",
        "dog/Thumbs.db",
        "cat/a.png",
        "cat/Thumbs.db",
    ):
        path = tmp_path / "photo" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    assert len(list_images(tmp_path)) == 2
    assert [record.getMessage() for record in caplog.records] == [
        f"{tmp_path}: skipped 5 files that are not images (.db, .heic, notes)"
    ]


def test_images_beside_the_folders_of_classes_are_told_of(tmp_path, caplog):
    write_folder(tmp_path, domains=("day", "dusk"), classes=("cat",), count=9)
    for name in ("x.png", "day/y.JPG", *(f"dusk/{number}.png" for number in range(10)), "day/notes.txt"):
        (tmp_path / name).touch()
    assert len(list_images(tmp_path)) == 18
    passed = "skipped images that are in no class folder"
    assert [record.getMessage() for record in caplog.records] == [
        f"{tmp_path}: {passed}: x.png; expected <domain>/<class>/<image>",
        f"{tmp_path}/day: {passed}: y.JPG; expected <domain>/<class>/<image>",
        f"{tmp_path}/dusk: {passed}: {', '.join(f'{n}.png' for n in range(8))} and 2 more; expected "
        "<domain>/<class>/<image>",
    ]
    caplog.clear()
    assert len(list_images(tmp_path, ["day"])) == 9
    assert len(caplog.records) == 2  # a domain that is not used is not looked at
    caplog.clear()
    assert len(list_one_domain(tmp_path / "day")) == 9
    assert caplog.messages == [f"{tmp_path}/day: {passed}: y.JPG; expected <class>/<image>"]


def test_a_link_to_an_image_that_is_there_is_refused_where_images_are_held_out(tmp_path):
    folder = tmp_path / "photo" / "dog"
    folder.mkdir(parents=True)
    (folder / "a.png").touch()
    (tmp_path / "else.png").touch()
    (folder / "b.png").symlink_to(tmp_path / "else.png")
    check_distinct_files(tmp_path, list_images(tmp_path))  # a link to somewhere else is an image like another
    (folder / "c.png").symlink_to(folder / "a.png")
    assert len(list_one_domain(tmp_path / "photo")) == 3  # where nothing is held out a copy does no harm
    with pytest.raises(InputError, match=r"photo/dog/a\.png and photo/dog/c\.png"):
        _ = create_suite("folder", root=tmp_path, size=8).classes


def test_a_hard_link_to_an_image_is_refused_too(tmp_path):
    write_folder(tmp_path / "own")
    samples = list_images(tmp_path / "own")
    check_distinct_files(tmp_path / "own", samples)
    os.link(samples[0].path, tmp_path / "outside.png")
    check_distinct_files(tmp_path / "own", samples)  # one name of it here
    os.link(samples[0].path, samples[0].path.with_name("zz.png"))
    with pytest.raises(InputError, match="zz"):
        check_distinct_files(tmp_path / "own", list_images(tmp_path / "own"))


def test_a_pipe_is_no_image(tmp_path):
    write_folder(tmp_path / "own")
    os.mkfifo(tmp_path / "own" / "art" / "cat" / "pipe.png")
    with pytest.raises(InputError, match="pipe"):
        list_images(tmp_path / "own")


def test_a_domain_that_is_a_link_to_another_is_refused(tmp_path):
    write_folder(tmp_path, domains=("a",), classes=("cat", "dog"), count=1)
    (tmp_path / "b").symlink_to(tmp_path / "a")
    with pytest.raises(InputError, match=r"a/cat/.* and b/cat/"):
        _ = create_suite("folder", root=tmp_path, source="a", size=8).classes


def test_a_link_to_a_domain_whose_images_lie_deeper_is_refused_too(tmp_path):
    for label in ("cat", "dog"):
        folder = tmp_path / "a" / label / "2024" / "may"
        folder.mkdir(parents=True)
        (folder / "0.png").touch()
    (tmp_path / "b").symlink_to(tmp_path / "a")
    with pytest.raises(InputError, match=r"a/cat/.* and b/cat/"):
        check_distinct_files(tmp_path, list_images(tmp_path))
