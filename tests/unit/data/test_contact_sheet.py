import numpy as np
import pytest
from PIL import Image

from asrnorm.core.errors import InputError, UnknownNameError
from asrnorm.data import FileSet, ImageSet, create_suite
from asrnorm.data import contact_sheet as module
from asrnorm.data.contact_sheet import SuiteDomains, contact_sheet
from helpers.published import write_cifar10c, write_cifar_binary, write_folder

CLASSES = ("cat", "dog", "automobile")
BLANK = (0xEC, 0xEC, 0xEC)


def domain(size=32, count=30, missing=None):
    labels = np.arange(count) % 3
    images = np.random.default_rng(count).integers(0, 200, (count, size, size, 3), dtype=np.uint8)
    keep = labels != missing
    return images[keep], labels[keep]


def contains(sheet, tile):
    """Whether the tile lies somewhere on the sheet, pixel by pixel."""
    height, width = tile.shape[:2]
    ys, xs = np.nonzero((sheet[: 1 - height, : 1 - width] == tile[0, 0]).all(-1))
    return any(np.array_equal(sheet[y : y + height, x : x + width], tile) for y, x in zip(ys, xs, strict=True))


def read(path):
    return np.asarray(Image.open(path))


def test_there_is_an_overview_and_a_sheet_a_domain(tmp_path):
    files = contact_sheet({"mnist": domain(), "fog/5": domain()}, CLASSES, tmp_path / "new" / "folder")
    assert [file.name for file in files] == ["overview.png", "mnist.png", "fog-5.png"]
    assert sorted(file.name for file in (tmp_path / "new" / "folder").iterdir()) == sorted(f.name for f in files)


def test_small_images_are_enlarged_to_sharp_squares(tmp_path):
    images, labels = domain(count=12)
    overview, sheet = contact_sheet({"a": (images, labels)}, CLASSES, tmp_path, per_class=4)
    for image in images:
        assert contains(read(sheet), image.repeat(3, 0).repeat(3, 1))
    assert sum(contains(read(overview), image.repeat(3, 0).repeat(3, 1)) for image in images) == 3


def test_large_images_are_reduced_and_keep_their_shape(tmp_path):
    images, labels = np.zeros((3, 100, 200, 3), np.uint8), np.arange(3)
    _, sheet = contact_sheet({"a": (images, labels)}, CLASSES, tmp_path, per_class=1)
    black = (read(sheet) == 0).all(-1)
    assert contains(read(sheet), np.zeros((64, 128, 3), np.uint8))
    assert black.sum(1).max() == 128


def test_the_overview_has_a_row_a_domain_and_a_column_a_class(tmp_path):
    two, four = (read(contact_sheet({str(i): domain() for i in range(n)}, CLASSES, tmp_path)[0]).shape for n in (2, 4))
    assert four[0] - two[0] == 2 * (96 + 4)
    narrow, wide = (read(contact_sheet({"a": domain()}, ("x",) * n, tmp_path)[0]).shape[1] for n in (3, 5))
    assert wide - narrow == 2 * (96 + 4)


def test_the_choice_is_the_same_each_time_and_spread_over_the_class(tmp_path):
    images = np.arange(90, dtype=np.uint8)[:, None, None, None] * np.ones((1, 8, 8, 3), np.uint8)
    labels = np.repeat(np.arange(3), 30)
    first = [file.read_bytes() for file in contact_sheet({"a": (images, labels)}, CLASSES, tmp_path, per_class=3)]
    files = contact_sheet({"a": (images, labels)}, CLASSES, tmp_path, per_class=3)
    assert [file.read_bytes() for file in files] == first
    shown = [value for value in range(90) if contains(read(files[1]), np.full((96, 96, 3), value, np.uint8))]
    assert shown == [5, 15, 25, 35, 45, 55, 65, 75, 85]


def test_a_class_that_a_domain_lacks_is_left_blank(tmp_path):
    overview, sheet = contact_sheet({"a": domain(missing=1)}, CLASSES, tmp_path, per_class=2)
    tile = np.full((96, 96, 3), BLANK, np.uint8)
    for file in (overview, sheet):
        assert contains(read(file), tile)
    assert not contains(read(contact_sheet({"a": domain()}, CLASSES, tmp_path, per_class=2)[0]), tile)


def test_only_the_shown_images_are_read_and_domains_one_by_one(tmp_path):
    order = []

    class Lazy:
        def __init__(self, name):
            self.name = name

        def __getitem__(self, row):
            order.append(self.name)
            return np.zeros((8, 8, 3), np.uint8)

    labels = np.arange(3000) % 3
    contact_sheet({"a": (Lazy("a"), labels), "b": (Lazy("b"), labels)}, CLASSES, tmp_path, per_class=2)
    assert order == ["a"] * 6 + ["b"] * 6


def test_of_many_classes_an_even_choice_is_shown(tmp_path):
    classes = [f"class {index}" for index in range(100)]
    images, labels = np.zeros((100, 8, 8, 3), np.uint8), np.arange(100)
    overview, _ = contact_sheet({"a": (images, labels)}, classes, tmp_path, per_class=1)
    assert 40 * 100 < read(overview).shape[1] < 41 * 100


def test_long_names_stay_within_their_place(tmp_path):
    long = "a name that nobody would give to a class of images " * 3
    text, font = module._fit(long, 96)
    assert text.endswith("...")
    assert font.getlength(text) <= 96
    assert module._fit("automobile", 96)[0] == "automobile"
    sheet = read(contact_sheet({"d": domain()}, (long, "dog", "cat"), tmp_path, per_class=2)[1])
    assert sheet.shape[1] < 240 + 2 * 100 + 60


def test_grey_images_are_shown_too(tmp_path):
    images = np.random.default_rng(0).integers(0, 200, (3, 32, 32), dtype=np.uint8)
    for grey in (images, images[..., None]):
        _, sheet = contact_sheet({"a": (grey, np.arange(3))}, CLASSES, tmp_path)
        assert contains(read(sheet), np.repeat(images[0].repeat(3, 0).repeat(3, 1)[..., None], 3, axis=2))


@pytest.mark.parametrize(
    ("domains", "line"),
    [
        ({}, "at least one domain"),
        ({"a/b": domain(), "a b": domain()}, "'a b' and 'a/b' would both be written to a-b.png"),
        ({"Overview": domain()}, "the overview"),
        ({"a": (domain()[0], np.arange(30))}, "labels run from 0 to 29, but there are 3 classes"),
        ({"a": (domain()[0], np.zeros(30))}, "labels must be integers"),
        ({"a": (np.zeros((3, 8, 8, 3)), np.arange(3))}, "uint8"),
    ],
)
def test_what_cannot_be_shown_is_refused_in_one_line(tmp_path, domains, line):
    with pytest.raises(InputError, match=line) as caught:
        contact_sheet(domains, CLASSES, tmp_path)
    assert "\n" not in str(caught.value)


def test_a_failed_write_leaves_the_old_sheet_and_nothing_else(tmp_path, monkeypatch):
    files = contact_sheet({"a": domain()}, CLASSES, tmp_path)
    before = {file: file.read_bytes() for file in files}

    def full_disk(image, path, *_, **__):
        path.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Image.Image, "save", full_disk)
    with pytest.raises(OSError, match="No space left"):
        contact_sheet({"a": domain(count=12)}, CLASSES, tmp_path)
    assert {file: file.read_bytes() for file in tmp_path.iterdir()} == before


@pytest.fixture
def cifar10c(tmp_path):
    write_cifar_binary(tmp_path)
    write_cifar10c(tmp_path, ["fog", "snow"])
    return create_suite("cifar10c", root=tmp_path)


def test_of_a_suite_only_the_strongest_levels_are_shown_and_domains_are_read_one_by_one(cifar10c, monkeypatch):
    loaded = []
    monkeypatch.setattr(type(cifar10c), "load_target", lambda _, name: loaded.append(name) or cifar10c.source_test)
    domains = SuiteDomains(cifar10c)
    assert list(domains) == ["cifar10", "snow/5", "fog/5"]
    assert loaded == []
    assert domains["cifar10"][0] is cifar10c.source_test.images
    assert len(domains["fog/5"][1]) == len(cifar10c.source_test)
    assert loaded == ["fog/5"]


def test_an_unknown_domain_is_refused(cifar10c):
    assert list(SuiteDomains(cifar10c, ["fog/1", "fog/1"])) == ["fog/1"]
    with pytest.raises(UnknownNameError):
        SuiteDomains(cifar10c, ["fog/6"])


def test_images_in_files_are_read_row_by_row(tmp_path):
    write_folder(tmp_path / "own", domains=("art", "photo"))
    in_files, in_memory = (
        create_suite("folder", root=tmp_path / "own", source="art", size=8, max_gigabytes=size) for size in (0, 1)
    )
    assert isinstance(in_files.targets["photo"], FileSet)
    assert isinstance(in_memory.targets["photo"], ImageSet)
    first, second = (
        contact_sheet(SuiteDomains(suite), suite.classes, tmp_path / name)
        for suite, name in ((in_files, "files"), (in_memory, "memory"))
    )
    assert [file.read_bytes() for file in first] == [file.read_bytes() for file in second]


def test_of_levels_the_strongest_is_kept():
    names = ["cifar10", "fog/1", "fog/5", "fog/10", "snow/2"]
    assert module.strongest_levels(names) == ("cifar10", "fog/10", "snow/2")
