import re
from urllib.parse import urlsplit

import pytest

from asrnorm.core.errors import UnknownNameError
from asrnorm.data.download.catalog import CATALOG, find_set, path_inside

LENGTHS = {"md5": 32, "sha1": 40, "sha256": 64}
SETS = list(CATALOG.values())


def by_name(entry):
    return entry.name


def test_every_set_of_the_benchmarks_is_there():
    digits = {"mnist", "usps", "svhn", "mnist_m", "syn"}
    assert set(CATALOG) == digits | {"cifar10", "cifar10c", "frost", "pacs", "resnet18"}


def test_a_wrong_name_is_answered_with_the_right_one():
    with pytest.raises(UnknownNameError, match="did you mean 'mnist_m'"):
        find_set("mnistm")


@pytest.mark.parametrize("entry", SETS, ids=by_name)
def test_checksums_are_well_formed_and_different(entry):
    digests = [file.digest for file in entry.files() if file.digest] + [s.digest for s in entry.sources if s.packed]
    assert len(set(digests)) == len(digests)
    for digest in digests:
        algorithm, _, value = digest.partition(":")
        assert re.fullmatch(rf"[0-9a-f]{{{LENGTHS[algorithm]}}}", value)


@pytest.mark.parametrize("entry", SETS, ids=by_name)
def test_files_stay_below_the_data_folder_and_can_be_verified(entry, tmp_path):
    for file in entry.files():
        assert path_inside(tmp_path, file.path).is_relative_to(tmp_path)
        assert file.digest or file.content
        assert file.size is None or file.size > 0


@pytest.mark.parametrize("entry", SETS, ids=by_name)
def test_every_download_is_pinned_and_gives_files_of_the_set(entry):
    paths = {file.path for file in entry.files()}
    assert entry.sources or entry.packages
    assert entry.licence
    assert entry.title
    assert entry.homepage
    for source in entry.sources:
        assert source.digest
        assert source.origin
        assert source.urls
        assert source.files
        assert set(source.files) <= paths
        assert len(source.files) == 1 or source.packed
        assert {urlsplit(url).scheme for url in source.urls} <= {"http", "https"}


@pytest.mark.parametrize("entry", SETS, ids=by_name)
def test_the_preferred_layout_can_be_had_in_full(entry):
    given = {path for source in entry.sources for path in source.files}
    assert entry.packages or any(all(file.path in given for file in layout) for layout in entry.layouts)


@pytest.mark.parametrize("entry", [entry for entry in SETS if not entry.members], ids=by_name)
def test_members_are_found_by_their_published_names_in_any_folder(entry):
    for file in entry.files():
        assert entry.member_path(file.path) == file.path
        assert entry.member_path(f"some/prefix/{file.path}") == file.path
        assert entry.member_path(f"__MACOSX/{file.path}") is None
    assert entry.member_path("README.md") is None


@pytest.mark.parametrize(
    ("name", "member", "path"),
    [
        ("pacs", "pacs/images/photo/dog/056_0001.jpg", "PACS/photo/dog/056_0001.jpg"),
        ("pacs", "kfold/sketch/house/1.png", "PACS/sketch/house/1.png"),
        ("pacs", "pacs/splits/photo_train_kfold.txt", "PACS/splits/photo_train_kfold.txt"),
        ("pacs", "PACS/photo/dog/notes.txt", None),
        ("pacs", "PACS/photo/cat/1.jpg", None),
        ("mnist_m", "mnist_m/mnist_m_test/00000000.png", "mnist_m/mnist_m_test/00000000.png"),
        ("mnist_m", "mnist_m/mnist_m_test_labels.txt", "mnist_m/mnist_m_test_labels.txt"),
        ("mnist_m", "mnist_m/mnist_m_train/00000000.png", None),
        ("cifar10", "cifar-10-batches-py/test_batch", "cifar-10-batches-py/test_batch"),
        ("cifar10", "cifar-10-batches-bin/test_batch.bin", "cifar-10-batches-bin/test_batch.bin"),
        ("frost", "imgcorr/frost/frost4.jpg", "frost/frost4.jpg"),
        ("mnist", "package/data/t10k-labels-idx1-ubyte", "MNIST/raw/t10k-labels-idx1-ubyte"),
    ],
)
def test_members_of_public_archives_get_their_paths(name, member, path):
    assert find_set(name).member_path(member) == path


def test_copies_that_a_mac_adds_to_an_archive_are_skipped():
    assert find_set("pacs").member_path("PACS/photo/dog/056_0001.jpg") == "PACS/photo/dog/056_0001.jpg"
    assert find_set("pacs").member_path("PACS/photo/dog/._056_0001.jpg") is None


def test_sizes_counts_and_archives_of_the_real_sets():
    svhn, pacs, cifar = (find_set(name) for name in ("svhn", "pacs", "cifar10"))
    assert [(file.path, file.size) for file in svhn.files()] == [("svhn/test_32x32.mat", 64275384)]
    assert svhn.sources[0].urls[0] == "http://ufldl.stanford.edu/housenumbers/test_32x32.mat"
    assert not svhn.sources[0].packed
    assert [len(layout) for layout in cifar.layouts] == [6, 6]
    assert [len(source.files) for source in cifar.sources] == [6, 6]
    assert [source.packed for source in pacs.sources] == [False] * 12 + [True] * 2
    assert [len(source.files) for source in pacs.sources[12:]] == [4, 16]
    assert [source.files for source in find_set("mnist").sources] == [(f.path,) for f in find_set("mnist").files()]
    assert len({file.name for file in find_set("cifar10c").files()}) == 20
