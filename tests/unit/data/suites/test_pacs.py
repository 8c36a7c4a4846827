"""The PACS suite on small files: lists, single source, leave one out."""

import numpy as np
import pytest

from asrnorm.core.errors import InputError, UnknownNameError
from asrnorm.data import create_suite
from asrnorm.data.image import read_image
from helpers.published import PACS_DOMAINS, write_pacs


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    root = tmp_path_factory.mktemp("pacs")
    write_pacs(root)
    return root


def test_single_source(shared):
    suite = create_suite("pacs", root=shared, source="sketch")
    assert (len(suite.train), len(suite.validation)) == (14, 7)
    assert suite.target_names == ("art_painting", "cartoon", "photo")
    assert [len(suite.targets[name]) for name in suite.targets] == [21, 21, 21]
    assert suite.source_test is suite.validation, "the published test list contains the training images"


def test_photo_is_the_default_source():
    assert create_suite("pacs").sources == ("photo",)


def test_leave_one_out_mixes_three_domains(shared):
    suite = create_suite("pacs", root=shared, target="cartoon")
    assert suite.sources == ("art_painting", "photo", "sketch")
    assert (len(suite.train), len(suite.validation)) == (42, 21)
    assert suite.train.class_counts(7).tolist() == [6] * 7
    assert suite.target_names == ("cartoon",)


def test_a_limit_leaves_as_many_images_of_each_class(shared):
    suite = create_suite("pacs", root=shared, target="cartoon", limit=7)
    assert suite.train.class_counts(7).tolist() == [3] * 7
    assert (len(suite.validation), len(suite.targets["cartoon"])) == (21, 21)
    assert len(create_suite("pacs", root=shared, limit=999).train) == 14
    with pytest.raises(InputError):
        create_suite("pacs", limit=-1)


def test_images_are_those_of_the_lists(shared):
    suite = create_suite("pacs", root=shared, source="photo")
    lines = (shared / "PACS" / "splits" / "photo_train_kfold.txt").read_text().split("\n")
    for row in (0, 5, 13):
        name, label = lines[row].split()
        np.testing.assert_array_equal(suite.train.images[row], read_image(shared / "PACS" / name))
        assert suite.train.labels[row] == int(label) - 1
        assert suite.classes[suite.train.labels[row]] in name
    assert suite.image_size == suite.train.image_size == (227, 227)


def test_training_images_are_a_view_of_the_cache(shared):
    images = create_suite("pacs", root=shared, source="photo").train.images
    while not isinstance(images.base, type(None)) and isinstance(images.base, np.ndarray):
        images = images.base
    assert isinstance(images, np.memmap)


@pytest.mark.parametrize(
    ("folder", "lists"),
    [
        ("PACS/kfold", "PACS/splits"),
        ("PACS/kfold", "PACS/kfold"),
        ("pacs", "pacs/Train val splits and h5py files pre-read"),
    ],
)
def test_other_published_layouts_are_found(tmp_path, folder, lists):
    write_pacs(tmp_path, per_class=2, folder=folder, lists=lists)
    suite = create_suite("pacs", root=tmp_path)
    assert suite.missing == ()
    assert len(suite.train) == 7


def test_absent_domains_are_missing(tmp_path):
    write_pacs(tmp_path, per_class=2)
    (tmp_path / "PACS" / "splits" / "sketch_test_kfold.txt").unlink()
    suite = create_suite("pacs", root=tmp_path)
    assert suite.target_names == ("art_painting", "cartoon")
    assert [part.name for part in suite.missing] == ["sketch"]
    with pytest.raises(InputError, match="fetch pacs"):
        _ = create_suite("pacs", root=tmp_path, source="sketch").train


def test_images_that_the_lists_name_must_be_there(tmp_path):
    write_pacs(tmp_path, per_class=2)
    for number in range(2):
        (tmp_path / "PACS" / "photo" / "dog" / f"pic_{number:03d}.jpg").unlink()
    with pytest.raises(InputError, match=r"2 of the 14 .*pic_001\.jpg"):
        _ = create_suite("pacs", root=tmp_path).train


def test_lists_that_disagree_on_a_label_are_refused(tmp_path):
    write_pacs(tmp_path, per_class=2)
    path = tmp_path / "PACS" / "splits" / "photo_test_kfold.txt"
    path.write_text(path.read_text().replace("photo/dog/pic_000.jpg 1", "photo/dog/pic_000.jpg 2"))
    with pytest.raises(InputError, match=r"photo/dog/pic_000\.jpg .* 1 and 2"):
        _ = create_suite("pacs", root=tmp_path).train


def test_unknown_domains_are_answered_with_the_nearest():
    with pytest.raises(UnknownNameError, match="did you mean 'photo'"):
        create_suite("pacs", source="photos")


def test_every_domain_can_be_the_source():
    for name in PACS_DOMAINS:
        assert set(create_suite("pacs", source=name).sources) == {name}
