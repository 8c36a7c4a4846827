"""Content checks: copies with other bytes are accepted for what they hold, damaged and other files are refused."""

import bz2
import hashlib
import json
import pickle
import platform
import struct
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from scipy.io import savemat

from asrnorm.core.errors import InputError
from asrnorm.data.download.catalog import find_set
from asrnorm.data.download.content import (
    EXACT_CORRUPTIONS,
    PACS_CLASSES,
    checksum,
    cifar10c_array,
    count_samples,
    matches,
    mnist_m_folder,
    mnist_m_labels,
    pacs_domain,
    resnet18_keys,
)
from asrnorm.data.download.verify import check_set
from asrnorm.data.readers import read_digit_mat, read_usps
from helpers.published import noise


def test_a_checksum_is_the_same_in_capital_letters(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"abc")
    digest = hashlib.sha256(b"abc").hexdigest()
    assert matches(path, f"sha256:{digest}")
    assert matches(path, f"sha256:{digest.upper()}")
    assert not matches(path, f"sha256:{digest[:-1]}0")
    assert checksum(path, "sha256") == f"sha256:{digest}"
    assert checksum(path, "md5") == f"md5:{hashlib.md5(b'abc').hexdigest()}"


def usps_text(rows, label="3", value="-1.000"):
    return "\n".join(f"{label} " + " ".join(f"{i}:{value}" for i in range(1, 257)) for _ in range(rows)) + "\n"


def test_usps_digits_are_counted(tmp_path):
    path = tmp_path / "usps.bz2"
    path.write_bytes(bz2.compress(usps_text(5).encode()))
    assert count_samples(path, read=read_usps, count=5, noun="digits") == "5 digits; not the published bytes"
    for count in (4, 6):
        with pytest.raises(InputError, match=f"5 digits, {count} expected"):
            count_samples(path, read=read_usps, count=count, noun="digits")


@pytest.mark.parametrize(
    "text", ["11 1:0", usps_text(1, label="0"), usps_text(1, value="2"), "x y", "", "1 1:nan", "ü"]
)
def test_other_text_than_usps_is_refused(tmp_path, text):
    path = tmp_path / "usps.bz2"
    path.write_bytes(bz2.compress(text.encode()))
    with pytest.raises(InputError, match=r"usps\.bz2"):
        count_samples(path, read=read_usps, count=1)


def test_every_cut_of_a_usps_file_is_refused(tmp_path):
    whole = bz2.compress(usps_text(50).encode())
    path = tmp_path / "usps.bz2"
    for end in range(0, len(whole), 7):
        path.write_bytes(whole[:end])
        with pytest.raises(InputError):
            count_samples(path, read=read_usps, count=50)


def test_every_cut_of_a_mat_file_is_refused(tmp_path):
    path = tmp_path / "a.mat"
    savemat(path, {"y": np.ones((4, 1), np.uint8), "X": noise(32, 32, 3, 4)}, do_compression=True)
    assert count_samples(path, read=read_digit_mat, count=4) == "4 images; not the published bytes"
    whole = path.read_bytes()
    for end in range(0, len(whole) - 8, 499):
        path.write_bytes(whole[:end])
        with pytest.raises(InputError):
            count_samples(path, read=read_digit_mat, count=4)


@pytest.fixture
def mnist_m(tmp_path):
    folder = tmp_path / "mnist_m_test"
    folder.mkdir()
    for index in range(3):
        Image.new("RGB", (32, 32)).save(folder / f"{index:08d}.png")
    (tmp_path / "mnist_m_test_labels.txt").write_text("".join(f"{i:08d}.png {i}\n" for i in range(3)))
    return folder


def test_mnist_m_is_compared_with_its_labels(mnist_m):
    labels = mnist_m.with_name("mnist_m_test_labels.txt")
    assert mnist_m_folder(mnist_m, images=3) == "3 images"
    assert mnist_m_labels(labels, images=3) == "3 labels"
    whole = (mnist_m / "00000001.png").read_bytes()
    for damaged in (b"", whole[:-5], b"text"):
        (mnist_m / "00000001.png").write_bytes(damaged)
        with pytest.raises(InputError, match=r"mnist_m_test/00000001\.png"):
            mnist_m_folder(mnist_m, images=3)
    (mnist_m / "00000001.png").unlink()
    with pytest.raises(InputError):
        mnist_m_folder(mnist_m, images=3)
    for text in ("a b c\n", "x.png 11\n", "x.png 1\n" * 3, "../x.png 1\n", ""):
        labels.write_text(text)
        for check, path in ((mnist_m_labels, labels), (mnist_m_folder, mnist_m)):
            with pytest.raises(InputError, match=r"mnist_m_test_labels\.txt"):
                check(path, images=3)


@pytest.fixture
def domain(tmp_path):
    folder = tmp_path / "photo"
    for name in PACS_CLASSES:
        (folder / name).mkdir(parents=True)
        Image.new("RGB", (4, 4)).save(folder / name / "1.jpg", "WEBP")
    (tmp_path / "splits").mkdir()
    return folder


def test_a_domain_is_counted_by_class_and_compared_with_the_lists(domain):
    assert "7 images (dog 1" in pacs_domain(domain, counts=(1,) * 7)
    with pytest.raises(InputError, match="dog 1 of 2"):
        pacs_domain(domain, counts=(2, 1, 1, 1, 1, 1, 1))
    (domain.parent / "splits" / "photo_test_kfold.txt").write_text("photo/dog/1.jpg 1\nphoto/dog/2.jpg 1\n")
    with pytest.raises(InputError, match=r"1 listed file missing, the first photo/dog/2\.jpg"):
        pacs_domain(domain, counts=(1,) * 7)
    (domain / "dog" / "1.jpg").write_bytes((domain / "dog" / "1.jpg").read_bytes()[:-3])
    with pytest.raises(InputError, match=r"dog/1\.jpg: cut short"):
        pacs_domain(domain, counts=(1,) * 7)


def test_hidden_files_are_not_counted_and_a_list_in_another_encoding_is_one_line(domain):
    (domain / "dog" / ".DS_Store").touch()
    assert "7 images (dog 1" in pacs_domain(domain, counts=(1,) * 7)
    (domain.parent / "splits" / "photo_test_kfold.txt").write_bytes(b"photo/d\xe9g/1.jpg 1\n")
    with pytest.raises(InputError, match=r"photo_test_kfold\.txt"):
        pacs_domain(domain, counts=(1,) * 7)


def resnet_tensors(running=True):
    tensors = {"conv1.weight": torch.zeros(64, 3, 7, 7), "layer4.1.conv2.weight": torch.zeros(512, 512, 3, 3)}
    if running:
        tensors |= {f"bn{i}.running_mean": torch.zeros(2) for i in range(20)} | {"fc.weight": torch.zeros(2, 2)}
    return tensors


def test_weights_say_what_they_hold(tmp_path):
    torch.save(resnet_tensors(), tmp_path / "a.pth")
    assert resnet18_keys(tmp_path / "a.pth") == "23 tensors, with running statistics, with fc"
    save_file(resnet_tensors(running=False), tmp_path / "b.safetensors")
    assert resnet18_keys(tmp_path / "b.safetensors") == "2 tensors, without running statistics, without fc"


@pytest.mark.parametrize("ending", ["pth", "safetensors"])
def test_damaged_and_other_weights_are_refused(tmp_path, ending):
    path = tmp_path / f"w.{ending}"
    save = torch.save if ending == "pth" else save_file
    save(resnet_tensors(), path)
    whole = path.read_bytes()
    other = json.dumps({"a": 1}).encode()
    damaged = [b"", whole[:5], whole[:100], whole[:-1000], b"\xff" * 64, struct.pack("<Q", len(other)) + other]
    if ending == "safetensors":
        damaged += [whole + b"x", struct.pack("<Q", 1 << 40) + whole[8:]]
    for content in damaged:
        path.write_bytes(content)
        with pytest.raises(InputError, match=rf"w\.{ending}"):
            resnet18_keys(path)
    save({"conv1.weight": torch.zeros(1)}, path)
    with pytest.raises(InputError):
        resnet18_keys(path)


def test_a_pickle_that_would_run_code_is_refused(tmp_path):
    class Evil:
        def __reduce__(self):
            return (print, ("ran",))

    (tmp_path / "e.pth").write_bytes(pickle.dumps({"conv1.weight": Evil()}))
    with pytest.raises(InputError, match=r"e\.pth"):
        resnet18_keys(tmp_path / "e.pth")


PUBLISHED = ("contrast.npy", "fog.npy")


def md5_of(path):
    return checksum(path, "md5")


@pytest.fixture
def arrays(tmp_path):
    """CIFAR-10-C with arrays of two images, of which two are "published"."""
    small = []
    for file in find_set("cifar10c").layouts[0]:
        shape = (2,) if file.name == "labels.npy" else (2, 32, 32, 3)
        path = tmp_path / file.path
        path.parent.mkdir(exist_ok=True)
        np.save(path, np.full(shape, 7, np.uint8))
        digest = md5_of(path) if file.name in PUBLISHED else file.digest
        small.append(replace(file, verify=partial(cifar10c_array, digest=digest, shape=shape)))
    return replace(find_set("cifar10c"), layouts=(tuple(small),))


def record(folder, machine="x86_64"):
    files = {
        path.stem: {"md5": md5_of(path).partition(":")[2], "seed": 5, "machine": machine}
        for path in sorted(folder.glob("*.npy"))
    }
    (folder / "generated.json").write_text(json.dumps({"schema": 1, "files": files}))


def details(root, entry):
    return {row.file.split("/")[1].removesuffix(".npy"): (row.state, row.detail) for row in check_set(root, entry)}


@pytest.mark.parametrize(("machine", "words"), [("x86_64", "pinned library"), ("aarch64", "within one grey level")])
def test_generated_arrays_are_told_from_published_ones(arrays, tmp_path, machine, words):
    record(tmp_path / "CIFAR-10-C", machine)
    rows = details(tmp_path, arrays)
    assert {state for state, _ in rows.values()} == {"present"}
    assert rows["contrast"][1] == "generated, deterministic, equal to the published array (MD5)"
    assert rows["snow"][1] == "generated with seed 5; random, so like the published one in distribution only"
    assert rows["brightness"][1].startswith("generated, deterministic; ")
    assert words in rows["brightness"][1]
    assert "libjpeg" in rows["jpeg_compression"][1]


@pytest.mark.parametrize("content", [None, "", "[]", "{", '{"files": 3}', '{"files": {"snow": 3}}'])
def test_without_a_record_equal_arrays_are_published_and_others_unknown(arrays, tmp_path, monkeypatch, content):
    monkeypatch.setattr(platform, "machine", lambda: "arm64")
    if content is not None:
        (tmp_path / "CIFAR-10-C" / "generated.json").write_text(content)
    rows = details(tmp_path, arrays)
    assert rows["fog"] == ("present", "equal to the published array (MD5)")
    assert rows["snow"][1].startswith("not the published array, nor recorded")
    assert "on arm64 equal to the published one within one grey level" in rows["zoom_blur"][1]


def test_a_published_array_fetched_over_a_generated_one_is_published(arrays, tmp_path):
    folder = tmp_path / "CIFAR-10-C"
    whole = (folder / "fog.npy").read_bytes()
    np.save(folder / "fog.npy", np.full((2, 32, 32, 3), 9, np.uint8))
    record(folder)
    (folder / "fog.npy").write_bytes(whole)
    assert details(tmp_path, arrays)["fog"] == ("present", "equal to the published array (MD5)")


@pytest.mark.parametrize(
    "array",
    [np.full((2, 32, 32, 3), 8, np.uint8), noise(3, 32, 32, 3), np.zeros((2, 32, 32, 3)), np.array([{}], object)],
    ids=["changed since its generation", "shape", "dtype", "objects"],
)
def test_an_array_of_other_content_is_damaged(arrays, tmp_path, array):
    record(tmp_path / "CIFAR-10-C")
    np.save(tmp_path / "CIFAR-10-C" / "snow.npy", array, allow_pickle=True)
    assert details(tmp_path, arrays)["snow"][0] == "damaged"


def test_every_cut_of_an_array_is_damaged(arrays, tmp_path):
    path = tmp_path / "CIFAR-10-C" / "snow.npy"
    whole = path.read_bytes()
    for end in (*range(0, 128, 5), len(whole) - 1):
        path.write_bytes(whole[:end])
        assert details(tmp_path, arrays)["snow"][0] == "damaged"


def test_eight_files_can_be_generated_to_the_bit():
    names = {file.name.removesuffix(".npy") for file in find_set("cifar10c").files()}
    assert len(EXACT_CORRUPTIONS) == 8
    assert names >= EXACT_CORRUPTIONS
