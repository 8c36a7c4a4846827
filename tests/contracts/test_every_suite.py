"""What every suite promises, on small files in the published layouts."""

import sys
import types

import numpy as np
import pytest

from asrnorm.core.errors import InputError
from asrnorm.data import SUITES, ImageSet, create_suite
from helpers import published

CORRUPTIONS = ("fog", "jpeg_compression", "saturate")


def digits(root):
    published.write_mnist(root)
    published.write_digit_mat(root / "svhn" / "test_32x32.mat")
    published.write_digit_mat(root / "syn" / "synth_test_32x32.mat")
    published.write_mnist_m(root)
    published.write_usps(root)
    return {"subset": "all"}


def digits_variant(root):
    published.write_mnist(root, compress=True)
    published.write_digit_mat(root / "SVHN" / "test_32x32.mat")
    published.write_usps(root, compress=False)
    return {"subset": "all"}


def cifar10c(root):
    published.write_cifar_binary(root)
    published.write_cifar10c(root, CORRUPTIONS)
    return {}


def cifar10c_variant(root):
    published.write_cifar_python(root)
    published.write_cifar10c(root, CORRUPTIONS)
    return {"corruptions": "standard"}


def pacs(root):
    published.write_pacs(root, per_class=2)
    return {"source": "photo"}


def pacs_variant(root):
    published.write_pacs(root, per_class=2, folder="PACS/kfold")
    return {"target": "sketch"}


def folder(root):
    published.write_folder(root)
    return {"source": "photo", "size": 16}


def digits_mini(root):
    return {}


CASES = {
    "digits": (digits, digits_variant),
    "cifar10c": (cifar10c, cifar10c_variant),
    "pacs": (pacs, pacs_variant),
    "folder": (folder,),
    "digits_mini": (digits_mini,),
}
PARAMETERS = [pytest.param(name, write, id=write.__name__) for name, writes in CASES.items() for write in writes]


def build_digits_mini(seed):
    names = ("mnist_train", "mnist_val", "mnist_test", "uci", "blended", "rendered", "inverted")
    return {
        name: (published.noise(20, 32, 32, 3, seed=10 * seed + row), np.arange(20) % 10)
        for row, name in enumerate(names)
    }


@pytest.fixture(autouse=True)
def surroundings(monkeypatch, tmp_path):
    monkeypatch.setenv("ASRNORM_CACHE", str(tmp_path / "cache"))
    fake = types.SimpleNamespace(build_digits_mini=build_digits_mini)
    monkeypatch.setitem(sys.modules, "asrnorm.data.synthetic", fake)
    monkeypatch.setattr("asrnorm.data.suites.digits_mini.missing_libraries", list)


@pytest.fixture
def make(tmp_path):
    def make(name, write):
        root = tmp_path / "data"
        root.mkdir(exist_ok=True)
        options = write(root) if not any(root.iterdir()) else make.options
        make.options = options
        return create_suite(name, root=root, **options)

    return make


def test_every_suite_has_a_case():
    assert set(CASES) == set(SUITES.names())


@pytest.mark.parametrize(("name", "write"), PARAMETERS)
def test_every_domain_is_bytes_with_labels_in_range(name, write, make):
    suite = make(name, write)
    domains = {"train": suite.train, "source_test": suite.source_test, **suite.targets}
    if suite.validation is not None:
        domains["validation"] = suite.validation
    assert suite.name == name
    assert len(suite.targets) >= 1
    for domain, data in domains.items():
        assert isinstance(data, ImageSet), domain
        assert data.images.dtype == np.uint8
        assert data.images.shape == (len(data), *suite.image_size, 3)
        assert data.labels.dtype == np.int64
        assert data.labels.min() >= 0
        assert data.labels.max() < len(suite.classes)


@pytest.mark.parametrize(("name", "write"), PARAMETERS)
def test_training_and_held_out_images_are_apart(name, write, make):
    suite = make(name, write)
    trained = {image.tobytes() for image in suite.train.images}
    for held in (suite.validation, suite.source_test):
        if held is not None:
            assert not trained & {image.tobytes() for image in held.images}
    assert not set(suite.sources) & set(suite.target_names)


@pytest.mark.parametrize(("name", "write"), PARAMETERS)
def test_parts_name_the_sources_and_every_target(name, write, make):
    suite = make(name, write)
    present = {part.name for part in suite.parts() if part.present and part.role == "target"}
    assert {part.name for part in suite.parts() if part.role == "source"} == set(suite.sources)
    assert present == {target.split("/")[0] for target in suite.target_names}
    assert not present & {part.name for part in suite.missing}
    assert all(part.detail for part in suite.parts())


@pytest.mark.parametrize(("name", "write"), PARAMETERS)
def test_a_second_process_would_find_the_same(name, write, make):
    first, second = make(name, write).prepare(), make(name, write).prepare()
    np.testing.assert_array_equal(first.train.images, second.train.images)
    np.testing.assert_array_equal(first.train.labels, second.train.labels)
    for target in first.targets:
        np.testing.assert_array_equal(first.targets[target].images, second.targets[target].images)


@pytest.mark.parametrize("name", sorted(set(CASES) - {"digits_mini"}))
def test_an_empty_folder_is_one_line(name, tmp_path):
    (tmp_path / "empty").mkdir()
    options = {"source": "photo"} if name in ("pacs", "folder") else {}
    with pytest.raises(InputError) as caught:
        create_suite(name, root=tmp_path / "empty", **options).prepare()
    assert "\n" not in str(caught.value)
    assert str(tmp_path / "empty") in str(caught.value)


@pytest.mark.parametrize("name", SUITES.names())
def test_options_are_keyword_only_with_defaults(name):
    options = SUITES.options(name)
    assert "root" in options
    assert all(option.default is not option.empty for option in options.values())
    assert SUITES.summary(name).endswith((".", ";"))
