"""The digits suite on small files in the published layouts."""

import sys
import types

import numpy as np
import pytest

from asrnorm.core.errors import InputError, UnknownNameError
from asrnorm.data import create_suite
from asrnorm.data.image import resize_images
from helpers.published import noise, usps_text, write_digit_mat, write_mnist, write_mnist_m, write_usps


@pytest.fixture
def root(tmp_path):
    write_mnist(tmp_path)
    write_digit_mat(tmp_path / "svhn" / "test_32x32.mat")
    write_mnist_m(tmp_path)
    write_usps(tmp_path)
    return tmp_path


def test_what_is_missing_is_said_and_left_out(root):
    suite = create_suite("digits", root=root, subset="all")
    assert suite.target_names == ("svhn", "mnist_m", "usps")
    assert [part.name for part in suite.missing] == ["syn"]
    assert "synth_test_32x32.mat" in suite.missing[0].detail
    with pytest.raises(UnknownNameError, match="fetch syn"):
        suite.targets["syn"]


def test_syn_is_read_where_it_is(root):
    write_digit_mat(root / "syn" / "synth_test_32x32.mat")
    suite = create_suite("digits", root=root, subset="all")
    assert suite.target_names == ("svhn", "mnist_m", "syn", "usps")
    assert suite.targets["syn"].labels.tolist()[:10] == [1, 2, 3, 4, 5, 6, 7, 8, 9, 0]


def test_mnist_is_lanczos_on_bytes(root):
    suite = create_suite("digits", root=root, subset="all")
    np.testing.assert_array_equal(suite.train.images, resize_images(noise(40, 28, 28), (32, 32)))
    assert suite.validation is None
    assert len(suite.source_test) == 20


def test_usps_and_mnist_m_hold_their_files_pixels(root):
    suite = create_suite("digits", root=root, subset="all")
    values = usps_text()[1].astype(np.float32)
    grey = ((values + 1) / 2 * 255).astype(np.uint8).reshape(-1, 16, 16)
    np.testing.assert_array_equal(suite.targets["usps"].images, resize_images(grey, (32, 32)))
    np.testing.assert_array_equal(suite.targets["mnist_m"].images, noise(12, 32, 32, 3, seed=2))


@pytest.mark.parametrize(("subset", "start", "count"), [("ada", 5_000, 10_000), ("rsda", 5_000, 55_000)])
def test_subsets_are_the_rows_of_the_original_protocols(tmp_path, monkeypatch, subset, start, count):
    # Resizing 60,000 images takes seconds and is tested above.
    monkeypatch.setattr(
        "asrnorm.data.suites.digits.resize_images", lambda images, _: np.repeat(images[:, ::14, ::14, None], 3, 3)
    )
    write_mnist(tmp_path, num_train=60_000)
    suite = create_suite("digits", root=tmp_path, subset=subset)
    pixels = noise(60_000, 28, 28)[:, ::14, ::14]
    np.testing.assert_array_equal(suite.train.images[..., 0], pixels[start : start + count])
    np.testing.assert_array_equal(suite.validation.images[..., 2], pixels[:5_000])


def test_a_short_file_cannot_give_a_subset(root):
    with pytest.raises(InputError, match="rows 5,000 to 14,999"):
        _ = create_suite("digits", root=root, subset="ada").train


@pytest.mark.parametrize("folder", ["MNIST", "mnist"])
def test_compressed_and_other_folders_are_found(tmp_path, folder):
    write_mnist(tmp_path, compress=True, folder=folder)
    write_usps(tmp_path, compress=False)
    write_digit_mat(tmp_path / "test_32x32.mat")
    suite = create_suite("digits", root=tmp_path, subset="all")
    assert suite.target_names == ("svhn", "usps")
    assert len(suite.train) == 40
    assert len(suite.targets["usps"]) == 10


def test_without_mnist_it_says_how_to_get_it(tmp_path):
    suite = create_suite("digits", root=tmp_path)
    with pytest.raises(InputError, match="fetch mnist"):
        _ = suite.train
    with pytest.raises(InputError):
        suite.prepare()


@pytest.mark.parametrize("options", [{"subset": "ads"}, {"mnist_m": "generate"}])
def test_wrong_choices_are_answered_at_once(options):
    with pytest.raises(UnknownNameError, match="did you mean"):
        create_suite("digits", **options)


def test_generated_domains_have_names_of_their_own(root, monkeypatch):
    calls = []

    def build_syn_like(count, seed):
        calls.append(("syn", count, seed))
        return noise(count, 32, 32, 3), np.arange(count) % 10

    def build_mnist_m(images, labels, seed):
        calls.append(("mnist_m", images.shape, seed))
        return noise(len(images), 32, 32, 3), labels

    module = types.SimpleNamespace(build_syn_like=build_syn_like, build_mnist_m=build_mnist_m)
    monkeypatch.setitem(sys.modules, "asrnorm.data.synthetic", module)
    monkeypatch.setattr("asrnorm.data.suites.digits.NUM_SYN", 30)
    for _ in range(2):
        suite = create_suite("digits", root=root, subset="all", mnist_m="generated", syn_like=True, seed=3)
        assert suite.target_names == ("svhn", "mnist_m_like", "syn_like", "usps")
        assert len(suite.targets["syn_like"]) == 30
        assert suite.targets["mnist_m_like"].labels.tolist() == suite.source_test.labels.tolist()
    assert calls == [("syn", 30, 3), ("mnist_m", (20, 28, 28), 3)], "made once, then cached"


@pytest.mark.parametrize(
    "name",
    [
        "MNIST/raw/train-images-idx3-ubyte",
        "svhn/test_32x32.mat",
        "usps/usps.t.bz2",
        "mnist_m/mnist_m_test/00000003.png",
    ],
)
def test_a_truncated_file_is_one_line(root, name):
    path = root / name
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(InputError) as caught:
        create_suite("digits", root=root, subset="all").prepare()
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_images_and_labels_must_be_as_many(root):
    write_mnist(root / "other", num_train=39)
    labels = "MNIST/raw/train-labels-idx1-ubyte"
    (root / labels).write_bytes((root / "other" / labels).read_bytes())
    with pytest.raises(InputError, match=r"39 .* 40 "):
        _ = create_suite("digits", root=root, subset="all").train


def test_an_image_that_its_list_names_but_is_not_there(root):
    (root / "mnist_m" / "mnist_m_test" / "00000003.png").unlink()
    with pytest.raises(InputError, match=r"00000003\.png"):
        create_suite("digits", root=root, subset="all").targets["mnist_m"]


def test_the_edition_names_what_is_generated_and_depends_on_the_libraries(monkeypatch):
    assert create_suite("digits", root="nowhere").edition == ""
    made = create_suite("digits", root="nowhere", syn_like=True, mnist_m="generated", seed=3).edition
    assert made.startswith("mnist_m_like and syn_like generated, seed 3, by ")
    monkeypatch.setattr("asrnorm.data.suites.digits.provenance", lambda: ["matplotlib 9.9"])
    assert create_suite("digits", root="nowhere", syn_like=True, mnist_m="generated", seed=3).edition != made
