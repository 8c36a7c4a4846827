"""The folder suite on data as people have it: broken files, domains that lack classes, have others, or call them so."""

import errno

import numpy as np
import pytest

from asrnorm.core.config import Choice, content_hash
from asrnorm.core.errors import InputError, UnknownNameError, WrongCallError
from asrnorm.data import FileSet, create_suite
from asrnorm.training.environment import check_source, record_environment
from helpers.published import write_folder
from helpers.tiny_run import tiny_config


@pytest.fixture
def root(tmp_path):
    write_folder(tmp_path / "own", domains=("art", "photo"))
    return tmp_path / "own"


def create(root, **options):
    return create_suite("folder", **{"root": root, "source": "art", "size": 8, **options})


def break_files(folder, count):
    for path in sorted(folder.rglob("*.png"))[:count]:
        path.write_bytes(b"no image")


@pytest.mark.parametrize("gigabytes", [None, 0], ids=["memory", "files"])
@pytest.mark.parametrize("domain", ["art", "photo"])
def test_a_broken_file_is_left_out_and_named_once(root, domain, gigabytes, caplog):
    whole = create(root, max_gigabytes=gigabytes)
    before = len(whole.train) + len(whole.validation), len(whole.targets["photo"])
    break_files(root / domain, 1)
    for _ in range(2):  # decoded, then from the cache
        caplog.clear()
        suite = create(root, max_gigabytes=gigabytes)
        suite.check_files()
        (line,) = caplog.messages
        assert f"1 of 20 images of {domain}" in line
        assert f"{domain}/cat/0.png" in line
        after = len(suite.train) + len(suite.validation), len(suite.targets["photo"])
        assert after == (before[0] - (domain == "art"), before[1] - (domain == "photo"))
        assert suite.source_skipped() == (["art/cat/0.png"] if domain == "art" else [])
    data = suite.targets["photo"]
    pixels = data.read_rows(range(len(data))) if isinstance(data, FileSet) else data.images
    assert all(image.any() for image in pixels), "no black image stands for the broken one"


def test_the_other_images_keep_their_labels_pixels_and_split(root):
    whole = create(root).targets["photo"]
    before = whole.images.copy(), whole.labels.copy()
    held_out = {image.tobytes() for image in create(root).validation.images}
    break_files(root / "photo", 1)
    after = create(root).targets["photo"]
    np.testing.assert_array_equal(after.images, before[0][1:])
    np.testing.assert_array_equal(after.labels, before[1][1:])
    assert {image.tobytes() for image in create(root).validation.images} == held_out


def test_files_that_a_table_names_and_nobody_has_are_broken_ones(root, caplog):
    rows = [f"{path.relative_to(root)},{path.parent.name},{path.parent.parent.name}" for path in root.rglob("*.png")]
    (root / "table.csv").write_text("\n".join(["path,label,domain", *sorted(rows), "art/dog/gone.png,dog,art"]))
    suite = create(root / "table.csv")
    suite.check_files()
    assert suite.source_skipped() == ["art/dog/gone.png"]
    assert len(suite.train) + len(suite.validation) == 20
    for path in (root / "art" / "dog").iterdir():
        path.unlink()
    with pytest.raises(InputError, match=r"11 of 21 images of art.* no such file"):
        create(root / "table.csv").check_files()


def test_what_to_train_on_is_asked_before_classes_are_compared(root):
    (root / "photo" / "dog").rename(root / "photo" / "hound")
    with pytest.raises(WrongCallError, match="--source"):
        create(root, source=None).require_source()


@pytest.mark.parametrize("error", [OSError(errno.EIO, "Input/output error"), MemoryError()])
def test_a_file_that_the_system_fails_to_read_is_not_taken_for_broken(root, error, monkeypatch):
    def fail(*_arguments, **_options):
        raise error

    with monkeypatch.context() as context:
        context.setattr("asrnorm.data.image.Image.open", fail)
        with pytest.raises(InputError):
            create(root).check_files()
    create(root).check_files()


def test_a_source_without_images_and_one_that_is_a_target_too_are_told_as_such(root):
    (root / "dawn").mkdir()
    with pytest.raises(UnknownNameError, match="'dawn'"):
        _ = create(root, source="dawn").classes
    with pytest.raises(WrongCallError, match="at once"):
        _ = create(root, target="art").classes


def test_a_cache_made_while_skipping_does_not_serve_a_strict_suite(root):
    break_files(root / "photo", 1)
    create(root).check_files()
    with pytest.raises(InputError, match=r"photo/cat/0\.png: cannot be read"):
        create(root, broken="refuse").check_files()


def test_more_than_a_percent_is_refused_with_names_and_nothing_is_cached(tmp_path):
    write_folder(tmp_path, domains=("art", "photo"), count=100, size=(2, 2))
    break_files(tmp_path / "photo", 2)
    create(tmp_path).check_files()  # 2 of 200
    break_files(tmp_path / "photo", 3)
    with pytest.raises(InputError, match=r"3 of 200 images of photo .* photo/cat/0\.png"):
        create(tmp_path).check_files()


def test_a_run_notices_that_another_file_is_unreadable(root, tmp_path):
    environment = tmp_path / "env.json"
    good = (root / "art" / "cat" / "0.png").read_bytes()
    (root / "art" / "cat" / "0.png").write_bytes(bytes(len(good)))

    def facts():
        suite = create(root)
        suite.check_files()
        return check_source(environment, suite)

    record_environment(environment, {"commit": "x", **facts()})
    facts()
    (root / "art" / "cat" / "0.png").write_bytes(good)  # repaired, with the same size
    with pytest.raises(InputError, match="unreadable"):
        facts()


@pytest.mark.parametrize("empty", [False, True])
def test_a_target_is_scored_on_the_classes_that_it_has(root, empty, caplog):
    for path in (root / "photo" / "dog").iterdir():
        path.unlink()
    if not empty:
        (root / "photo" / "dog").rmdir()
    suite = create(root)
    suite.check_files()
    assert suite.classes == ("cat", "dog")
    assert set(suite.targets["photo"].labels.tolist()) == {0}
    assert "photo has no images of dog" in caplog.text


def test_an_empty_class_of_the_source_is_refused(root):
    (root / "art" / "horse").mkdir()
    with pytest.raises(InputError, match="art/horse: no image"):
        _ = create(root).classes


def test_classes_that_the_source_lacks_are_left_out_and_counted_or_refused(root, caplog):
    write_folder(root, domains=("photo",), classes=("ape", "zebra"), count=3)
    suite = create(root)
    suite.check_files()
    assert suite.classes == ("cat", "dog")
    assert len(suite.targets["photo"]) == 20
    (line,) = caplog.messages
    assert "left out 6 images of photo" in line
    assert "ape (3), zebra (3)" in line
    assert "suite.aliases" in line
    with pytest.raises(UnknownNameError, match="ape"):
        _ = create(root, unknown="refuse").classes
    turned = create(root, source="photo")
    assert (turned.classes, set(turned.targets["art"].labels.tolist())) == (("ape", "cat", "dog", "zebra"), {1, 2})


@pytest.mark.parametrize(
    "text", ["kitty: cat\nhound: dog\n", "photo:\n  kitty: cat\n  hound: dog\n", "photo: {kitty: cat}\nhound: dog\n"]
)
def test_aliases_join_classes_that_domains_call_differently(root, tmp_path, text, caplog):
    (root / "photo" / "cat").rename(root / "photo" / "kitty")
    (root / "photo" / "dog").rename(root / "photo" / "hound")
    with pytest.raises(UnknownNameError, match=r"suite\.aliases"):
        _ = create(root).classes
    (tmp_path / "names.yaml").write_text(text)
    suite = create(root, aliases=tmp_path / "names.yaml")
    assert suite.classes == ("cat", "dog")
    assert np.bincount(suite.targets["photo"].labels).tolist() == [10, 10]
    assert not caplog.text


def test_an_alias_changes_what_identifies_the_source(root, tmp_path):
    (tmp_path / "names.yaml").write_text("cat: feline\n")
    renamed = create(root, aliases=tmp_path / "names.yaml")
    assert renamed.classes == ("dog", "feline")
    assert renamed.source_listing() != create(root).source_listing()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "cat",
        "- cat\n",
        "cat: [dog]\n",
        "cat: dog\ncat: horse\n",
        "a: b\nb: cat\n",
        "phot: {kitty: cat}\n",
        "yes: cat\n",
        "photo: {kitty: {cat: dog}}\n",
        "cat: ''\n",
        "cat: &a dog\ndog: *a\n",
        "[" * 20_000,
        "\x00",
    ],
)
def test_a_wrong_file_of_aliases_is_one_line(root, tmp_path, text):
    (tmp_path / "names.yaml").write_text(text)
    with pytest.raises((InputError, UnknownNameError), match=r"names\.yaml") as caught:
        _ = create(root, aliases=tmp_path / "names.yaml").classes
    assert "\n" not in str(caught.value)
    with pytest.raises(InputError, match="no such"):
        _ = create(root, aliases=tmp_path / "gone.yaml").classes


def test_an_alias_that_no_folder_has_is_told(root, tmp_path, caplog):
    (tmp_path / "names.yaml").write_text("kitten: cat\n")
    _ = create(root, aliases=tmp_path / "names.yaml").classes
    assert "no image is in a class called kitten" in caplog.text


@pytest.mark.parametrize("option", ["broken", "unknown"])
def test_other_reactions_are_refused_at_once(option):
    with pytest.raises(InputError, match="skip or refuse"):
        create_suite("folder", root="x", **{option: "ignore"})


def test_the_new_options_leave_the_hash_of_old_configs_alone(tmp_path, monkeypatch):
    def hashed(**options):
        return content_hash(tiny_config(suite=Choice(name="folder", args={"root": "/data", "source": "a", **options})))

    assert len({hashed(), hashed(broken="refuse"), hashed(unknown="refuse"), hashed(aliases="x.yaml")}) == 4
    monkeypatch.chdir(tmp_path)
    assert hashed(aliases="x.yaml") == hashed(aliases=str(tmp_path / "x.yaml"))
