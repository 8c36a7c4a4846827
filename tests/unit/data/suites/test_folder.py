"""The folder suite: what it makes of a user's images."""

import numpy as np
import pytest
from PIL import Image

from asrnorm.core.errors import InputError, UnknownNameError
from asrnorm.data import FileSet, ImageSet, create_suite
from helpers.published import write_folder


@pytest.fixture
def root(tmp_path):
    write_folder(tmp_path / "own", domains=("art", "photo", "sketch"))
    return tmp_path / "own"


def test_pixels_are_those_of_pillow(root):
    target = create_suite("folder", root=root, source="art", size=8).targets["photo"]
    with Image.open(root / "photo" / "cat" / "0.png") as image:
        expected = np.asarray(image.resize((8, 8), Image.Resampling.BILINEAR))
    np.testing.assert_array_equal(target.images[0], expected)


def test_targets_are_known_by_their_names_labels_and_sizes(root):
    def listing():
        return create_suite("folder", root=root, source="art").target_listing()

    first = listing()
    assert listing() == first
    (root / "art" / "cat" / "0.png").rename(root / "art" / "cat" / "moved.png")
    assert listing() == first, "of the source"
    (root / "photo" / "cat" / "0.png").rename(root / "photo" / "cat" / "new.png")
    renamed = listing()
    (root / "photo" / "cat" / "new.png").write_bytes(b"another size")
    assert len({first, renamed, listing()}) == 3
    suite = create_suite("folder", root=root, source="art")
    before = suite.target_listing()
    (root / "photo" / "cat" / "new.png").unlink()
    assert suite.target_listing() != before, "gone since it was listed, and no reason to stop"


def test_files_and_memory_hold_the_same(root):
    options = {"root": root, "source": "art,photo", "size": (6, 8), "test": 0.2}
    memory = create_suite("folder", **options)
    files = create_suite("folder", **options, max_gigabytes=0)
    for part in ("train", "validation", "source_test"):
        own, other = getattr(files, part), getattr(memory, part)
        assert isinstance(own, FileSet)
        assert isinstance(other, ImageSet)
        assert own.image_size == other.image_size == (6, 8)
        np.testing.assert_array_equal(own.labels, other.labels)
        np.testing.assert_array_equal(np.stack([own.read(row) for row in range(len(own))]), other.images)
    assert isinstance(files.targets["sketch"], FileSet)


def test_the_split_is_balanced_seeded_and_disjoint(root):
    def rows(seed):
        suite = create_suite("folder", root=root, source="art", size=8, validation=0.2, test=0.1, seed=seed)
        return suite, {image.tobytes() for image in suite.validation.images}

    suite, held = rows(0)
    assert [part.class_counts(2).tolist() for part in (suite.train, suite.validation)] == [
        [7, 7],
        [2, 2],
    ]
    assert suite.source_test.class_counts(2).tolist() == [1, 1]
    assert not held & {image.tobytes() for image in suite.train.images}
    assert not held & {image.tobytes() for image in suite.source_test.images}
    assert rows(0)[1] == held
    assert rows(1)[1] != held


def test_without_a_test_share_the_validation_images_serve(root):
    suite = create_suite("folder", root=root, source="art", size=8)
    assert suite.source_test is suite.validation
    nothing = create_suite("folder", root=root, source="art", size=8, validation=0)
    assert nothing.validation is None
    with pytest.raises(InputError):
        _ = nothing.source_test


def test_leave_one_out_mixes_the_others(root):
    suite = create_suite("folder", root=root, target="photo", size=8)
    assert suite.sources == ("art", "sketch")
    assert len(suite.train) + len(suite.validation) == 40
    assert suite.target_names == ("photo",)


def test_a_new_image_is_noticed(root):
    assert len(create_suite("folder", root=root, source="art", size=8).targets["photo"]) == 20
    Image.new("RGB", (4, 4)).save(root / "photo" / "cat" / "new.png")
    assert len(create_suite("folder", root=root, source="art", size=8).targets["photo"]) == 21


def test_a_table_serves_as_root(root):
    lines = [f"{path.relative_to(root)},{path.parent.name},{path.parts[-3]}" for path in sorted(root.rglob("*.png"))]
    (root / "table.csv").write_text("path,label,domain\n" + "\n".join(lines))
    from_table = create_suite("folder", root=root / "table.csv", source="art", size=8)
    from_folder = create_suite("folder", root=root, source="art", size=8)
    assert from_table.classes == from_folder.classes
    np.testing.assert_array_equal(from_table.targets["sketch"].images, from_folder.targets["sketch"].images)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({}, InputError),
        ({"source": "photos"}, UnknownNameError),
        ({"source": "art", "target": "sktch"}, UnknownNameError),
        ({"source": "art", "target": "photo,x"}, UnknownNameError),
        ({"source": "art", "validation": 1.0}, InputError),
    ],
)
def test_wrong_choices_are_refused(root, options, error):
    with pytest.raises(error):
        _ = create_suite("folder", root=root, size=8, **options).train


@pytest.mark.parametrize("size", [0, 8193, 10**20, (8, 0)])
def test_a_wrong_size_is_refused_at_once(size):
    with pytest.raises(InputError):
        create_suite("folder", size=size)


def test_a_root_that_is_no_path_is_refused():
    with pytest.raises(InputError):
        create_suite("folder", root=[])


def test_without_a_root_it_says_what_to_give():
    suite = create_suite("folder", source="art")
    assert [part.present for part in suite.parts()] == [False]
    with pytest.raises(InputError, match="--data FOLDER"):
        _ = suite.train
    with pytest.raises(InputError, match="--data FOLDER"):
        _ = suite.classes


def test_a_bad_image_is_named_and_nothing_is_cached(root):
    bad = root / "photo" / "cat" / "0.png"
    good = bad.read_bytes()
    bad.write_bytes(good[:30])
    with pytest.raises(InputError, match=r"photo/cat/0\.png"):
        create_suite("folder", root=root, source="art", size=8, broken="refuse").prepare()
    bad.write_bytes(good)
    create_suite("folder", root=root, source="art", size=8).prepare()


def test_an_unused_domain_may_have_other_classes(root):
    write_folder(root, domains=("toy",), classes=("robot",), count=1)
    assert create_suite("folder", root=root, source="art", target="photo", size=8).classes == ("cat", "dog")
    with pytest.raises(UnknownNameError, match="class of 'toy', 'robot'"):
        _ = create_suite("folder", root=root, source="art", size=8).classes
    with pytest.raises(InputError, match="art lacks robot"):
        _ = create_suite("folder", root=root, source="art,toy", size=8).classes


def test_files_are_checked_for_the_targets_and_the_source_test(root):
    create_suite("folder", root=root, source="art", size=8).check_files()
    with pytest.raises(InputError):
        create_suite("folder", root=root, source="art", size=8, validation=0).check_files()
    bad = root / "sketch" / "dog" / "0.png"
    bad.write_bytes(b"no")
    create_suite("folder", root=root, source="art", target="photo", size=8).check_files()  # not used
    with pytest.raises(InputError, match=r"sketch/dog/0\.png"):
        create_suite("folder", root=root, source="art", size=8, broken="refuse").check_files()


@pytest.mark.parametrize(("options", "name"), [({}, "validation"), ({"validation": 0.5, "test": 0.01}, "test")])
def test_a_share_that_holds_nothing_out_is_refused_before_training(tmp_path, options, name):
    write_folder(tmp_path / "few", domains=("art", "photo"), count=2 if name == "test" else 1)
    with pytest.raises(InputError, match=f"{name}="):
        create_suite("folder", root=tmp_path / "few", source="art", size=8, **options).check_files()


def test_files_that_stay_files_are_only_looked_for(root, monkeypatch):
    (root / "table.csv").write_text(
        "path,label,domain\n"
        + "".join(f"art/{name}/{row}.png,{name},art\n" for row in range(9) for name in ("cat", "dog"))
        + "photo/cat/0.png,cat,photo\nphoto/dog/gone.png,dog,photo\n"
    )
    monkeypatch.setattr("asrnorm.data.image._decode", lambda *arguments: pytest.fail("an image was decoded"))
    options = {"source": "art", "size": 8, "max_gigabytes": 0, "broken": "refuse"}
    create_suite("folder", root=root, **options).check_files()
    with pytest.raises(InputError, match=r"gone\.png"):
        create_suite("folder", root=root / "table.csv", **options).check_files()


def test_one_class_is_nothing_to_learn(tmp_path):
    write_folder(tmp_path, domains=("cam1", "cam2"), classes=("raw",), count=3)
    with pytest.raises(InputError, match="raw"):
        create_suite("folder", root=tmp_path, source="cam1", size=8).require_source()


def test_the_images_of_one_place_are_enough_to_train_on(root):
    for source in ("art,photo,sketch", ["art", "photo", "sketch"]):
        suite = create_suite("folder", root=root, source=source, size=8)
        assert (len(suite.sources), suite.target_names, suite.targets) == (3, (), {})
        suite.check_files()
        assert len(suite.train) > 0


def test_an_unused_domain_may_be_empty(root):
    (root / "scratch" / "todo").mkdir(parents=True)
    suite = create_suite("folder", root=root, source="art", target="photo", size=8)
    assert suite.domains == ("art", "photo")
    with pytest.raises(UnknownNameError):
        _ = create_suite("folder", root=root, source="art", target="sketc", size=8).sources


@pytest.mark.parametrize("shares", [{}, {"test": 0.2}, {"validation": 0.0, "test": 0.3}, {"validation": 0.0}], ids=str)
def test_the_source_is_counted_without_decoding_an_image(root, shares):
    options = {"root": root, "source": "art,photo", "size": 8, **shares}
    suite = create_suite("folder", **options)
    assert suite.count_source() == len(suite.train) + len(suite.validation or ())
    for path in root.rglob("*.png"):
        path.write_bytes(b"no image")
    assert create_suite("folder", **options).count_source() == suite.count_source()
