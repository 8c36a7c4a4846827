"""The suites on the real files: the published counts, class balances and pixels. Needs ASRNORM_DATA."""

import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from scipy.io import loadmat

from asrnorm.data import create_suite

pytestmark = pytest.mark.data

PACS_COUNTS = {  # train, crossval, test
    "art_painting": (1840, 208, 2048),
    "cartoon": (2107, 237, 2344),
    "photo": (1499, 171, 1670),
    "sketch": (3531, 398, 3929),
}


@pytest.fixture(scope="module")
def root():
    if "ASRNORM_DATA" not in os.environ:
        pytest.skip("ASRNORM_DATA is not set")
    return Path(os.environ["ASRNORM_DATA"])


@pytest.fixture(scope="module", autouse=True)
def own_cache(tmp_path_factory):
    """One cache for all these tests, outside the data folder; two gigabytes, so it does not stay."""
    place = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ASRNORM_CACHE", str(place))
        yield
    shutil.rmtree(place)


@pytest.fixture
def create(root):
    def create(name, *targets, **options):
        suite = create_suite(name, **options)
        lost = [part for part in suite.missing if part.role == "source" or part.name in targets]
        if lost:
            pytest.skip(f"{lost[0].name}: {lost[0].detail}")
        return suite

    return create


def lanczos(pixels):
    return np.asarray(Image.fromarray(pixels).resize((32, 32), Image.Resampling.LANCZOS))


@pytest.mark.parametrize(("subset", "count"), [("rsda", 55_000), ("ada", 10_000), ("all", 60_000)])
def test_mnist_subsets(create, subset, count):
    suite = create("digits", subset=subset)
    assert len(suite.train) == count
    assert len(suite.source_test) == 10_000
    if subset == "rsda":
        balance = [5444, 6179, 5470, 5638, 5307, 4987, 5417, 5715, 5389, 5454]  # TensorFlow's 55,000
        assert suite.train.class_counts(10).tolist() == balance
        assert len(suite.validation) == 5_000
        assert suite.validation.class_counts(10).sum() == 5_000


def test_mnist_pixels_equal_pillow(create, root):
    suite = create("digits")
    path = root / "MNIST" / "raw" / "train-images-idx3-ubyte"
    if not path.exists():
        pytest.skip("the plain idx file is not there")
    raw = np.frombuffer(path.read_bytes(), np.uint8, offset=16).reshape(-1, 28, 28)
    for row in (0, 1, 777, 54_999):
        expected = lanczos(raw[5_000 + row])
        assert (suite.train.images[row] == expected[..., None]).all()


def test_svhn(create, root):
    data = create("digits", "svhn").targets["svhn"]
    assert len(data) == 26_032
    assert data.class_counts(10).tolist() == [1744, 5099, 4149, 2882, 2523, 2384, 1977, 2019, 1660, 1595]
    raw = loadmat(root / "svhn" / "test_32x32.mat")
    for row in (0, 5, 26_031):
        np.testing.assert_array_equal(data.images[row], raw["X"][..., row])
        assert data.labels[row] == raw["y"][row, 0] % 10


def test_mnist_m(create, root):
    data = create("digits", "mnist_m").targets["mnist_m"]
    assert len(data) == 9_001
    assert data.class_counts(10).min() > 750
    with Image.open(root / "mnist_m" / "mnist_m_test" / "00000123.png") as image:
        np.testing.assert_array_equal(data.images[123], np.asarray(image.convert("RGB")))


def test_usps(create):
    data = create("digits", "usps").targets["usps"]
    assert len(data) == 2_007
    assert data.class_counts(10).tolist() == [359, 264, 198, 166, 200, 160, 170, 147, 166, 177]
    assert (data.images[..., 0] == data.images[..., 2]).all()
    # Zeros are hollow and ones are not: the labels are digits and not shifted by one.
    centers = data.images[:, 12:20, 12:20, 0].mean((1, 2))
    assert centers[data.labels == 0].mean() < 60 < 150 < centers[data.labels == 1].mean()


def test_cifar10(create):
    suite = create("cifar10c")
    assert suite.train.class_counts(10).tolist() == [5_000] * 10
    assert suite.source_test.class_counts(10).tolist() == [1_000] * 10
    pixels = suite.train.images.reshape(-1, 3)
    assert pixels.mean(0) == pytest.approx([125.3, 123.0, 113.9], abs=0.1)


def test_cifar10c_where_it_is(create):
    suite = create("cifar10c", "brightness")
    data = suite.targets["brightness/1"]
    np.testing.assert_array_equal(data.labels, suite.source_test.labels)
    assert data.images[:100].mean() > suite.source_test.images[:100].mean()


@pytest.mark.parametrize("domain", sorted(PACS_COUNTS))
def test_pacs_counts(create, domain):
    suite = create("pacs", source=domain)
    train, crossval, test = PACS_COUNTS[domain]
    assert (len(suite.train), len(suite.validation)) == (train, crossval)
    other = create("pacs", domain, target=domain)
    assert len(other.targets[domain]) == test
    counts = other.targets[domain].class_counts(7)
    np.testing.assert_array_equal(counts, suite.train.class_counts(7) + suite.validation.class_counts(7))
    assert counts.min() >= 80


def test_pacs_leave_one_out_is_the_sum_of_the_others(create):
    suite = create("pacs", target="art_painting")
    assert (len(suite.train), len(suite.validation), len(suite.targets["art_painting"])) == (7_137, 806, 2_048)


def test_pacs_pixels_equal_pillow(create, root):
    suite = create("pacs", source="photo")
    lines = (root / "PACS" / "splits" / "photo_train_kfold.txt").read_text().splitlines()
    for row in (0, 700, 1_498):
        name, label = lines[row].split()
        with Image.open(root / "PACS" / name) as image:
            np.testing.assert_array_equal(suite.train.images[row], np.asarray(image.convert("RGB")))
        assert suite.train.labels[row] == int(label) - 1
