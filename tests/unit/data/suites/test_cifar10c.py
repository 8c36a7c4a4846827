"""The CIFAR-10-C suite on small files in both published layouts."""

import json

import numpy as np
import pytest

from asrnorm.core.errors import InputError, UnknownNameError
from asrnorm.data import create_suite
from helpers.published import cifar_batches, noise, write_cifar10c, write_cifar_binary, write_cifar_python


@pytest.fixture
def root(tmp_path):
    write_cifar_binary(tmp_path)
    write_cifar10c(tmp_path, ["fog", "snow"])
    return tmp_path


@pytest.mark.parametrize("write", [write_cifar_binary, write_cifar_python])
def test_batches_come_in_order(tmp_path, write):
    write(tmp_path)
    suite = create_suite("cifar10c", root=tmp_path)
    planes = np.concatenate([planes for _, planes, _ in cifar_batches()])
    images = planes.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    np.testing.assert_array_equal(suite.train.images, images[:100])
    np.testing.assert_array_equal(suite.source_test.images, images[100:])
    assert suite.validation is None


def test_images_held_out_are_the_same_ones_and_no_longer_trained_on(root):
    suite, again = (create_suite("cifar10c", root=root, held_out=20) for _ in range(2))
    assert (len(suite.train), len(suite.validation)) == (80, 20)
    assert suite.validation.class_counts(10).tolist() == [2] * 10
    np.testing.assert_array_equal(suite.validation.images, again.validation.images)
    both = np.concatenate([suite.train.images, suite.validation.images]).reshape(100, -1)
    whole = np.asarray(create_suite("cifar10c", root=root).train.images).reshape(100, -1)
    assert sorted(map(bytes, both)) == sorted(map(bytes, whole))


@pytest.mark.parametrize("count", [1, 15])
def test_images_that_classes_cannot_share_alike_are_not_held_out(count):
    with pytest.raises(InputError):
        create_suite("cifar10c", held_out=count)


@pytest.mark.parametrize("count", [-10, 25_010])
def test_too_many_held_out_are_refused(count):
    with pytest.raises(InputError):
        create_suite("cifar10c", held_out=count)


def test_a_severity_is_a_mapped_part_of_the_published_array(root):
    suite = create_suite("cifar10c", root=root)
    assert suite.target_names == tuple(f"{name}/{s}" for name in ("snow", "fog") for s in range(1, 6))
    for severity in range(1, 6):
        target = suite.targets[f"fog/{severity}"]
        rows = slice(10 * (severity - 1), 10 * severity)
        np.testing.assert_array_equal(target.images, noise(50, 32, 32, 3, seed=0)[rows])
    assert isinstance(target.images, np.memmap)
    assert target.labels.tolist() == list(range(10))


def test_absent_corruptions_are_missing(root):
    missing = create_suite("cifar10c", root=root).missing
    assert len(missing) == 17
    assert "asrnorm data corrupt cifar10c" in missing[0].detail
    assert len(create_suite("cifar10c", root=root, corruptions="standard").missing) == 13
    with pytest.raises(UnknownNameError, match=r"lacks its target frost/2: no CIFAR-10-C/frost\.npy"):
        create_suite("cifar10c", root=root).targets["frost/2"]
    with pytest.raises(UnknownNameError, match="did you mean 'fog/5'"):
        create_suite("cifar10c", root=root).targets["fog/6"]


def test_absent_corruptions_are_missing_by_the_names_of_their_targets(root):
    suite = create_suite("cifar10c", root=root)
    assert len(suite.missing_targets) == 17 * 5
    assert "frost/5" in suite.missing_targets
    assert not set(suite.missing_targets) & set(suite.target_names)


def test_the_edition_says_what_was_generated_and_how(root):
    assert create_suite("cifar10c", root=root).edition == "0 of 2 corruptions generated"
    record = {"fog": {"seed": 3}, "snow": {"seed": 3}, "frost": {"seed": 8}, "labels": {"seed": 9}}
    (root / "CIFAR-10-C" / "generated.json").write_text(json.dumps({"files": record}))
    assert create_suite("cifar10c", root=root).edition == "2 of 2 corruptions generated, seed 3"
    (root / "CIFAR-10-C" / "labels.npy").unlink()
    assert create_suite("cifar10c", root=root).edition == ""
    assert create_suite("digits", root=root).edition == ""


def test_without_labels_nothing_is_there(root):
    (root / "CIFAR-10-C" / "labels.npy").unlink()
    suite = create_suite("cifar10c", root=root)
    assert suite.target_names == ()
    assert all("labels.npy" in part.detail for part in suite.missing if part.name in ("fog", "snow"))


@pytest.mark.parametrize(
    ("name", "array", "message"),
    [
        ("fog.npy", noise(50, 32, 32, 4), r"expected uint8 \(50, 32, 32, 3\)"),
        ("fog.npy", np.zeros((50, 32, 32, 3), np.float32), "found float32"),
        ("fog.npy", noise(45, 32, 32, 3), r"found uint8 \(45"),
        ("labels.npy", np.arange(49) % 10, "a multiple of 5"),
        ("labels.npy", np.zeros(50), "expected whole numbers"),
        ("labels.npy", np.full(50, 10), "labels from 10 to 10"),
    ],
)
def test_other_shapes_and_dtypes_are_one_line(root, name, array, message):
    np.save(root / "CIFAR-10-C" / name, array)
    with pytest.raises(InputError, match=message) as caught:
        create_suite("cifar10c", root=root).targets["fog/1"]
    assert name in str(caught.value)


def test_a_truncated_array_is_one_line(root):
    path = root / "CIFAR-10-C" / "fog.npy"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(InputError, match=r"fog\.npy"):
        create_suite("cifar10c", root=root).targets["fog/1"]


def test_a_missing_batch_is_a_missing_source(root):
    (root / "cifar-10-batches-bin" / "data_batch_3.bin").unlink()
    with pytest.raises(InputError, match="fetch cifar10"):
        _ = create_suite("cifar10c", root=root).train


def test_the_constants_are_recorded_and_not_applied(root):
    suite = create_suite("cifar10c", root=root)
    assert suite.mean == pytest.approx((0.4914, 0.4824, 0.4467), abs=1e-4)
    assert suite.std == pytest.approx((0.2471, 0.2435, 0.2616), abs=1e-4)
    assert suite.train.images.dtype == np.uint8
